"""What the gateway leaves behind that counting does not free: knots, which stay until the collector comes, seldom."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_to_the_collector() -> Iterator[list[str]]:
    """Name, when it is over, the gateway's things that counting has not freed meanwhile."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += sorted({f"{type(thing).__module__}.{type(thing).__name__}" for thing in gc.garbage})
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    found[:] = [name for name in found if name.startswith("gateway.")]
