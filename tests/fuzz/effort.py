"""How many examples a test makes: a few that are always the same, or many new ones."""

from hypothesis import HealthCheck, Phase, settings

LONG = "fuzz"


def effort(fast: int, long: int) -> settings:
    """Return the settings of a property: `fast` examples among the fast tests, `long` in `make fuzz`."""
    slow = list(HealthCheck)
    if settings.get_current_profile_name() == LONG:
        return settings(max_examples=long, deadline=None, suppress_health_check=slow)
    phases = [Phase.explicit, Phase.generate, Phase.shrink]
    return settings(max_examples=fast, derandomize=True, deadline=None, suppress_health_check=slow, phases=phases)
