"""`GET /v1/models`: what the ready engines serve, merged."""

from collections.abc import Awaitable, Callable
from typing import Any

from gateway.upstreams import Upstreams

# The engine's entries also name paths on its own disk.
_SHOWN = ("id", "object", "created", "owned_by", "max_model_len")


def models_route(upstreams: Upstreams) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Return the route's function."""

    async def models() -> dict[str, Any]:
        merged: dict[str, dict[str, Any]] = {}
        for engine in upstreams.engines:
            if engine.takes_requests:
                for model in engine.models:
                    merged.setdefault(model["id"], {key: model[key] for key in _SHOWN if key in model})
        if not merged:
            raise upstreams.not_ready()
        return {"object": "list", "data": list(merged.values())}

    return models
