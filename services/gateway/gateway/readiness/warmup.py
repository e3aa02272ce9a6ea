"""Warm-up: generations of several lengths until the time to the first token settles."""

from gateway.readiness.trial import TrialFault, check_text, run_trial
from gateway.upstreams import Engine, EngineClient

# Answer lengths in tokens, then longer prompts: each may meet a kernel that is compiled on first use.
ANSWER_TOKENS = (8, 16, 32)
PROMPT_REPEATS = (16, 64)
# Two first-token times in a row count as settled when they differ by less than this share or this much.
SETTLED_SHARE = 0.25
SETTLED_SECONDS = 0.02
MOST_ROUNDS = 8


async def warm_up(client: EngineClient, engine: Engine, timeout_seconds: float) -> float:
    """Return the settled time to the first token in seconds.

    Raises TrialFault if a text is unsound, GatewayError or TimeoutError if none comes; each generation may
    take `timeout_seconds`.
    """
    for tokens in ANSWER_TOKENS:
        check_text(await run_trial(client, engine, max_tokens=tokens, timeout_seconds=timeout_seconds))
    for repeats in PROMPT_REPEATS:
        try:
            await run_trial(client, engine, max_tokens=1, timeout_seconds=timeout_seconds, repeat_prompt=repeats)
        except TrialFault:
            # Longer than this model's window: then no request will be that long either.
            break
    previous = 0.0
    for _ in range(MOST_ROUNDS):
        trial = await run_trial(client, engine, max_tokens=1, timeout_seconds=timeout_seconds)
        if previous and abs(trial.ttft_seconds - previous) < max(SETTLED_SECONDS, SETTLED_SHARE * previous):
            return trial.ttft_seconds
        previous = trial.ttft_seconds
    return previous
