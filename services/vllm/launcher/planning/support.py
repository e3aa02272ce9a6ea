"""Whether the installed vLLM can run on this machine at all."""

from launcher.errors import UnsupportedHardware
from launcher.hardware import Gpu, Hardware, Host
from launcher.installation import Installation
from launcher.planning import profiles
from launcher.settings import Settings

_CPU_IMAGE = "use the CPU image (docker-compose.cpu.yml)"


def choose_device(settings: Settings, hardware: Hardware, installation: Installation) -> str:
    """Return cuda or cpu. Raises UnsupportedHardware where the installed vLLM cannot use what is there."""
    if installation.build == "cpu":
        if settings.device == "cuda":
            raise UnsupportedHardware("ENGINE_DEVICE=cuda, but the installed vLLM is the CPU build; use the GPU image")
        _check_cpu(hardware.host)
        return "cpu"
    if settings.device == "cpu":
        raise UnsupportedHardware(f"ENGINE_DEVICE=cpu, but the installed vLLM is the CUDA build; {_CPU_IMAGE}")
    if not hardware.gpus:
        if hardware.gpu_problem:
            raise UnsupportedHardware(
                f"{hardware.gpu_problem}; see what nvidia-smi says on the host (after an update of the driver, restart"
                f" it) and in the container (NVIDIA Container Toolkit), or {_CPU_IMAGE}"
            )
        raise UnsupportedHardware(
            f"no NVIDIA GPU is visible; give the container one (NVIDIA Container Toolkit), or {_CPU_IMAGE}"
        )
    profile(hardware.gpus[0])
    _check_driver(hardware.gpus[0])
    return "cuda"


def profile(gpu: Gpu) -> profiles.GpuProfile:
    """The card's profile. Raises UnsupportedHardware for a card that vLLM no longer runs on."""
    found = profiles.for_gpu(gpu)
    if found is None:
        own, lowest = (".".join(map(str, c)) for c in (gpu.compute_capability, profiles.LOWEST_COMPUTE_CAPABILITY))
        raise UnsupportedHardware(
            f"{gpu.name} has compute capability {own}; vLLM with CUDA 13 needs {lowest} (T4, RTX 20) or newer."
            " Use another card, or the CPU image (docker-compose.cpu.yml)"
        )
    return found


def _check_driver(gpu: Gpu) -> None:
    complaint = driver_complaint(gpu)
    if complaint and any(word in gpu.name for word in profiles.CONSUMER_CARDS):
        raise UnsupportedHardware(f"{complaint}. Install a newer driver, or {_CPU_IMAGE}")


def driver_complaint(gpu: Gpu) -> str:
    """What is wrong with the driver; empty if nothing is. The library's CUDA version counts, since it may be newer."""
    if gpu.cuda_version is not None and gpu.cuda_version >= profiles.LOWEST_CUDA:
        return ""
    major = gpu.driver_version.partition(".")[0]
    if gpu.cuda_version is None and (not major.isdigit() or int(major) >= profiles.LOWEST_DRIVER):
        return ""
    return (
        f"driver {gpu.driver_version} is older than {profiles.LOWEST_DRIVER}, which CUDA 13 needs; only data center"
        " cards run it with the package cuda-compat: set VLLM_ENABLE_CUDA_COMPATIBILITY=1"
    )


def _check_cpu(host: Host) -> None:
    if host.machine == "x86_64" and "avx2" not in host.cpu_flags:
        raise UnsupportedHardware("this CPU has no AVX2, which vLLM needs; use a CPU of 2013 or later, or a GPU")
