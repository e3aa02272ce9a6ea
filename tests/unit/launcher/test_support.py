"""On which machines the installed vLLM can run."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from launcher.checkpoint import Checkpoint
from launcher.errors import UnsupportedHardware
from launcher.hardware import Hardware
from launcher.installation import Installation
from launcher.planning.plan import make
from launcher.planning.support import choose_device
from launcher.settings import Settings

from .conftest import with_cards

Machine = Callable[[str], Hardware]
Install = Callable[[str], Installation]
CUDA = Installation("0.33.0", "cuda", ("vllm", "serve"), frozenset(), "")


def test_a_v100_is_refused_with_what_to_do(machine: Machine, installation: Install) -> None:
    with pytest.raises(UnsupportedHardware, match=r"V100.* 7\.0; .* 7\.5 .*docker-compose\.cpu\.yml") as caught:
        choose_device(Settings(), machine("v100"), installation("cuda"))
    assert caught.value.exit_code == 5


def test_the_device_follows_build_and_card(machine: Machine, installation: Install) -> None:
    assert choose_device(Settings(), machine("a10"), installation("cuda")) == "cuda"
    assert choose_device(Settings(), machine("a10"), installation("cpu")) == "cpu"
    assert choose_device(Settings(device="cpu"), machine("none"), installation("cpu")) == "cpu"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("auto", "none", "cuda"), "no NVIDIA GPU is visible"),
        (("cuda", "none", "cuda"), "no NVIDIA GPU is visible"),
        (("cuda", "a10", "cpu"), "GPU image"),
        (("cpu", "a10", "cuda"), "docker-compose.cpu.yml"),
    ],
)
def test_a_build_that_does_not_fit_is_refused(
    machine: Machine, installation: Install, asked: tuple[str, str, str], says: str
) -> None:
    device, card, build = asked
    with pytest.raises(UnsupportedHardware, match=says):
        choose_device(Settings(device=device), machine(card), installation(build))  # type: ignore[arg-type]


def test_a_driver_fault_is_the_reason_given(machine: Machine, installation: Install) -> None:
    hardware = replace(machine("none"), gpu_problem="the NVIDIA driver says: version mismatch")
    with pytest.raises(UnsupportedHardware, match="version mismatch"):
        choose_device(Settings(), hardware, installation("cuda"))


def test_no_avx2(machine: Machine, installation: Install) -> None:
    with pytest.raises(UnsupportedHardware, match="AVX2"):
        choose_device(Settings(), machine("cpu-old"), installation("cpu"))


@pytest.mark.parametrize(
    ("name", "driver", "outcome"),
    [
        ("rtx-4090", ("580.95.05", (13, 0)), "runs"),
        ("rtx-4090", ("575.57.08", (12, 9)), "refused"),
        ("a10", ("570.133.20", (12, 8)), "warned"),
        # The package cuda-compat: an old kernel driver, and a library that runs CUDA 13.
        ("a10", ("570.133.20", (13, 0)), "runs"),
        ("a10", ("580.95.05", None), "runs"),
        ("a10", ("550.54.15", None), "warned"),
    ],
)
def test_a_driver_that_is_too_old_for_cuda_13(
    machine: Machine, ernie: Checkpoint, name: str, driver: tuple[str, tuple[int, int] | None], outcome: str
) -> None:
    version, cuda = driver
    hardware = with_cards(machine(name), 1, driver_version=version, cuda_version=cuda)
    if outcome == "refused":
        with pytest.raises(UnsupportedHardware, match=r"driver 575\.57\.08 is older than 580"):
            choose_device(Settings(), hardware, CUDA)
        return
    assert choose_device(Settings(), hardware, CUDA) == "cuda"
    reasons = "\n".join(make(Settings(), hardware, ernie, "cuda").reasons)
    assert ("warning: driver" in reasons) == (outcome == "warned")
