"""What the machine says of itself: nvidia-smi's rows, and the host's files with and without a cgroup limit."""

import os
from pathlib import Path

import pytest
from launcher import hardware
from launcher.hardware import GIB, MIB, parse_nvidia_smi, read_host, visible

from .conftest import SMI, gpu

MEMINFO = "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:   20000000 kB\n"


@pytest.mark.parametrize(
    ("card", "capability", "total_mib"),
    [("v100", (7, 0), 16384), ("t4", (7, 5), 15360), ("a10", (8, 6), 23028), ("h200", (9, 0), 143771)],
)
def test_recorded_cards(card: str, capability: tuple[int, int], total_mib: int) -> None:
    found = gpu(card)
    assert found.compute_capability == capability
    assert found.memory_total_bytes == total_mib * MIB
    assert 0 < found.memory_free_bytes < found.memory_total_bytes
    assert found.driver_version


def test_no_card() -> None:
    assert parse_nvidia_smi("") == ((), "")


def test_a_driver_that_does_not_tell_enough_is_a_stated_problem() -> None:
    cards, problem = parse_nvidia_smi("0, GPU-1, Tesla K80, [N/A], 11441, 11000, 390.30\n")
    assert cards == ()
    assert "Tesla K80" in problem
    cards, problem = parse_nvidia_smi("NVIDIA-SMI has failed because it couldn't communicate\n")
    assert cards == ()
    assert "couldn't communicate" in problem


def test_memory_that_the_driver_withholds_counts_as_none() -> None:
    cards, problem = parse_nvidia_smi("0, GPU-1, NVIDIA GB10, 12.1, [N/A], [N/A], 580.95.05\n")
    assert not problem
    assert cards[0].memory_total_bytes == 0


def test_visible_devices_choose_by_index_and_by_uuid() -> None:
    cards, _ = parse_nvidia_smi(SMI["a10"] + SMI["h200"].replace("0, ", "1, ", 1))
    a10, h200 = cards
    assert visible(cards, None) == (a10, h200)
    assert visible(cards, "1,0") == (h200, a10)
    assert visible(cards, "GPU-77ab") == (h200,)
    assert visible(cards, "") == visible(cards, "-1") == visible(cards, "7,0") == ()


def _fake_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_detect_asks_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_smi(tmp_path, monkeypatch, f"echo '{SMI['a10'].strip()}'")
    found = hardware.detect({})
    assert [card.name for card in found.gpus] == ["NVIDIA A10"]
    assert found.host.cores >= 1
    assert hardware.detect({"CUDA_VISIBLE_DEVICES": ""}).gpus == ()


def test_a_failing_driver_is_a_problem_and_not_a_missing_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_smi(tmp_path, monkeypatch, "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    found = hardware.detect({})
    assert found.gpus == ()
    assert "18: Failed to initialize NVML" in found.gpu_problem


def _host_files(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, "proc/cpuinfo": "flags\t\t: fpu avx2 avx512f\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_host_without_limits(tmp_path: Path) -> None:
    unlimited = {"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}
    host = read_host(_host_files(tmp_path, unlimited))
    assert host.memory_total_bytes == 24_000_000 * 1024
    assert host.memory_available_bytes == 20_000_000 * 1024
    assert host.cores == len(os.sched_getaffinity(0))
    assert host.cpu_flags == {"fpu", "avx2", "avx512f"}


def test_the_limits_of_cgroup_v2(tmp_path: Path) -> None:
    limited = {
        "sys/fs/cgroup/memory.max": str(4 * GIB),
        "sys/fs/cgroup/memory.current": str(3 * GIB),
        "sys/fs/cgroup/memory.stat": f"anon 1\ninactive_file {GIB}\n",
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
    }
    host = read_host(_host_files(tmp_path, limited))
    assert (host.memory_total_bytes, host.memory_available_bytes, host.cores) == (4 * GIB, 2 * GIB, 1)


def test_the_limits_of_cgroup_v1(tmp_path: Path) -> None:
    limited = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": str(4 * GIB),
        "sys/fs/cgroup/memory/memory.usage_in_bytes": str(3 * GIB),
        "sys/fs/cgroup/memory/memory.stat": f"cache 5\ntotal_inactive_file {2 * GIB}\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    host = read_host(_host_files(tmp_path, limited))
    assert (host.memory_total_bytes, host.memory_available_bytes, host.cores) == (4 * GIB, 3 * GIB, 1)


def test_cgroup_v1_without_a_limit(tmp_path: Path) -> None:
    unlimited = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
    }
    assert read_host(_host_files(tmp_path, unlimited)).memory_total_bytes == 24_000_000 * 1024
