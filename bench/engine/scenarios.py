"""What is measured, in the order of its importance: engines, the steps of a plan, and what each load is like."""

from collections.abc import Mapping
from dataclasses import dataclass, field

GB = 10**9


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine: its front end, and what it is started with beside model and port."""

    name: str
    rust: bool
    flags: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """Start engines one after the other, or all together; one that fails is tried once more, alone."""

    engines: tuple[EngineSpec, ...]
    together: bool = False
    seconds: float = 150.0


@dataclass(frozen=True, slots=True)
class Load:
    """So many streams over these engines. `pinned` gives each engine and the load cores of their own."""

    label: str
    engines: tuple[str, ...]
    streams: int
    slow: bool = False
    shared_bytes: int = 0
    temperature: float = 0.7
    pinned: bool = False

    @property
    def processes(self) -> int:
        """Of the load: one carries some 30,000 events a second."""
        return next(count for most, count in ((16, 1), (64, 2), (256, 4), (10**6, 6)) if self.streams <= most)

    @property
    def spread_seconds(self) -> float:
        """Starts are spread over this time, so that streams are at every stage."""
        return next(s for most, s in ((1, 0.0), (16, 0.3), (256, 1.0), (10**6, 1.5)) if self.streams <= most)

    @property
    def settle_seconds(self) -> float:
        """From the first request to the window."""
        seconds = next(
            s for most, s in ((1, 0.6), (16, 1.0), (64, 1.8), (256, 2.5), (10**6, 4.0)) if self.streams <= most
        )
        return seconds * (2.5 if self.slow else 1)

    @property
    def window_seconds(self) -> float:
        """For how long what comes counts."""
        seconds = next(s for most, s in ((256, 4.0), (10**6, 5.0)) if self.streams <= most)
        return seconds * (1.6 if self.slow and self.streams > 256 else 1)  # noqa: PLR2004 - the step above

    @property
    def cost_seconds(self) -> float:
        """About how long the step takes."""
        return self.settle_seconds + self.window_seconds + (8 if self.slow and self.streams > 64 else 2.5)  # noqa: PLR2004


@dataclass(frozen=True, slots=True)
class Contract:
    """Compare two front ends request by request; `last` includes what ends them."""

    python: str
    rust: str
    last: bool = False
    seconds: float = 75.0


@dataclass(frozen=True, slots=True)
class Stop:
    """End engines: those named, or all."""

    engines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Combine:
    """Start engines with what has made one of them faster here, or once more as they come."""

    base: str
    count: int
    kv_gb: float


Step = Start | Load | Contract | Stop | Combine


def engine(name: str, *flags: str, rust: bool = True, kv_gb: float = 9, **environment: str) -> EngineSpec:
    """Return an engine beside others on one card: an explicit KV size, and a small share for the check at the start."""
    share = ("--kv-cache-memory-bytes", str(int(kv_gb * GB)), "--gpu-memory-utilization", "0.08")
    return EngineSpec(name, rust, (*share, *flags), environment)


def loads(label: str, engines: tuple[str, ...], *streams: int, slow: bool = False, pinned: bool = False) -> list[Load]:
    """Return one label's loads."""
    return [Load(label, engines, number, slow=slow and number >= 256, pinned=pinned) for number in streams]  # noqa: PLR2004


def rust(count: int) -> tuple[str, ...]:
    """Names of the first engines with the Rust front end."""
    return tuple(f"rust{number}" for number in range(1, count + 1))


FIRST: list[Step] = [
    Start((engine("rust1", kv_gb=16),)),
    *loads("Rust, 1 engine", rust(1), 256, 1, 16, 64, 1024),
    Start((engine("rust2"),)),
    *loads("Rust, 2 engines", rust(2), 256, 1024, 64),
    Start(
        (
            engine("rust3"),
            engine("rust4"),
            # For the comparison of answers, which an engine may not survive.
            engine("rust5", kv_gb=3),
            engine("python", rust=False, kv_gb=16),
            engine("python4", "--api-server-count", "4", rust=False, kv_gb=16),
        ),
        together=True,
    ),
    *loads("Rust, 4 engines", rust(4), 256, 1024, 64, 16, 1),
    *loads("Rust, 3 engines", rust(3), 256, 1024),
    *loads("Python, 4 API servers", ("python4",), 256, 1, 16, 64),
    *loads("Python, 1 engine", ("python",), 256, 1, 16, 64),
    Contract("python", "rust5"),
    *loads("Rust, 4 engines, pinned", rust(4), 256, 1024, pinned=True),
    Load("Rust, 4 engines, prompts share 400 of 530 bytes", rust(4), 256, shared_bytes=400),
    Load("Rust, 4 engines, temperature 0", rust(4), 256, temperature=0.0),
    Contract("python", "rust5", last=True, seconds=40),
    *loads("Python, 4 API servers", ("python4",), 1024, slow=True),
    Stop(),
]

