"""The programs that are compared and those that compare: `python -m bench.peers.install` makes them below .run/peers.

A peer has an environment of its own, from requirements/NAME.txt: pins and hashes, no index's address.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.gateway.processes import ROOT

HERE = Path(__file__).parent
MADE = ROOT / ".run" / "peers"
REQUIREMENTS = HERE / "requirements"
_COMPILED = {"engine": ("engine.c",), "load": ("load.c", "answer.c")}


class NotInstalledError(Exception):
    """Something is not to be had here; the message is the reason in a sentence."""


def program(name: str) -> Path:
    """Compile the `engine` or the `load` if need be, and return where it is."""
    compiler = shutil.which("cc")
    if not compiler:
        raise NotInstalledError("there is no C compiler (cc) here")
    sources = [HERE / source for source in _COMPILED[name]]
    made, key = MADE / name, _key(HERE / "answer.h", *sources)
    if not _is_current(made, key):
        MADE.mkdir(parents=True, exist_ok=True)
        flags = ("-O2", "-std=gnu11", "-Wall", "-Wextra")
        # Put in its place whole: others may run it, or make it, at the same time.
        new = made.with_name(f"{name}.{os.getpid()}.new")
        _run(compiler, *flags, "-o", str(new), *(str(source) for source in sources))
        new.replace(made)
        _stamp(made).write_text(key)
    return made


def environment(peer: str) -> Path:
    """Make a peer's environment if need be, and return the folder of its programs."""
    requirements, made = REQUIREMENTS / f"{peer}.txt", MADE / peer
    key = _key(requirements)
    if not _is_current(made, key):
        uv = str(Path(sys.executable).with_name("uv"))
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(made))
        python = str(made / "bin" / "python")
        options = ("--quiet", "--compile-bytecode", "--require-hashes", "--python", python)
        _run(uv, "pip", "sync", *options, str(requirements))
        _stamp(made).write_text(key)
    return made / "bin"


def version(peer: str) -> str:
    """Return the version that a peer's requirements pin."""
    name = "fastapi" if peer == "naive" else peer
    lines = (REQUIREMENTS / f"{peer}.txt").read_text().splitlines()
    return next(line.split()[0].partition("==")[2] for line in lines if line.startswith(f"{name}=="))


def _stamp(made: Path) -> Path:
    return made.with_name(f"{made.name}.stamp")


def _key(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _is_current(made: Path, key: str) -> bool:
    return made.exists() and _stamp(made).exists() and _stamp(made).read_text() == key


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NotInstalledError(f"{Path(command[0]).name} {command[1]} ended with {done.returncode}: {last}")


def main() -> int:
    """Make everything and say what could not be made."""
    code = 0
    peers = sorted(file.stem for file in REQUIREMENTS.glob("*.in"))
    for make, name in [(program, "engine"), (program, "load"), *((environment, peer) for peer in peers)]:
        try:
            make(name)
            print(f"ready: {name}", flush=True)
        except NotInstalledError as error:
            print(f"not ready: {name}: {error}", flush=True)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
