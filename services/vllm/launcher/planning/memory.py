"""Sums of memory: what a KV cache takes, what a context needs, and how sizes are written."""

from dataclasses import dataclass

from launcher.errors import InsufficientResources
from launcher.hardware import GIB, MIB
from launcher.planning import profiles
from launcher.settings import Settings

# A block that vLLM keeps for itself and the rounding to whole blocks: 128 tokens a block on CPUs.
SLACK_TOKENS = 256
# Least context that is worth starting for, where nobody asked for a certain one.
_LEAST_TOKENS = SLACK_TOKENS


@dataclass(frozen=True)
class Demand:
    """What an engine of a model needs; each method says it for each of a number of cards, in bytes.

    `context_tokens` is the wanted context, `token_bytes` the KV cache of a token, `kv_heads` what that divides by.
    """

    weight_bytes: int
    token_bytes: int
    context_tokens: int
    sequences: int
    attention_heads: int
    kv_heads: int

    @property
    def large(self) -> bool:
        """Whether one engine of it keeps a card busy."""
        return self.weight_bytes >= profiles.SMALL_MODEL_BYTES

    def weights(self, cards: int) -> int:
        """The loaded weights."""
        return self.weight_bytes // cards

    def overhead(self, cards: int) -> int:
        """Working memory: all that is neither weights nor KV cache."""
        size = profiles.OVERHEAD_BYTES + self.sequences * profiles.SEQUENCE_BYTES
        if self.large:
            size += int(profiles.LARGE_OVERHEAD_SHARE * self.weights(cards))
        return size + (profiles.EXCHANGE_BYTES if cards > 1 else 0)

    def token(self, cards: int) -> int:
        """KV cache of a token."""
        return self.token_bytes // min(cards, self.kv_heads)

    def context(self, cards: int) -> int:
        """KV cache of one context."""
        return kv_bytes(self.context_tokens, self.token(cards))

    def fixed(self, cards: int) -> int:
        """All but the KV cache."""
        return self.weights(cards) + self.overhead(cards)

    def parts(self, cards: int, kv_cache: int) -> str:
        """What memory goes to, for people."""
        return parts(self.weights(cards), self.overhead(cards), kv_cache)


def kv_bytes(context_tokens: int, token_bytes: int) -> int:
    """KV cache for one context of that length."""
    return (context_tokens + SLACK_TOKENS) * token_bytes


def explicit_kv(settings: Settings) -> int:
    """The KV cache that ENGINE_KV_CACHE_GB asks for; 0 if it does not."""
    return int((settings.kv_cache_gb or 0) * GIB)


def fit_context(settings: Settings, wanted: int, kv_cache: int, token_bytes: int, remedy: str) -> int:
    """The wanted context, or what the cache holds if nobody asked for a certain one.

    Raises InsufficientResources, naming `remedy` as what to raise.
    """
    holds = kv_cache // token_bytes - SLACK_TOKENS
    if wanted <= holds:
        return wanted
    if settings.max_model_len is None and holds >= _LEAST_TOKENS:
        return holds
    raise InsufficientResources(
        f"a context of {wanted} tokens needs {gib(kv_bytes(wanted, token_bytes))} of KV cache and {gib(kv_cache)} is"
        f" planned; raise {remedy} or lower ENGINE_MAX_MODEL_LEN"
    )


def parts(weights: int, overhead: int, kv_cache: int) -> str:
    """The three things that memory goes to."""
    return f"{gib(weights)} weights, {gib(overhead)} working memory, {gib(kv_cache)} KV cache"


def gib(size: int) -> str:
    """A size for people."""
    return f"{size / GIB:.1f} GiB" if size >= GIB or size <= 0 else f"{size / MIB:.0f} MiB"