# Each of these engines is loaded alone; the others hold memory and do nothing.
_VARIANTS = (
    engine("base", kv_gb=7),
    engine("seqs256", "--max-num-seqs", "256", kv_gb=7),
    engine("tokens2048", "--max-num-batched-tokens", "2048", kv_gb=7),
    engine("tokens16384", "--max-num-batched-tokens", "16384", kv_gb=7),
    engine("noprefix", "--no-enable-prefix-caching", kv_gb=7),
    engine("fp8", "--quantization", "fp8", kv_gb=7),
    engine("fp8kv", "--kv-cache-dtype", "fp8", kv_gb=7),
    engine("context4096", "--max-model-len", "4096", kv_gb=7),
    engine("noasync", "--no-async-scheduling", kv_gb=7),
    engine("eager", "--enforce-eager", kv_gb=7),
    engine("runner1", kv_gb=7, VLLM_USE_V2_MODEL_RUNNER="0"),
    # The Rust front end refuses --stream-interval.
    engine("interval4", "--api-server-count", "4", "--stream-interval", "4", rust=False, kv_gb=7),
    engine("interval8", "--api-server-count", "4", "--stream-interval", "8", rust=False, kv_gb=7),
)
# What may be combined: it changes neither answers nor what the engine can do. Of a family only the best.
LOSSLESS = {
    "seqs256": "sequences",
    "tokens2048": "tokens",
    "tokens16384": "tokens",
    "runner1": "runner",
    "noasync": "scheduling",
}
COMBINED = tuple(f"combined{number}" for number in range(1, 5))

VARIANTS: list[Step] = [
    Start(_VARIANTS, together=True, seconds=220),
    *(step for spec in _VARIANTS for step in loads(f"variant {spec.name}", (spec.name,), 256, 1)),
    Stop(),
    Combine("base", count=4, kv_gb=14),
    *loads("combined, 4 engines", COMBINED, 256, 1024, 64, 16, 1),
    *loads("combined, 3 engines", COMBINED[:3], 256, 1024),
    *loads("combined, 2 engines", COMBINED[:2], 256, 1024),
    *loads("combined, 1 engine", COMBINED[:1], 256),
    Stop(),
]

# Kernels of several processes take turns on a card unless a CUDA MPS daemon lets them run side by side.
_MPS_FOLDER = "/tmp/mps"  # noqa: S108 - the daemon's own
_MPS_ENGINES = tuple(
    engine(f"mps{number}", CUDA_MPS_PIPE_DIRECTORY=_MPS_FOLDER, CUDA_MPS_LOG_DIRECTORY=_MPS_FOLDER)
    for number in range(1, 9)
)
# More engines than that: whether it is the host's threads that are the limit.
MPS_MANY: list[Step] = [
    Start(_MPS_ENGINES, together=True),
    *(
        load
        for count in (8, 6)
        for load in loads(f"MPS, {count} engines", tuple(spec.name for spec in _MPS_ENGINES[:count]), 1024, 256)
    ),
    Stop(),
]
MPS: list[Step] = [
    Start(_MPS_ENGINES[:4], together=True),
    *loads("MPS, 4 engines", tuple(spec.name for spec in _MPS_ENGINES[:4]), 256, 1024, 64),
    *loads("MPS, 2 engines", tuple(spec.name for spec in _MPS_ENGINES[:2]), 256, 1024),
    Stop(),
]


# Python front ends: how many API servers an engine needs, and what several engines bring with them.
def _python(servers: int, count: int) -> tuple[EngineSpec, ...]:
    flags = ("--api-server-count", str(servers)) if servers > 1 else ()
    return tuple(engine(f"python{servers}-{number}", *flags, rust=False, kv_gb=7) for number in range(1, count + 1))


_TWO, _ONE, _FOUR = (tuple(spec.name for spec in _python(*shape)) for shape in ((2, 4), (1, 2), (4, 2)))
_RUST_PAIR = (engine("rust1", kv_gb=7), engine("rust2", kv_gb=7))
SEVERAL: list[Step] = [
    Start((*_python(2, 4), *_RUST_PAIR), together=True, seconds=180),
    *loads("Python, 2 engines of 2 API servers", _TWO[:2], 256, 1024, 64, 16, 1),
    *loads("Python, 1 engine of 2 API servers", _TWO[:1], 256, 64, 16, 1),
    *loads("Python, 4 engines of 2 API servers", _TWO, 1024, 256),
    *loads("Python, 3 engines of 2 API servers", _TWO[:3], 256, 1024),
    *loads("Rust, 2 engines, again", rust(2), 256, 1024, 64, 16, 1),
    *loads("Rust, 1 engine, again", rust(1), 64, 1),
    Stop(_TWO[2:]),
    Start((*_python(1, 2), *_python(4, 2)), together=True, seconds=120),
    *loads("Python, 2 engines of 1 API server", _ONE, 256, 64, 1024),
    *loads("Python, 2 engines of 4 API servers", _FOUR, 256, 1024, 64),
    *loads("Python, 1 engine of 4 API servers", _FOUR[:1], 64),
    Stop(),
]

# A machine without a GPU: whether the scripts work, not how fast anything is.
_CPU = ("--dtype", "float32", "--max-model-len", "4096", "--kv-cache-memory-bytes", "268435456")
_SMALL = (*_CPU, "--max-num-seqs", "16", "--enforce-eager")
CPU: list[Step] = [
    Start(
        (EngineSpec("rust1", rust=True, flags=_SMALL), EngineSpec("python", rust=False, flags=_SMALL)), together=True
    ),
    *loads("Rust, 1 engine", ("rust1",), 1, 4),
    *loads("Python, 1 engine", ("python",), 4),
    *loads("both engines, pinned", ("rust1", "python"), 4, pinned=True),
    Contract("python", "rust1", seconds=200),
    Contract("python", "rust1", last=True),
    Stop(),
]

PLANS = {"first": FIRST, "variants": VARIANTS, "several": SEVERAL, "mps": MPS, "mps-many": MPS_MANY, "cpu": CPU}
