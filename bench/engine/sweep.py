"""`python -m bench.engine.sweep PLAN`: carry out a plan's steps within a time and keep what they brought.

The result is written after every step. A step that fails, or for which there is no time left, is named in it.
"""

import argparse
import contextlib
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.engine import result
from bench.engine.card import Card
from bench.engine.engines import Engine
from bench.engine.measure import measure
from bench.engine.scenarios import (
    COMBINED,
    LOSSLESS,
    PLANS,
    Combine,
    Contract,
    EngineSpec,
    Load,
    Start,
    Step,
    Stop,
    engine,
)

_SERVE = "python3 -m vllm.entrypoints.cli.main serve /tmp/model --served-model-name ernie-4.5-0.3b-pt"
_MODEL = "ernie-4.5-0.3b-pt"
# Left at the end for stopping engines and for the files.
_RESERVE_SECONDS = 12.0
_STAGGER_SECONDS = 1.0
_RETRIES = 2
_RETRY_SECONDS = 90.0
_FIRST_PORT = 18000
# A variant joins the combination if it is faster by more than runs differ.
_GAIN = 1.03
_LOG_LINES = 30
_LOGS = Path(tempfile.gettempdir()) / "engine-logs"


class Sweep:
    """The state of one run."""

    def __init__(self, plan: str, serve: list[str], model: str, out: Path, seconds: float) -> None:
        self._serve, self._model, self._out = serve, model, out
        self._ends_at = time.monotonic() + seconds
        self._card = Card()
        self._engines: dict[str, Engine] = {}
        self._port = _FIRST_PORT
        self._path = out / f"sweep-{plan}.json"
        command = f"python -m bench.engine.sweep {plan} --seconds {seconds:.0f}"
        self.found = {
            **result.describe(command, self._card.describe(), result.packages()),
            "plan": plan,
            "load": "closed loop, streamed chat, 128 output tokens of ignore_eos, prompts of 530 bytes",
            "gpu_used_gb_before": self._used_gb(),
            "starts": [],
            "loads": [],
            "not_done": [],
        }

    def carry_out(self, steps: Sequence[Step]) -> None:
        """Do what there is time for, and stop everything at the end."""
        try:
            for step in steps:
                self._try(step)
        finally:
            self._stop(tuple(self._engines))
            self.found["seconds_left"] = round(self._left())
            self._keep()

    def _try(self, step: Step) -> None:
        began = time.monotonic()
        try:
            done = self._do(step)
        except Exception as error:  # noqa: BLE001 - one step's failure costs that step
            traceback.print_exc()
            done = f"{type(error).__name__}: {result.without_paths(str(error))}"
        if done:
            self.found["not_done"].append({"step": _named(step), "reason": done})
        seconds, left = time.monotonic() - began, self._left()
        print(f"[{left:4.0f} s left] {_named(step)}: {done or 'done'} in {seconds:.1f} s", flush=True)
        self._keep()

    def _do(self, step: Step) -> str | None:
        """Do a step; return why it was not done."""
        match step:
            case Start():
                return self._start(step)
            case Load():
                return self._load(step)
            case Contract():
                return self._contract(step)
            case Combine():
                return self._combine(step)
            case Stop():
                self._stop(step.engines or tuple(self._engines))
                return None

    # --- Engines ---

    def _start(self, step: Start) -> str | None:
        groups = [step.engines] if step.together else [(spec,) for spec in step.engines]
        failed, retries = [], 0
        for group in groups:
            for spec in self._start_group(group, step.seconds):
                retried = retries < _RETRIES and self._left() > 2 * _RETRY_SECONDS
                retries += retried
                if not retried or self._start_group((spec,), _RETRY_SECONDS):
                    failed.append(spec.name)
        return f"did not start: {', '.join(failed)}" if failed else None

    def _start_group(self, specs: tuple[EngineSpec, ...], seconds: float) -> list[EngineSpec]:
        """Start engines at the same time, wait for all, and return those that failed."""
        ends_at = min(time.monotonic() + seconds, self._ends_at - _RESERVE_SECONDS)
        used_before = self._used_gb()
        waiting: dict[str, Engine] = {}
        for spec in specs:
            waiting[spec.name] = Engine(spec, self._free_port(), self._serve, _LOGS)
            self._engines[spec.name] = waiting[spec.name]
            time.sleep(_STAGGER_SECONDS if len(specs) > 1 else 0)
        healthy: dict[str, float] = {}
        while len(healthy) < len(waiting) and time.monotonic() < ends_at:
            for name, one in waiting.items():
                if name not in healthy and not one.has_ended and one.is_healthy():
                    healthy[name] = time.monotonic() - one.began
            if all(one.has_ended or name in healthy for name, one in waiting.items()):
                break
            time.sleep(0.1)
        for spec in specs:
            self._note_start(spec, healthy.get(spec.name), len(specs), used_before)
        failed = [spec for spec in specs if spec.name not in healthy]
        self._stop(tuple(spec.name for spec in failed))
        return failed

    def _note_start(self, spec: EngineSpec, seconds: float | None, together: int, used_before: float | None) -> None:
        one = self._engines[spec.name]
        used_by = self._card.used_by(set(one.members()))
        version = one.version() if seconds else None
        if version:
            self.found["versions"]["vllm"] = version
        self.found["starts"].append(
            {
                "engine": spec.name,
                "rust": spec.rust,
                "flags": list(spec.flags),
                "environment": {key: result.without_paths(text) for key, text in spec.environment.items()},
                "healthy_after_seconds": result.rounded(seconds) if seconds else None,
                "started_together": together,
                "gpu_used_gb_before": used_before,
                "gpu_used_gb_after": self._used_gb(),
                "gpu_used_gb_of_it": result.rounded(used_by / 1e9) if used_by else None,
                "stages": one.stages(),
                "last_lines": [] if seconds else one.last_lines(_LOG_LINES),
            }
        )

    def _stop(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._engines:
                with contextlib.suppress(ProcessLookupError):
                    self._engines[name].process.terminate()
        for name in names:
            if name in self._engines:
                self._engines.pop(name).stop()

    def _combine(self, step: Combine) -> str | None:
        rates = self._rates_by_variant()
        base = rates.get(f"variant {step.base}")
        chosen: dict[str, tuple[float, str]] = {}
        for name, family in LOSSLESS.items():
            one = rates.get(f"variant {name}")
            if base and one and one / base > max(_GAIN, chosen.get(family, (0.0, ""))[0]):
                chosen[family] = (one / base, name)
        names = [name for _, name in chosen.values()]
        specs = {start["engine"]: start for start in self.found["starts"]}
        # The first four flags are memory's.
        flags = [flag for name in names for flag in specs[name]["flags"][4:]]
        environment = {key: text for name in names for key, text in specs[name]["environment"].items()}
        self.found["combined"] = {"of": names, "gains": {name: result.rounded(gain) for gain, name in chosen.values()}}
        return self._start(
            Start(
                tuple(engine(name, *flags, kv_gb=step.kv_gb, **environment) for name in COMBINED[: step.count]),
                together=True,
            )
        )

    def _rates_by_variant(self) -> dict[str, float]:
        """Geometric mean of tokens a second over the numbers of streams."""
        rates: dict[str, list[float]] = {}
        for load in self.found["loads"]:
            rates.setdefault(load["label"], []).append(load["client"]["tokens_per_second"])
        most = max((len(values) for values in rates.values()), default=0)
        return {label: _product(values) ** (1 / len(values)) for label, values in rates.items() if len(values) == most}

    # --- Measuring ---

    def _load(self, step: Load) -> str | None:
        missing = [name for name in step.engines if name not in self._engines]
        if missing:
            return f"not running: {', '.join(missing)}"
        if self._left() < step.cost_seconds + _RESERVE_SECONDS:
            return "no time left"
        engines = [self._engines[name] for name in step.engines]
        idle = [one for name, one in self._engines.items() if name not in step.engines]
        figures = measure(step, engines, idle, self._model, self._card)
        head = {
            "label": step.label,
            "engines": list(step.engines),
            "idle_engines": len(idle),
            "streams": step.streams,
            "shared_bytes": step.shared_bytes,
            "temperature": step.temperature,
        }
        self.found["loads"].append({**head, **figures})
        client = figures["client"]
        ttft, gap = client["ttft_ms"] or {}, client["gap_ms"] or {}
        print(
            f"    {step.label}, {step.streams}: {client['tokens_per_second']:,.0f} tok/s "
            f"(engine {figures['engine']['tokens_per_second']}), first {ttft.get('p50')}/{ttft.get('p99')} ms, "
            f"gap {gap.get('p50')}/{gap.get('p99')} ms, cpu {figures['cpu']}, gpu {figures['gpu']}, "
            f"client {client['busiest_process']}, failures {client['failures']}",
            flush=True,
        )
        return None

    def _contract(self, step: Contract) -> str | None:
        missing = [name for name in (step.python, step.rust) if name not in self._engines]
        if missing:
            return f"not running: {', '.join(missing)}"
        seconds = min(step.seconds, self._left() - _RESERVE_SECONDS)
        python, rust = self._engines[step.python], self._engines[step.rust]
        command = [sys.executable, "-m", "bench.engine.contract", "--model", self._model, "--out", str(self._out)]
        command += ["--python", str(python.port), "--rust", str(rust.port)]
        if step.last:
            command += ["--last", "--python-pid", str(python.process.pid), "--rust-pid", str(rust.process.pid)]
        try:
            code = subprocess.run(command, timeout=seconds, check=False).returncode
        except subprocess.TimeoutExpired:
            return "not complete in time"
        return f"exit code {code}" if code else None

    # --- Small things ---

    def _left(self) -> float:
        return self._ends_at - time.monotonic()

    def _used_gb(self) -> float | None:
        used = self._card.used_bytes()
        return result.rounded(used / 1e9) if used else None

    def _free_port(self) -> int:
        """Return the next port that nothing listens on."""
        while True:
            self._port += 1
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with contextlib.suppress(OSError):
                    probe.bind(("127.0.0.1", self._port))
                    return self._port

    def _keep(self) -> None:
        result.write(self.found, self._path)


def _named(step: Step) -> str:
    match step:
        case Start():
            return f"start {', '.join(spec.name for spec in step.engines)}"
        case Load():
            return f"{step.label}, {step.streams} streams"
        case Contract():
            return "contract" + (", what ends engines" if step.last else "")
        case Combine():
            return "combine"
        case Stop():
            return "stop"


def _product(values: list[float]) -> float:
    product = 1.0
    for value in values:
        product *= value
    return product


@contextlib.contextmanager
def _nothing() -> Any:
    yield


@contextlib.contextmanager
def _mps() -> Any:
    """Run a CUDA MPS daemon; it changes no setting of the card."""
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps", "CUDA_MPS_LOG_DIRECTORY": "/tmp/mps"}  # noqa: S108, TID251
    Path("/tmp/mps").mkdir(exist_ok=True)  # noqa: S108
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=True)
    try:
        yield
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], env=environment, input=b"quit\n", check=False)


def main(arguments: Sequence[str]) -> int:
    """Run as the arguments say and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine.sweep", description=__doc__)
    parser.add_argument("plan", choices=PLANS)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))  # noqa: TID251
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--serve", default=_SERVE, help="the command of an engine, without its flags")
    parser.add_argument("--model", default=_MODEL, help="the name it serves the model by")
    parser.add_argument("--dry", action="store_true", help="only say what would be done")
    chosen = parser.parse_args(arguments)
    steps = PLANS[chosen.plan]
    if chosen.dry:
        for step in steps:
            cost = f"{step.cost_seconds:.1f} s" if isinstance(step, Load) else ""
            print(_named(step), cost)
        return 0
    chosen.out.mkdir(parents=True, exist_ok=True)
    _LOGS.mkdir(exist_ok=True)
    around: Callable[[], Any] = _mps if chosen.plan.startswith("mps") else _nothing
    with around():
        Sweep(chosen.plan, shlex.split(chosen.serve), chosen.model, chosen.out, chosen.seconds).carry_out(steps)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
