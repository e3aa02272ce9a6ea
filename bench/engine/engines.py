"""Engines as processes: started, waited for, their processes' clocks read, stopped."""

import contextlib
import http.client
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.engine.scenarios import EngineSpec

_KILL_AFTER_SECONDS = 15.0
_SAMPLE = re.compile(r"^(vllm:[a-z_]+|process_start_time_seconds)(?:\{[^}]*\})? ([0-9.eE+-]+)$", re.MULTILINE)
# What vLLM's log says about its stages: a name for each, and where the number stands.
_STAGES = {
    "weights_seconds": r"Loading weights took ([\d.]+)",
    "model_gib": r"Model loading took ([\d.]+) GiB",
    "model_seconds": r"Model loading took [\d.]+ GiB(?: memory)? and ([\d.]+)",
    "compile_seconds": r"torch\.compile (?:takes|took) ([\d.]+) s in total",
    "profiling_seconds": r"Initial profiling/warmup run took ([\d.]+)",
    "graphs_seconds": r"Graph capturing finished in ([\d.]+) sec",
    "graphs_gib": r"Graph capturing finished in [\d.]+ secs, took ([\d.-]+) GiB",
    "kv_tokens": r"GPU KV cache size: ([\d,]+) tokens",
    "compile_in_init_seconds": r"\(compilation: ([\d.]+) s",
    "engine_init_seconds": r"init engine \([^)]*\) took ([\d.]+)",
}
# What is no part of a result: where things lie.
_PATH = re.compile(r"(?:/[\w.+-]+){2,}/?")


@dataclass(frozen=True, slots=True)
class Clocks:
    """Nanoseconds that the processes of an engine had so far, and those of their busiest threads."""

    core: int
    front: int
    threads: Mapping[tuple[str, int], int]
    waited: int


class Engine:
    """A vLLM server of ours."""

    def __init__(self, spec: EngineSpec, port: int, serve: Sequence[str], folder: Path) -> None:
        self.spec, self.port = spec, port
        self.log = folder / f"{spec.name}.log"
        environment = {
            **os.environ,  # noqa: TID251 - the tool's own
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_USE_FLASHINFER_SAMPLER": "0",
            "VLLM_USE_RUST_FRONTEND": str(int(spec.rust)),
            **spec.environment,
        }
        self.began = time.monotonic()
        command = [*serve, "--host", "127.0.0.1", "--port", str(port), *spec.flags]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def version(self) -> str | None:
        """Return the version of vLLM, if it says."""
        match = re.search(rb'"version":\s*"([^"]+)"', ask(self.port, "/version", 2.0)[1])
        return match[1].decode() if match else None

    def is_healthy(self) -> bool:
        """Whether it answers 200 on /health now."""
        return ask(self.port, "/health", 1.0)[0] == http.client.OK

    @property
    def has_ended(self) -> bool:
        """Whether the process that we started is gone."""
        return self.process.poll() is not None

    def stages(self) -> dict[str, float]:
        """What its log says about the stages of its start."""
        text = self.log.read_text(errors="replace")
        found = {name: re.search(pattern, text) for name, pattern in _STAGES.items()}
        return {name: float(match[1].replace(",", "")) for name, match in found.items() if match}

    def last_lines(self, count: int) -> list[str]:
        """The end of its log, without paths."""
        return [_PATH.sub("<path>", line) for line in self.log.read_text(errors="replace").splitlines()[-count:]]

    def members(self) -> dict[int, str]:
        """Its living processes with their command lines; all of them are of one session."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):
                rest = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(rest[3]) == self.process.pid and rest[0] != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
        return found

    def clocks(self) -> Clocks:
        """Read the clocks."""
        core = front = waited = 0
        threads = {}
        for pid, title in self.members().items():
            is_core = "EngineCore" in title or "Worker" in title
            for entry in Path(f"/proc/{pid}/task").glob("[0-9]*"):
                with contextlib.suppress(OSError, ValueError):
                    spent, delayed, _ = map(int, (entry / "schedstat").read_text().split())
                    threads["core" if is_core else "front", int(entry.name)] = spent
                    waited += delayed
                    core, front = (core + spent, front) if is_core else (core, front + spent)
        return Clocks(core, front, threads, waited)

    def pin(self, cores: Sequence[int]) -> None:
        """Bind all its threads to these cores."""
        for pid in self.members():
            for entry in Path(f"/proc/{pid}/task").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(entry.name), cores)

    def counters(self) -> tuple[float, dict[str, float]]:
        """Return when it answered, on CLOCK_MONOTONIC, and its metrics summed over their labels."""
        asked = time.monotonic()
        _, page = ask(self.port, "/metrics", 10.0)
        at = (asked + time.monotonic()) / 2
        sums: dict[str, float] = {}
        for name, number in _SAMPLE.findall(page.decode(errors="replace")):
            sums[name] = sums.get(name, 0.0) + float(number)
        return at, sums

    def stop(self) -> float:
        """End it and all its processes, and return how many seconds that took."""
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)
        while self.members():
            self.process.poll()
            if time.monotonic() - began > _KILL_AFTER_SECONDS:
                for pid in self.members():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        self.process.wait()
        return time.monotonic() - began


def ask(port: int, path: str, timeout: float) -> tuple[int, bytes]:
    """GET a path; status 0 if there is no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()
