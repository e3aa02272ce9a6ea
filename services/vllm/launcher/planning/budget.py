"""What of a card's memory its engines get, and what of that is KV cache."""

from dataclasses import dataclass

from launcher.errors import InsufficientResources
from launcher.hardware import GIB
from launcher.planning import profiles
from launcher.planning.memory import Demand, explicit_kv, gib
from launcher.planning.placement import Placement
from launcher.planning.profiles import GpuProfile
from launcher.settings import Settings


@dataclass(frozen=True)
class Budget:
    """Bytes: for all engines on a card together, and each one's KV cache there; `origin` says why so much."""

    card_bytes: int
    kv_cache_bytes: int
    origin: str


def divide(settings: Settings, profile: GpuProfile, placed: Placement, demand: Demand) -> Budget:
    """Work it out. Raises InsufficientResources, naming the setting that would help."""
    cards = placed.tensor_parallel
    card_bytes, origin = _of_card(settings, profile, placed, demand)
    fixed, share = demand.fixed(cards), card_bytes // placed.sharing
    if share <= fixed:
        raise InsufficientResources(
            f"weights and working memory alone need {gib(fixed)}, and the budget is {gib(share)} for each engine"
            f" ({origin}); raise ENGINE_VRAM_GB, lower ENGINE_REPLICAS, or stop what else uses the card"
        )
    kv_cache = explicit_kv(settings) or min(share - fixed, demand.context(cards) * demand.sequences)
    if settings.vram_gb is not None and placed.sharing * (fixed + kv_cache) > card_bytes:
        raise InsufficientResources(
            f"ENGINE_KV_CACHE_GB asks for {gib(kv_cache)}, and with weights and working memory that is"
            f" {gib(fixed + kv_cache)} for each of {placed.sharing} on a card, but ENGINE_VRAM_GB allows"
            f" {gib(card_bytes)} in all; lower the one, raise the other, or lower ENGINE_REPLICAS"
        )
    if placed.sharing * (fixed + kv_cache) > placed.free_bytes:
        engines = f" for each of {placed.sharing} engines" if placed.sharing > 1 else ""
        raise InsufficientResources(
            f"weights, working memory and KV cache need {gib(fixed + kv_cache)}{engines}, but {placed.cards[0].name}"
            f" has {gib(placed.free_bytes)} free; lower ENGINE_KV_CACHE_GB or ENGINE_REPLICAS, or stop what else uses"
            " the card"
        )
    return Budget(card_bytes, kv_cache, origin)


def _of_card(settings: Settings, profile: GpuProfile, placed: Placement, demand: Demand) -> tuple[int, str]:
    """Memory of a card that its engines may take in all, and where the number comes from."""
    free = placed.free_bytes
    if settings.vram_gb is not None:
        budget = int(settings.vram_gb * GIB)
        if budget > free:
            raise InsufficientResources(
                f"ENGINE_VRAM_GB asks for {gib(budget)}, but {placed.cards[0].name} has {gib(free)} free; lower it or"
                " stop what else uses the card"
            )
        return budget, "ENGINE_VRAM_GB"
    share = profiles.HIGHEST_SHARE if demand.large else profile.memory_share
    needed = placed.sharing * (demand.fixed(placed.tensor_parallel) + demand.context(placed.tensor_parallel))
    if share * free >= needed:
        return int(share * free), f"{share:.0%} of {gib(free)} free"
    return min(needed, int(profiles.HIGHEST_SHARE * free)), f"one full context each, {gib(free)} free"
