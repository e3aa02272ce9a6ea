"""What is measured: how many clients ask for what, and for how long."""

from dataclasses import dataclass

MILLISECOND = 1e-3


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of load: each client sends its next request as soon as its last answer is complete.

    A streamed answer has `events` events, `gap_ms` milliseconds apart, the first of them at once.
    """

    name: str
    clients: int
    streamed: bool
    events: int = 1
    gap_ms: int = 0

    @property
    def answer_seconds(self) -> float:
        """How long the engine takes for one answer."""
        return (self.events - 1) * self.gap_ms * MILLISECOND

    @property
    def offered_events_per_second(self) -> float | None:
        """What a path that costs no time would carry; None where the answers are not paced."""
        return self.clients * self.events / self.answer_seconds if self.gap_ms else None


@dataclass(frozen=True, slots=True)
class Plan:
    """The scenarios of one run, how often each is measured on each path, and for how many seconds each time."""

    scenarios: tuple[Scenario, ...]
    rounds: int
    window_seconds: float

    def seconds_of(self, scenario: Scenario) -> float:
        """Return the length of a scenario's windows: a single client brings few samples and gets twice the time."""
        return self.window_seconds * (2 if scenario.clients == 1 else 1)


EVENTS = 64


def streams(clients: int, gap_ms: int) -> Scenario:
    """Return paced streams of the usual length."""
    return Scenario("streams", clients, streamed=True, events=EVENTS, gap_ms=gap_ms)


def first_tokens(clients: int) -> Scenario:
    """Return streams of a single event: what a request costs before and after its events."""
    return Scenario("first token", clients, streamed=True)


def whole_answers(clients: int) -> Scenario:
    """Return answers that are not streamed."""
    return Scenario("whole answer", clients, streamed=False)


REQUESTS = (first_tokens(1), first_tokens(16), whole_answers(1), whole_answers(16))
FULL = Plan(
    (
        *(streams(clients, 20) for clients in (1, 16)),
        *(streams(clients, 5) for clients in (1, 16, 64, 128, 256)),
        *REQUESTS,
    ),
    rounds=5,
    window_seconds=0.8,
)
QUICK = Plan((*(streams(clients, 5) for clients in (1, 16, 64, 256)), *REQUESTS), rounds=2, window_seconds=0.2)
