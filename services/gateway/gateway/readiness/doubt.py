"""What becomes of an engine whose answers to clients keep failing, though its health says that it is well."""

from gateway.errors import GatewayError, UpstreamFault
from gateway.readiness.trial import TrialFault, TrialTurnedAway, check_text, run_trial
from gateway.upstreams import Engine, EngineClient

# As the shortest of the warm-up.
TRIAL_TOKENS = 8


async def fault_of(client: EngineClient, engine: Engine, timeout_seconds: float) -> str | None:
    """Return in words how a generation of our own fails too; None if it does not, or if the engine only has no time.

    One client's requests may fail at any engine: they alone prove nothing.
    """
    engine.is_doubted = False
    try:
        check_text(await run_trial(client, engine, max_tokens=TRIAL_TOKENS, timeout_seconds=timeout_seconds))
    except TrialTurnedAway:
        return None
    except TrialFault as fault:
        return str(fault)
    except UpstreamFault as fault:
        return fault.message
    except (GatewayError, TimeoutError):
        return None
    return None
