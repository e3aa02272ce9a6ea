"""`python -m bench.engine.launched plan|otherwise`: what the launcher's plan is worth on a card, and how it returns.

Needs the launcher (services/vllm) on PYTHONPATH beside vLLM, and, for what goes through the gateway, `--gateway`: a
command that starts one at `GATEWAY_PORT`, its limits off. The result is written after every step.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.engine import result
from bench.engine.acceptance import accept, many
from bench.engine.card import Card
from bench.engine.measure import measure
from bench.engine.scenarios import Load
from bench.engine.servers import GATEWAY_PORT, LOGS, MODEL, PORT, STATUS_PORT, STOP_SECONDS, Gateway, Launched

if TYPE_CHECKING:
    from bench.engine.engines import Engine

_RESERVE_SECONDS = 15.0
# A name, about how many seconds it takes, and what to do.
Step = tuple[str, float, Callable[[], Any]]


class Trial:
    """The state of one run."""

    def __init__(self, plan: str, model: str, gateway: str, out: Path, seconds: float) -> None:
        self._model, self._gateway_command = model, gateway
        self._ends_at = time.monotonic() + seconds
        self._card = Card()
        self._gateway: Gateway | None = None
        self._launched: Launched | None = None
        self._path = out / f"launched-{plan}.json"
        command = f"python -m bench.engine.launched {plan} --seconds {seconds:.0f}"
        self.found: dict[str, Any] = {
            **result.describe(command, self._card.describe(), result.packages()),
            "steps": [],
            "loads": [],
            "not_done": [],
        }

    def carry_out(self, plan: str) -> None:
        """Do what there is time for, and leave nothing behind."""
        steps = self._by_plan() if plan == "plan" else self._otherwise()
        try:
            for name, cost, do in steps:
                self._try(name, cost, do)
        finally:
            if self._launched:
                self._launched.stop()
            if self._gateway:
                self._gateway.process.kill()
            self._keep()

    def _by_plan(self) -> list[Step]:
        """The launcher's own choice, cold, loaded, broken and stopped."""
        return [
            ("cold start by plan", 250, lambda: self._start("cold", "shared")),
            ("gateway ready", 40, self._open_gateway),
            ("acceptance through the gateway", 30, lambda: accept(GATEWAY_PORT, MODEL)),
            *((f"{n} streams at the engines", 15.0, lambda n=n: self._load(n)) for n in (256, 1024, 64, 16, 1)),
            *((f"{n} streams at the gateway", 15.0, lambda n=n: self._load(n, gateway=True)) for n in (64, 16, 1)),
            ("kill -9 of an engine under load, and back", 150, self._kill_and_return),
            ("stop in order under load", 40, self._stop_under_load),
        ]

    def _otherwise(self) -> list[Step]:
        """What settings change: a small budget, and the Rust front end behind the gateway."""
        rust = {"ENGINE_FRONT_END": "rust"}
        return [
            ("one engine within 10 GiB, caches warm", 120, lambda: self._start("small", "shared", **_SMALL)),
            ("acceptance at the small engine", 20, lambda: accept(PORT, MODEL)),
            *((f"{n} streams at the small engine", 15.0, lambda n=n: self._load(n)) for n in (64, 1)),
            ("stop in order", 40, self._stop),
            ("Rust front end, caches warm", 150, lambda: self._start("rust", "shared", **rust)),
            ("gateway ready", 40, self._open_gateway),
            ("acceptance through the gateway", 30, lambda: accept(GATEWAY_PORT, MODEL)),
            *((f"{n} streams at the engines", 15.0, lambda n=n: self._load(n)) for n in (256, 1024, 64)),
            ("stop in order under load", 60, self._stop_under_load),
        ]

    def _stop_under_load(self) -> dict[str, Any]:
        """Ask to end while streams run: all of them should end well."""
        replies: list[Any] = []
        crowd = threading.Thread(target=lambda: replies.extend(many(PORT, MODEL, 512, requests=20, at_once=20)))
        crowd.start()
        time.sleep(0.5)
        outcome = self._stop()
        crowd.join(60)
        faults = [reply.fault for reply in replies if reply.fault]
        return {**outcome, "asked": len(replies), "faults": {fault: faults.count(fault) for fault in set(faults)}}

    def _try(self, name: str, cost: float, do: Callable[[], Any]) -> None:
        left = self._ends_at - time.monotonic()
        if left < cost * 0.4 + _RESERVE_SECONDS:
            self.found["not_done"].append({"step": name, "reason": "no time left"})
            return
        try:
            outcome = do()
        except Exception as error:  # noqa: BLE001 - one step's failure costs that step
            traceback.print_exc()
            self.found["not_done"].append({"step": name, "reason": result.without_paths(str(error))})
        else:
            self.found["steps"].append({"step": name, "outcome": outcome})
            print(f"[{self._ends_at - time.monotonic():4.0f} s left] {name}: {json.dumps(outcome)[:900]}", flush=True)
        self._keep()

    def _start(self, name: str, cache: str, **settings: str) -> dict[str, Any]:
        environment = {
            "ENGINE_MODEL": self._model,
            "ENGINE_SERVED_NAME": MODEL,
            "ENGINE_PORT": str(PORT),
            "ENGINE_STATUS_PORT": str(STATUS_PORT),
            "ENGINE_CACHE_DIR": str(LOGS / cache),
            **settings,
        }
        used_before = self._card.used_bytes() or 0
        # Before the start: what is free is a part of the plan.
        planned = _planned_bytes(environment)
        self._launched = Launched(name, environment)
        served = self._launched.wait_until_serving()
        time.sleep(1.0)
        used = (self._card.used_bytes() or 0) - used_before
        of_each = [self._card.used_by(set(engine.members())) for engine in self._launched.engines()]
        return {
            "settings": settings,
            "serving_after_seconds": served,
            "stages": self._launched.stages(),
            "gpu_gb": result.rounded(used / 1e9),
            "gpu_gb_of_each": [result.rounded(one / 1e9) if one else None for one in of_each],
            "planned_gb_of_each": result.rounded(planned / 1e9) if planned else None,
            "error_percent": result.rounded(100 * (used / len(served) / planned - 1)) if planned else None,
        }

    def _open_gateway(self) -> dict[str, Any]:
        if not self._gateway_command:
            return {"skipped": "no --gateway"}
        self._gateway = Gateway(self._gateway_command)
        return {"ready_after_seconds": self._gateway.wait_until_ready(60.0)}

    def _load(self, streams: int, *, gateway: bool = False) -> dict[str, Any]:
        launched = self._running()
        engines: Sequence[Engine] = [self._gateway] if gateway and self._gateway else launched.engines()
        label = "through the gateway" if gateway else f"as planned, {len(engines)} engines"
        load = Load(label, (), streams, slow=streams > 256)  # noqa: PLR2004 - as in the sweep
        figures = measure(load, engines, (), MODEL, self._card)
        self.found["loads"].append({"label": label, "streams": streams, **figures})
        client = figures["client"]
        return {key: client[key] for key in ("tokens_per_second", "ttft_ms", "gap_ms", "failures")} | figures["cpu"]

    def _kill_and_return(self) -> dict[str, Any]:
        """Kill the process that computes while streams run; start again as a restart policy would."""
        launched = self._running()
        core = next(
            pid for engine in launched.engines() for pid, title in engine.members().items() if "EngineCore" in title
        )
        replies: list[Any] = []
        port = GATEWAY_PORT if self._gateway else PORT
        crowd = threading.Thread(target=lambda: replies.extend(many(port, MODEL, 128, requests=60, at_once=20)))
        crowd.start()
        time.sleep(0.5)
        killed_at = time.monotonic()
        os.kill(core, signal.SIGKILL)
        code = launched.process.wait(STOP_SECONDS)
        ended_after = time.monotonic() - killed_at
        last = launched.last_lines(400)
        outcome = self._start("again", "shared")
        ready = self._gateway.wait_until_ready(60.0) if self._gateway else None
        crowd.join(180)
        faults = [reply.fault for reply in replies if reply.fault]
        return {
            "exit_code": code,
            "ended_after_seconds": result.rounded(ended_after),
            "last_words": [line for line in last if "launcher" in line][-3:],
            "start": outcome,
            "gateway_ready_after_that_seconds": ready,
            "asked": len(replies),
            "faults": {fault: faults.count(fault) for fault in set(faults)},
        }

    def _stop(self) -> dict[str, Any]:
        code, seconds = self._running().stop()
        self._launched = None
        return {
            "exit_code": code,
            "seconds": seconds,
            "gpu_used_gb_after": result.rounded((self._card.used_bytes() or 0) / 1e9),
        }

    def _running(self) -> Launched:
        if self._launched is None or self._launched.process.poll() is not None:
            raise RuntimeError("no launcher runs")
        return self._launched

    def _keep(self) -> None:
        result.write(self.found, self._path)


_SMALL = {"ENGINE_VRAM_GB": "10", "ENGINE_REPLICAS": "1"}


def _planned_bytes(environment: Mapping[str, str]) -> int | None:
    """What the plan says an engine takes of the card."""
    script = (
        "import os; from launcher.preflight import prepare; from launcher.settings import Settings;"
        "e = dict(os.environ); print(prepare(Settings.from_environment(e), e, None).plan.gpu_bytes)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},  # noqa: TID251 - the tool's own
        capture_output=True,
        text=True,
        check=False,
    )
    return int(answer.stdout) if answer.stdout.strip().isdigit() else None


def main() -> int:
    """Carry the trial out and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", choices=("plan", "otherwise"))
    parser.add_argument("--model", default="/tmp/model")  # noqa: S108 - where the GPU machine's scripts put it
    parser.add_argument("--gateway", default="", help="command that starts a gateway")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--out", type=Path, default=result.RESULTS)
    chosen = parser.parse_args()
    LOGS.mkdir(exist_ok=True)
    Trial(chosen.plan, chosen.model, chosen.gateway, chosen.out, chosen.seconds).carry_out(chosen.plan)
    return 0


if __name__ == "__main__":
    sys.exit(main())
