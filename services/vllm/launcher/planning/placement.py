"""Which cards are used, how many compute on one model together, and how many engines share them."""

import math
from dataclasses import dataclass

from launcher.errors import BadSetting, InsufficientResources
from launcher.hardware import GIB, Gpu, Host
from launcher.planning import profiles
from launcher.planning.memory import SLACK_TOKENS, Demand, explicit_kv, gib, kv_bytes
from launcher.settings import Settings, variable

# A card with less than half of the roomiest one's free memory is somebody else's.
_CROWDED = 0.5


@dataclass(frozen=True)
class Placement:
    """So many engines on groups of so many cards; `sharing` is the most engines on one card."""

    cards: tuple[Gpu, ...]
    tensor_parallel: int
    engines: int
    api_servers: int
    reasons: tuple[str, ...]

    @property
    def sharing(self) -> int:
        """The most engines on one card."""
        return math.ceil(self.engines / (len(self.cards) // self.tensor_parallel))

    @property
    def free_bytes(self) -> int:
        """Free memory of the fullest card in use."""
        return min(card.memory_free_bytes for card in self.cards)

    def selectors(self, index: int) -> tuple[str, ...]:
        """What CUDA_VISIBLE_DEVICES holds for an engine, counted from 0."""
        groups = len(self.cards) // self.tensor_parallel
        first = index % groups * self.tensor_parallel
        return tuple(card.selector for card in self.cards[first : first + self.tensor_parallel])


def place(settings: Settings, gpus: tuple[Gpu, ...], host: Host, demand: Demand) -> Placement:
    """Find the cards and the number of engines.

    Raises InsufficientResources with the sum if no number of these cards holds the model, BadSetting for a number of
    cards that cannot be.
    """
    cards, reasons = _usable(gpus)
    together = _together(settings, cards, demand)
    groups = len(cards) // together
    engines, why = _engines(settings, cards, host, demand, together)
    used = cards[: min(groups, engines) * together]
    if len(used) < len(gpus):
        reasons += (f"{len(used)} of {len(gpus)} cards used",)
    return Placement(used, together, engines, _api_servers(settings, host, engines), (*reasons, why))


def allowed(settings: Settings, free_bytes: int) -> int:
    """Most memory of a card that engines may take."""
    if settings.vram_gb is not None:
        return int(settings.vram_gb * GIB)
    return int(profiles.HIGHEST_SHARE * free_bytes)


def _usable(gpus: tuple[Gpu, ...]) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The cards of the first one's kind that are not full already, and why others are not."""
    first, reasons = gpus[0], []
    alike = tuple(gpu for gpu in gpus if (gpu.name, gpu.compute_capability) == (first.name, first.compute_capability))
    if len(alike) < len(gpus):
        reasons.append(f"only the cards of one kind are used: {first.name}")
    roomiest = max(gpu.memory_free_bytes for gpu in alike)
    roomy = tuple(gpu for gpu in alike if gpu.memory_free_bytes >= _CROWDED * roomiest)
    reasons += [f"card {gpu.selector} is left out: {others(gpu)}" for gpu in alike if gpu not in roomy]
    return roomy, tuple(reasons)


def others(gpu: Gpu) -> str:
    """Who else uses the card, as far as the driver tells."""
    used = gib(gpu.memory_total_bytes - gpu.memory_free_bytes)
    pids = ", ".join(str(process.pid) for process in gpu.processes)
    return f"{used} of it are in use" + (f" (processes {pids})" if pids else "")


def _together(settings: Settings, cards: tuple[Gpu, ...], demand: Demand) -> int:
    """How many cards hold one copy of the model."""
    heads = demand.attention_heads
    if settings.tensor_parallel is not None:
        return _asked(settings.tensor_parallel, cards, heads)
    # A process of CUDA sees one MIG slice at most.
    most = 1 if cards[0].mig else len(cards)
    possible = [number for number in profiles.TENSOR_PARALLEL if number <= most and heads % number == 0]
    limit = allowed(settings, min(card.memory_free_bytes for card in cards))
    comfortable = (number for number in possible if demand.fixed(number) + demand.context(number) <= limit)
    just = (number for number in possible if demand.fixed(number) + _least_kv(settings, demand, number) <= limit)
    # A small model gets a shorter context on one card rather than a whole one on several, which would slow it down.
    found = (next(comfortable, None) if demand.large else None) or next(just, None)
    if found is None:
        raise _too_small(settings, cards, demand, possible[-1])
    return found


def _too_small(settings: Settings, cards: tuple[Gpu, ...], demand: Demand, number: int) -> InsufficientResources:
    """Why not even so many cards hold the model."""
    kv_cache = _least_kv(settings, demand, number)
    limit = gib(allowed(settings, min(card.memory_free_bytes for card in cards)))
    each = " each" if number > 1 else ""
    origin, cure = f"{profiles.HIGHEST_SHARE:.0%} of what is free", f"Stop what else uses them ({others(cards[0])})"
    if settings.vram_gb is not None:
        origin, cure = "ENGINE_VRAM_GB", "Raise that"
    lower = [name for name in ("max_model_len", "kv_cache_gb", "max_sequences") if getattr(settings, name)]
    cure += "".join(f", lower {variable(name)}" for name in lower)
    return InsufficientResources(
        f"{number} x {cards[0].name} may give {limit}{each} ({origin}), and the model needs"
        f" {gib(demand.fixed(number) + kv_cache)}{each}: {demand.parts(number, kv_cache)}. {cure}, or take more or"
        " larger cards, or a quantized checkpoint"
    )


def _asked(number: int, cards: tuple[Gpu, ...], heads: int) -> int:
    if number > len(cards):
        raise BadSetting(
            "ENGINE_TENSOR_PARALLEL", f"{number} cards are asked for and {len(cards)} are usable; lower it"
        )
    if heads % number:
        raise BadSetting("ENGINE_TENSOR_PARALLEL", f"{number} does not divide the model's {heads} attention heads")
    if number > 1 and cards[0].mig:
        raise BadSetting("ENGINE_TENSOR_PARALLEL", "MIG slices cannot compute together; leave it empty")
    return number


def _least_kv(settings: Settings, demand: Demand, cards: int) -> int:
    """The smallest KV cache that is worth starting with."""
    return explicit_kv(settings) or kv_bytes(settings.max_model_len or SLACK_TOKENS, demand.token(cards))


def _engines(settings: Settings, cards: tuple[Gpu, ...], host: Host, demand: Demand, together: int) -> tuple[int, str]:
    groups = len(cards) // together
    if settings.replicas is not None or not settings.status_port:
        why = "ENGINE_REPLICAS" if settings.replicas else "nobody could learn of more, with ENGINE_STATUS_PORT=0"
        return settings.replicas or 1, f"{_count(settings.replicas or 1)}: {why}"
    if together > 1 or demand.large:
        number = min(groups, profiles.MOST_ENGINES)
        return number, f"{_count(number)}: one model of this size fills {_cards(together)}"
    profile = profiles.for_gpu(cards[0])
    cores = host.cores // groups
    steps = profile.engines if profile else ()
    wanted = next((engines for from_cores, engines in reversed(steps) if cores >= from_cores), 1)
    limit = allowed(settings, min(card.memory_free_bytes for card in cards))
    each_kv = explicit_kv(settings) or demand.context(together)
    here = max(1, min(wanted, limit // (demand.fixed(together) + each_kv)))
    number = min(here * groups, profiles.MOST_ENGINES)
    fitting = next(count for count in range(number, 0, -1) if count == 1 or _host_holds(settings, host, count))
    if fitting < number:
        return fitting, f"{_count(fitting)}: the host has {gib(host.memory_total_bytes)} of memory"
    if here < wanted:
        return number, f"{_count(number)}: the card's memory holds no more"
    if not steps:
        return number, f"{_count(number)}: one keeps such a card busy"
    return number, f"{_count(number)} for {_cards(groups)} and {host.cores} cores: the host limits a model this small"


def _api_servers(settings: Settings, host: Host, engines: int) -> int:
    """Processes of one engine's HTTP server."""
    if settings.front_end == "rust":
        return 1
    cores = host.cores / engines
    return settings.api_servers or next(count for from_cores, count in profiles.API_SERVERS if cores >= from_cores)


def _host_holds(settings: Settings, host: Host, engines: int) -> bool:
    each = profiles.HOST_ENGINE_BYTES + _api_servers(settings, host, engines) * profiles.HOST_SERVER_BYTES
    return engines * each <= host.memory_total_bytes


def _count(number: int) -> str:
    return "1 engine" if number == 1 else f"{number} engines"


def _cards(number: int) -> str:
    return "a card" if number == 1 else f"{number} cards"
