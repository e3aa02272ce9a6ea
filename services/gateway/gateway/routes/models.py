"""`GET /v1/models`: what the ready engines serve, merged; for those who may ask, and counted against nobody."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request

from gateway.identity import Identity
from gateway.upstreams import Upstreams

# The engine's entries also name paths on its own disk.
_SHOWN = ("id", "object", "created", "owned_by", "max_model_len")


def models_route(identity: Identity, upstreams: Upstreams) -> Callable[[Request], Awaitable[dict[str, Any]]]:
    """Return the route's function; it raises Unauthorized as generations do."""

    async def models(request: Request) -> dict[str, Any]:
        identity.client_of(request.scope)
        merged: dict[str, dict[str, Any]] = {}
        for engine in upstreams.engines:
            if engine.takes_requests:
                for model in engine.models:
                    merged.setdefault(model["id"], {key: model[key] for key in _SHOWN if key in model})
        if not merged:
            raise upstreams.not_ready()
        return {"object": "list", "data": list(merged.values())}

    return models
