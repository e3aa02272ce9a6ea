"""Which turns are sent: never more than fits by the engine's count, never fewer than that, with hardly a question."""

import random

import pytest
from chat_ui.conversation import Conversation, Count, Messages, TurnState
from chat_ui.errors import ContextTooLong
from chat_ui.fitting import LEAST_ANSWER_TOKENS, MAX_COUNTS, Fitted, Room, fit

# As a template and a tokenizer for Chinese do: marks around each message, a token for three bytes.
MARKS, BYTES_PER_TOKEN = 5, 3


def engine_count(messages: Messages) -> int:
    return 4 + sum(MARKS + -(-len(message["content"].encode()) // BYTES_PER_TOKEN) for message in messages)


class Engine:
    """Counts, and remembers how often it was asked."""

    def __init__(self, *, tells: bool = True) -> None:
        self.tells = tells
        self.asked = 0

    async def count(self, messages: Messages) -> int | None:
        """Return the count, if it tells."""
        self.asked += 1
        return engine_count(messages) if self.tells else None


def talk(*lengths: int) -> Conversation:
    """Return a conversation of answered turns, each of so many Chinese characters, half in the question."""
    conversation = Conversation()
    for number, length in enumerate(lengths):
        turn = conversation.begin(f"id{number}", "问" * (length // 2))
        turn.answer, turn.state = "答" * (length - length // 2), TurnState.ANSWERED
    return conversation


async def fit_question(
    conversation: Conversation, engine: Engine, room: Room, question: str = "好", system_prompt: str = ""
) -> Fitted:
    turn = conversation.begin("new", question)
    return await fit(conversation, turn, room, engine.count, max_turns=1000, system_prompt=system_prompt)


async def test_short_conversation_needs_no_count() -> None:
    engine = Engine()
    fitted = await fit_question(talk(50, 50), engine, Room("m", 2048, 1024))
    assert (fitted.prompt.kept_turns, fitted.answer_tokens, engine.asked) == (2, 1024, 0)


async def test_what_an_answer_told_spares_the_count() -> None:
    conversation = talk(*[200] * 4)
    known = conversation.prompt(conversation.turns[-1], max_turns=9).messages
    conversation.counted = Count("m", known, engine_count(known))
    engine = Engine()
    fitted = await fit_question(conversation, engine, Room("m", 2048, 512))
    assert (fitted.prompt.kept_turns, engine.asked) == (4, 0)
    # Another model counts otherwise.
    await fit_question(conversation, engine, Room("other", 2048, 512))
    assert engine.asked == 1


@pytest.mark.parametrize("seed", range(30))
async def test_the_prompt_fits_and_little_room_is_wasted(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secret
    conversation = talk(*[rng.randint(10, 400) for _ in range(40)])
    room, engine = Room("m", 2048, 1024), Engine()
    fitted = await fit_question(conversation, engine, room, "问" * rng.randint(1, 300), "说" * rng.randint(0, 99))
    assert engine_count(fitted.prompt.messages) + fitted.answer_tokens <= room.context_tokens
    assert fitted.prompt.kept_turns
    assert fitted.prompt.kept_turns + fitted.prompt.dropped_turns == 40
    assert engine.asked <= MAX_COUNTS
    one_more = conversation.prompt(
        conversation.turns[-1],
        max_turns=fitted.prompt.kept_turns + 2,
        system_prompt=fitted.prompt.messages[0]["content"] if fitted.prompt.messages[0]["role"] == "system" else "",
    )
    assert engine_count(one_more.messages) > room.prompt_tokens * 0.9


async def test_engine_that_cannot_count_still_never_gets_too_much() -> None:
    engine = Engine(tells=False)
    fitted = await fit_question(talk(*[100] * 20), engine, Room("m", 2048, 1024))
    assert engine_count(fitted.prompt.messages) <= 1024
    assert fitted.prompt.kept_turns
    assert engine.asked <= MAX_COUNTS


async def test_long_question_gets_the_room_that_is_left() -> None:
    room, engine = Room("m", 2048, 1024), Engine()
    fitted = await fit_question(talk(100), engine, room, "问" * 1800)
    assert fitted.prompt.kept_turns == 0
    assert fitted.answer_tokens == 2048 - engine_count(fitted.prompt.messages)


async def test_question_without_room_for_an_answer_is_not_sent() -> None:
    with pytest.raises(ContextTooLong):
        await fit_question(talk(), Engine(), Room("m", 2048, 1024), "问" * (2048 - LEAST_ANSWER_TOKENS))
    # Where nobody has counted, the engine is the judge.
    fitted = await fit_question(talk(), Engine(tells=False), Room("m", 2048, 1024), "问" * 5000)
    assert fitted.answer_tokens == 1024
