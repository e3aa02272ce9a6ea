"""A driver library for tests without a card: nvml.c, compiled, and the file that it answers from."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"
# One idle H200, as NVML's values look.
H200 = {
    "driver": "580.65.06",
    "cuda": "13000",
    "count": "1",
    "0.name": "NVIDIA H200",
    "0.uuid": "GPU-77ab12ef-0000-0000-0000-000000000000",
    "0.capability": "9 0",
    "0.total": "150754820096",
    "0.free": "150109945856",
    "0.ecc": "1 1",
    "0.ecc.uncorrected.volatile": "0",
    "0.ecc.corrected.volatile": "0",
    "0.temperature": "31",
    "0.power": "76000",
    "0.utilization": "0 0",
}


def build(folder: Path) -> Path:
    """Compile the library into a folder, which belongs into LD_LIBRARY_PATH of the process under test."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run([*words, "-o", str(folder / LIBRARY), str(SOURCE)], check=True)
    return folder


def describe(file: Path, values: Mapping[str, str], *lines: str) -> None:
    """Write what the library answers, whole at once; `lines` are for keys that come several times."""
    text = "".join(f"{line}\n" for line in (*(f"{key}={value}" for key, value in values.items()), *lines))
    fresh = file.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


def environment(folder: Path, file: Path) -> dict[str, str]:
    """What the process under test needs beside its own environment."""
    return {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML_FILE": str(file)}
