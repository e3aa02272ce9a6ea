"""What the machine says of itself: the driver's library, and the host's files with and without a cgroup limit."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launcher.errors import BadSetting
from launcher.hardware import GIB, Gpu, Hardware, Process, nvml, record
from launcher.hardware.host import read as read_host

from tests.fakes import nvml as fake

from .conftest import MACHINES

SERVICE = Path(__file__).resolve().parents[3] / "services" / "vllm"
MEMINFO = "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:   20000000 kB\n"
T4 = {
    "1.name": "Tesla T4",
    "1.uuid": "GPU-0a1b2c3d",
    "1.capability": "7 5",
    "1.total": "16106127360",
    "1.free": "15639314432",
}
Detect = Callable[..., Hardware]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled driver library."""
    return fake.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def detect(library: Path, tmp_path: Path) -> Detect:
    """What `launcher hardware` prints in a process that has the library, for these values of it."""

    def run(values: dict[str, str], *lines: str, **environment: str) -> Hardware:
        file = tmp_path / "card"
        fake.describe(file, values, *lines)
        kept = {name: text for name, text in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        done = subprocess.run(
            [sys.executable, "-m", "launcher", "hardware"],
            env={**kept, "PYTHONPATH": str(SERVICE), **fake.environment(library, file), **environment},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        (tmp_path / "machine.json").write_text(done.stdout)
        return record.read(tmp_path / "machine.json")

    return run


def test_a_card_as_the_driver_tells_it(detect: Detect) -> None:
    found = detect(fake.H200, "0.process=4711 5368709120", "0.process=4712 -1")
    assert found.gpu_problem == ""
    assert found.gpus == (
        Gpu(
            index=0,
            uuid="GPU-77ab12ef-0000-0000-0000-000000000000",
            name="NVIDIA H200",
            compute_capability=(9, 0),
            memory_total_bytes=150754820096,
            memory_free_bytes=150109945856,
            driver_version="580.65.06",
            cuda_version=(13, 0),
            processes=(Process(4711, 5 * GIB), Process(4712, None)),
            ecc=True,
        ),
    )
    assert found.host.cores >= 1


def test_what_a_card_does_not_tell_is_left_open(detect: Detect) -> None:
    told = {name: text for name, text in fake.H200.items() if name not in {"0.ecc", "cuda"}}
    card = detect(told).gpus[0]
    assert (card.ecc, card.cuda_version, card.processes) == (None, None, ())


def test_a_card_without_memory_of_its_own_has_the_hosts(detect: Detect) -> None:
    told = {name: text for name, text in fake.H200.items() if name not in {"0.total", "0.free"}}
    found = detect({**told, "0.name": "NVIDIA GB10", "0.capability": "12 1"})
    assert found.gpus[0].unified_memory
    assert found.gpus[0].memory_total_bytes == found.host.memory_total_bytes
    assert found.gpus[0].memory_free_bytes == found.host.memory_available_bytes


def test_visible_devices_choose_by_index_and_by_uuid(detect: Detect) -> None:
    both = {**fake.H200, **T4, "count": "2"}
    names = {
        None: ["NVIDIA H200", "Tesla T4"],
        "1,0": ["Tesla T4", "NVIDIA H200"],
        "GPU-77ab": ["NVIDIA H200"],
        "7,0": [],
        "-1": [],
        "": [],
    }
    all_cards = detect(both).gpus
    for selection, expected in names.items():
        assert [card.name for card in nvml.visible(all_cards, selection)] == expected
    assert [card.index for card in detect(both, CUDA_VISIBLE_DEVICES="1").gpus] == [1]


def test_a_divided_card_is_its_slices(detect: Detect) -> None:
    slices = {
        "0.mig": "1",
        "0.mig_devices": "7 8",
        "7.parent": "0",
        "8.parent": "0",
        "7.uuid": "MIG-aaaa",
        "7.total": str(18 * GIB),
        "7.free": str(17 * GIB),
        "8.uuid": "MIG-bbbb",
        "8.total": str(35 * GIB),
        "8.free": str(34 * GIB),
    }
    found = detect({**fake.H200, **slices}, "8.process=99 1000").gpus
    assert [card.selector for card in found] == ["MIG-aaaa", "MIG-bbbb"]
    assert [card.memory_free_bytes for card in found] == [17 * GIB, 34 * GIB]
    assert [card.processes for card in found] == [(), (Process(99, 1000),)]
    assert all(card.mig and card.compute_capability == (9, 0) for card in found)
    chosen = detect({**fake.H200, **slices}, CUDA_VISIBLE_DEVICES="MIG-bbbb").gpus
    assert [card.selector for card in chosen] == ["MIG-bbbb"]


@pytest.mark.parametrize(
    ("function", "code", "says"),
    [
        ("nvmlInit_v2", 18, "version mismatch"),
        ("nvmlInit_v2", 9, "Driver Not Loaded"),
        ("nvmlDeviceGetMemoryInfo", 15, "GPU is lost"),
    ],
)
def test_a_failing_driver_is_a_problem_and_not_a_missing_card(
    detect: Detect, function: str, code: int, says: str
) -> None:
    found = detect({**fake.H200, f"error.{function}": str(code)})
    assert found.gpus == ()
    assert says in found.gpu_problem


def test_a_driver_whose_library_is_not_here_is_named(tmp_path: Path) -> None:
    # The test process has no library: this machine has no card, or its driver would answer.
    host = read_host()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    code = (
        "import sys; from pathlib import Path; from launcher.hardware import host, nvml;"
        "print([nvml.read(host.read(), Path(root)) for root in sys.argv[1:]])"
    )
    with_sign, without = str(tmp_path), str(tmp_path / "none")
    done = subprocess.run(
        [sys.executable, "-c", f"{_NO_LIBRARY}{code}", with_sign, without],
        env={**os.environ, "PYTHONPATH": str(SERVICE)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "its library (libnvidia-ml.so.1) is not visible here" in done.stdout
    assert done.stdout.strip().endswith("((), '')]")
    assert host.cores >= 1


def _card_states(library: Path, file: Path, code: str = "driver.card_states()") -> str:
    words = ("-c", f"from launcher.supervision import driver; print({code})")
    environment = {**os.environ, "PYTHONPATH": str(SERVICE), **fake.environment(library, file)}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout


def test_the_state_of_a_card_is_told_as_far_as_it_tells_it(library: Path, tmp_path: Path) -> None:
    fake.describe(tmp_path / "card", {**fake.H200, "0.error.nvmlDeviceGetPowerUsage": "15"})
    told = _card_states(library, tmp_path / "card")
    assert "'temperature': 31" in told
    assert "'uncorrected_ecc_errors': 0" in told
    assert "power_watts" not in told


def test_a_driver_that_hangs_holds_up_no_end(library: Path, tmp_path: Path) -> None:
    # Nobody writes to this pipe, so the library's first call does not return.
    os.mkfifo(tmp_path / "card")
    told = _card_states(library, tmp_path / "card", "driver.card_states(seconds=0.5)")
    assert "gave no answer in 0.5 s" in told


# Whatever machine the tests run on, no library is found there.
_NO_LIBRARY = "import ctypes; ctypes.CDLL = lambda *_: (_ for _ in ()).throw(OSError('no such file'));"


def test_a_machine_survives_its_record(tmp_path: Path) -> None:
    for path in sorted(MACHINES.glob("*.json")):
        machine = record.read(path)
        (tmp_path / "copy.json").write_text(record.write(machine))
        assert record.read(tmp_path / "copy.json") == machine
        assert record.write(machine) == record.write(record.read(tmp_path / "copy.json"))


@pytest.mark.parametrize(("text", "says"), [("{}", "gpus"), ("[", "the file"), ('{"gpus": [{"index": "x"}]}', "index")])
def test_a_file_that_describes_no_machine(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "machine.json").write_text(text)
    with pytest.raises(BadSetting, match=f"--hardware: .*{says}"):
        record.read(tmp_path / "machine.json")
    with pytest.raises(BadSetting, match="No such file"):
        record.read(tmp_path / "absent.json")


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
    assert host.cpu_flags == {"avx2", "avx512f"}


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
