"""`/status`: a page that shows how things stand, the figures behind it, and the engines as Prometheus's targets.

The page is for people, and may be shown to anybody: engines have numbers there, never addresses. The targets are the
operator's.
"""

import time
from collections.abc import Callable
from pathlib import Path

from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.history import History
from gateway.schemas import StageName
from gateway.upstreams import Engine, Upstreams

_FOLDER = Path(__file__).parent / "page"
_FILES = {
    "/status": ("status.html", "text/html"),
    "/status/page.css": ("status.css", "text/css"),
    "/status/page.js": ("status.js", "text/javascript"),
}
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class EngineFigures(BaseModel):
    """One engine for the page; what is not known is null. `cache` and `progress` are shares of 1."""

    state: str
    seconds_in_state: float
    models: list[str]
    stage: StageName | None
    progress: float | None
    seconds_left: float | None
    running: float | None
    waiting: float | None
    cache: float | None
    warmup_ttft_seconds: float | None


class CardFigures(BaseModel):
    """One card's memory, and what of it was used in each sample; null where that is not known."""

    name: str
    used_bytes: int
    total_bytes: int
    samples: list[int | None]


class TroubleFigures(BaseModel):
    """Questions that ended badly in one way; `at` in Unix time."""

    at: float
    outcome: str
    count: int


class Figures(BaseModel):
    """All that the page shows; each list of samples begins with the oldest."""

    ready: bool
    draining: bool
    engines: list[EngineFigures]
    cards: list[CardFigures]
    sample_seconds: float
    tokens_per_second: list[float]
    first_token_seconds: list[float | None]
    waiting: list[int]
    in_flight: list[int]
    troubles: list[int]
    last_troubles: list[TroubleFigures]


def status_routes(upstreams: Upstreams, history: History) -> list[Route]:
    """Return the page, its files, its figures and the targets."""

    async def figures(_request: Request) -> Response:
        return JSONResponse(_figures(upstreams, history).model_dump(), headers={"cache-control": "no-store"})

    async def targets(_request: Request) -> Response:
        """Answer as Prometheus's HTTP service discovery wants it."""
        return JSONResponse([_target(engine) for engine in upstreams.engines])

    files = [Route(path, _file(*file), methods=["GET"]) for path, file in _FILES.items()]
    return [
        *files,
        Route("/status/figures", figures, methods=["GET"]),
        Route("/status/targets", targets, methods=["GET"]),
    ]


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    content = (_FOLDER / name).read_bytes()

    def answer(_request: Request) -> Response:
        return Response(content, headers={**_HEADERS, "content-type": f"{kind}; charset=utf-8"})

    return answer


def _target(engine: Engine) -> dict[str, object]:
    scheme, _, address = engine.base_url.partition("://")
    return {"targets": [address], "labels": {"__scheme__": scheme}}


def _figures(upstreams: Upstreams, history: History) -> Figures:
    samples = list(history.samples)
    return Figures(
        ready=upstreams.ready and not upstreams.closing,
        draining=upstreams.closing,
        engines=[_engine(engine) for engine in upstreams.engines],
        cards=[
            CardFigures(
                name=card.name,
                used_bytes=card.memory_used_bytes,
                total_bytes=card.memory_total_bytes,
                samples=[sample.card_bytes.get(card.uuid) for sample in samples],
            )
            for card in upstreams.launchers.cards
        ],
        sample_seconds=history.sample_seconds,
        tokens_per_second=[sample.tokens_per_second for sample in samples],
        first_token_seconds=[sample.first_token_seconds for sample in samples],
        waiting=[sample.waiting for sample in samples],
        in_flight=[sample.in_flight for sample in samples],
        troubles=[sample.troubles for sample in samples],
        last_troubles=[
            TroubleFigures(at=trouble.at, outcome=trouble.outcome, count=trouble.count)
            for trouble in reversed(history.troubles)
        ],
    )


def _engine(engine: Engine) -> EngineFigures:
    told, load, start = engine.told, engine.load, engine.start
    return EngineFigures(
        state=engine.shown_state,
        seconds_in_state=round(max(0.0, time.time() - engine.since), 1),
        models=[model["id"] for model in engine.models],
        stage=told.stage if told else None,
        progress=told.progress if told else None,
        seconds_left=start.seconds_left if start else None,
        running=load.running if load else None,
        waiting=load.waiting if load else None,
        cache=load.cache if load else None,
        warmup_ttft_seconds=engine.warmup_ttft_seconds,
    )
