"""Which of several engines a conversation is at home at: there its earlier turns are still in the cache.

Rendezvous hashing (Thaler and Ravishankar, 1998): every process finds the same home without a table, and an engine
that comes or goes takes only its own conversations along. Loads are bounded as in Mirrokni, Thorup and Zadimoghaddam,
"Consistent Hashing with Bounded Loads" (2018): who is at home where much more is done than elsewhere goes elsewhere.
"""

from collections.abc import Sequence
from hashlib import blake2b

from gateway.upstreams.engine import Engine

# By so much a home may have more to do than the engine that has least: a quarter, and at least so many requests. A
# sequence more makes a step of the batch hardly longer; reading a long conversation anew takes several.
MOST_AHEAD, AHEAD_PARTS = 2, 4


def home_of(conversation: int, engines: Sequence[Engine]) -> Engine:
    """Return the engine of these, at least one, that a conversation goes to."""
    least = min(engine.outstanding for engine in engines)
    bound = least + max(MOST_AHEAD, least // AHEAD_PARTS)
    near = [engine for engine in engines if engine.outstanding <= bound]
    return max(near, key=lambda engine: blake2b(f"{conversation} {engine.label}".encode(), digest_size=8).digest())
