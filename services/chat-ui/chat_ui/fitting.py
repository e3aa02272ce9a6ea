"""Which earlier turns fit before a question, by the engine's own counts.

Two counts cost nothing: every answer tells what its prompt took, and no token is less than a byte of text. Only where
these leave it open whether a prompt fits is the engine asked to count it, a few times at most.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from chat_ui.conversation import Conversation, Count, Messages, Prompt, Turn
from chat_ui.errors import ContextTooLong

# Asks the engine for the tokens of a prompt; None where it cannot tell.
CountTokens = Callable[[Messages], Awaitable[int | None]]

# What a chat template writes around a message, and around them all; more than any common one does.
MARK_TOKENS = 16
TEMPLATE_TOKENS = 64
# Each count but the first is of a prompt cut to size by the one before, so that more are hardly ever needed.
MAX_COUNTS = 3
# With less room than this there is nothing to be said.
LEAST_ANSWER_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Room:
    """What model and person allow: the context as a whole, and the part of it that the answer may take, in tokens."""

    model: str
    context_tokens: int
    answer_tokens: int

    @property
    def prompt_tokens(self) -> int:
        """What is left for the prompt."""
        return self.context_tokens - self.answer_tokens


@dataclass(frozen=True, slots=True)
class Fitted:
    """A prompt, and how long its answer may be."""

    prompt: Prompt
    answer_tokens: int


async def fit(
    conversation: Conversation, turn: Turn, room: Room, count: CountTokens, *, max_turns: int, system_prompt: str
) -> Fitted:
    """Return the prompt with as many of the newest turns as fit, the oldest dropped first.

    A question that leaves less room than a whole answer needs gets a shorter one; raises `ContextTooLong` if it leaves
    none.
    """
    counts_left = MAX_COUNTS
    while True:
        prompt = conversation.prompt(turn, max_turns=max_turns, system_prompt=system_prompt)
        tokens, exact = most_tokens(prompt.messages, conversation.counted, room.model), False
        if tokens > room.prompt_tokens and counts_left:
            counts_left -= 1
            counted = await count(prompt.messages)
            if counted is not None:
                conversation.counted = Count(room.model, prompt.messages, counted)
                tokens, exact = counted, True
        if tokens <= room.prompt_tokens:
            return Fitted(prompt, room.answer_tokens)
        if not prompt.kept_turns:
            return Fitted(prompt, _shorter_answer(room, tokens) if exact else room.answer_tokens)
        max_turns = prompt.kept_turns - _surplus_turns(prompt, tokens, room.prompt_tokens)


def most_tokens(messages: Messages, counted: Count | None, model: str) -> int:
    """Return what messages take at most: what was counted before, and a token for each byte of the rest."""
    known, tokens = 0, TEMPLATE_TOKENS
    if counted and counted.model == model and messages[: len(counted.messages)] == counted.messages:
        known, tokens = len(counted.messages), counted.tokens
    return tokens + sum(_bytes_of(message) + MARK_TOKENS for message in messages[known:])


def _shorter_answer(room: Room, prompt_tokens: int) -> int:
    left = room.context_tokens - prompt_tokens
    if left < min(LEAST_ANSWER_TOKENS, room.answer_tokens):
        raise ContextTooLong(f"{prompt_tokens} of {room.context_tokens} tokens")
    return min(left, room.answer_tokens)


def _surplus_turns(prompt: Prompt, tokens: int, room: int) -> int:
    """Return how many of the oldest turns hold what is too much, judged by their part of the text; at least one."""
    first = 1 if prompt.messages[0]["role"] == "system" else 0
    tokens_per_byte = tokens / sum(map(_bytes_of, prompt.messages))
    surplus = tokens - room
    for turns in range(1, prompt.kept_turns):
        question, answer = prompt.messages[first + 2 * turns - 2 : first + 2 * turns]
        surplus -= int((_bytes_of(question) + _bytes_of(answer)) * tokens_per_byte)
        if surplus <= 0:
            return turns
    return prompt.kept_turns


def _bytes_of(message: dict[str, str]) -> int:
    return len(message["content"].encode(errors="surrogatepass"))
