"""What is known of the engines, as bytes: written by the process that watches them, read by all others.

Pickled, since it passes between processes that were one, through memory that nobody else has.
"""

import io
import itertools
import pickle
from typing import Any

from gateway.upstreams import Engine, Upstreams
from gateway.workers.engines import MOST_ENGINES, EngineCells

_TOLD = ("state", "since", "waits_for", "models", "warmup_ttft_seconds", "start", "told", "is_suspect")


class Truth:
    """Reads and writes what one process's `Upstreams` knows; engines are told apart by numbers."""

    def __init__(self, upstreams: Upstreams, engine_cells: EngineCells) -> None:
        self._upstreams = upstreams
        self._cells = engine_cells
        self._engines: dict[int, Engine] = {}
        self._numbers = itertools.cycle(range(MOST_ENGINES))

    @property
    def engines(self) -> dict[int, Engine]:
        """The engines by their numbers."""
        return self._engines

    def write(self) -> bytes:
        """Return all that is known; engines that are new get their numbers."""
        engines = self._upstreams.engines
        for engine in engines:
            if engine.number is None:
                self._add(engine, self._free_number())
        self._engines = {engine.number: engine for engine in engines if engine.number is not None}
        file = io.BytesIO()
        told = [
            (
                engine.number,
                engine.label,
                engine.base_url,
                engine.load,
                engine.looks,
                [getattr(engine, name) for name in _TOLD],
            )
            for engine in engines
        ]
        pickle.dump(told, file)
        _Pickler(file).dump(self._upstreams.knowledge)
        return file.getvalue()

    def read(self, content: bytes) -> None:
        """Take over all that another process has written."""
        file = io.BytesIO(content)
        before, self._engines = self._engines, {}
        for number, label, base_url, load, looks, told in pickle.load(file):  # noqa: S301  (our own)
            engine = before.get(number)
            if engine is None or (engine.label, engine.base_url) != (label, base_url):
                engine = Engine(label, base_url)
                self._add(engine, number)
            self._engines[number] = engine
            for name, value in zip(_TOLD, told, strict=True):
                setattr(engine, name, value)
            if load != engine.load:
                # What is learned from a look is learned once.
                engine.load = load
            engine.follow_looks(*looks)
        self._upstreams.take_over(_Unpickler(file, self._engines).load())

    def _add(self, engine: Engine, number: int) -> None:
        engine.number = number
        engine.work = self._cells.work_of(number)

    def _free_number(self) -> int:
        taken = {engine.number for engine in self._upstreams.engines}
        if len(taken) > MOST_ENGINES:
            raise ValueError(f"more than {MOST_ENGINES} engines")
        return next(number for number in self._numbers if number not in taken)


class _Pickler(pickle.Pickler):
    def persistent_id(self, thing: Any) -> int | None:
        return thing.number if isinstance(thing, Engine) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, engines: dict[int, Engine]) -> None:
        super().__init__(file)
        self._engines = engines

    def persistent_load(self, number: Any) -> Engine:
        return self._engines[number]
