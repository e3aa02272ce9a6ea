"""How much work a request is, in tokens: as expected before it begins, and as it was when it is over."""

from gateway.errors import GatewayError
from gateway.schemas import Exchange, Generation

# A token of an answer takes a pass through the model, those of a prompt share one. Two is what Sheng et al. (OSDI 2024)
# charge, and the least of what APIs do.
ANSWER_WEIGHT = 2
# English text in JSON; Chinese has fewer bytes a token in UTF-8 and more where it is escaped.
BYTES_PER_TOKEN = 4
# Before any answer is known, and how many of the latest are remembered.
FIRST_ANSWER_TOKENS = 128.0
ANSWERS_REMEMBERED = 64


class Work:
    """Expects of an answer what the latest answers were, and never more than the request allows."""

    def __init__(self) -> None:
        self._usual_answer = FIRST_ANSWER_TOKENS

    def expected(self, generation: Generation) -> float:
        """Return what a request should cost."""
        most = generation.max_tokens
        answer = self._usual_answer if most is None else min(self._usual_answer, most)
        return _prompt_tokens(generation) + ANSWER_WEIGHT * answer * generation.choices

    def done(self, exchange: Exchange, generation: Generation, expected: float, error: BaseException | None) -> float:
        """Return what a request has cost, once its attempt is over.

        One that failed before anything was made costs nothing. What a client that left would have got is not known:
        that costs what was expected.
        """
        if not exchange.completion_tokens:
            is_known = error is None or isinstance(error, GatewayError)
            return float(exchange.prompt_tokens) if is_known else expected
        answer = exchange.completion_tokens / generation.choices
        self._usual_answer += (answer - self._usual_answer) / ANSWERS_REMEMBERED
        prompt = exchange.prompt_tokens or _prompt_tokens(generation)
        return float(prompt + ANSWER_WEIGHT * exchange.completion_tokens)


def _prompt_tokens(generation: Generation) -> int:
    return len(generation.body) // BYTES_PER_TOKEN + 1
