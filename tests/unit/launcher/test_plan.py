"""The plan for each recorded card and for a CPU, and what it refuses."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from launcher import checkpoint as checkpoints
from launcher import plan as plans
from launcher.checkpoint import Checkpoint
from launcher.errors import BadSetting, InsufficientResources, UnsupportedHardware
from launcher.hardware import GIB, MIB, Hardware
from launcher.installation import Installation
from launcher.plan import choose_device, make
from launcher.settings import Settings

Machine = Callable[[str], Hardware]
Install = Callable[[str], Installation]
ERNIE_BYTES = 721_514_496
KV_TOKEN = 18 * 1024


@pytest.fixture
def ernie(model: Path) -> Checkpoint:
    """The shape and size of ERNIE-4.5-0.3B-PT."""
    return replace(checkpoints.inspect(model), weight_bytes=ERNIE_BYTES)


@pytest.mark.parametrize("card", ["a10", "h200"])
def test_a_card_gets_the_whole_context_within_a_fair_share(machine: Machine, ernie: Checkpoint, card: str) -> None:
    hardware = machine(card)
    plan = make(Settings(), hardware, ernie, "cuda")
    assert plan.context_tokens == 131072
    assert plan.kv_cache_bytes >= 131072 * KV_TOKEN
    assert not plan.eager
    assert plan.memory_utilization is not None
    assert 0 < plan.memory_utilization < 0.5


def test_a_24_gb_card_stays_below_the_ceiling(machine: Machine, ernie: Checkpoint) -> None:
    # needs.md N4: 10.5 GB on a 24 GB card, with 2 GiB of working memory in the profile.
    plan = make(Settings(), machine("a10"), ernie, "cuda")
    assert plan.kv_cache_bytes + ERNIE_BYTES + 2 * GIB <= 10.5e9


def test_a_t4_computes_in_float16(machine: Machine, ernie: Checkpoint) -> None:
    assert make(Settings(), machine("t4"), ernie, "cuda").dtype == "float16"
    with pytest.raises(BadSetting, match="ENGINE_DTYPE: Tesla T4 has no bfloat16"):
        make(Settings(dtype="bfloat16"), machine("t4"), ernie, "cuda")


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
    hardware = replace(machine("none"), gpu_problem="nvidia-smi ended with 18: version mismatch")
    with pytest.raises(UnsupportedHardware, match="version mismatch"):
        choose_device(Settings(), hardware, installation("cuda"))


def test_no_vllm_and_no_avx2(machine: Machine, installation: Install) -> None:
    with pytest.raises(UnsupportedHardware, match="vLLM is not installed"):
        choose_device(Settings(), machine("none"), None)
    hardware = machine("none")
    old = replace(hardware, host=replace(hardware.host, cpu_flags=frozenset({"sse4_2"})))
    with pytest.raises(UnsupportedHardware, match="AVX2"):
        choose_device(Settings(), old, installation("cpu"))


def test_a_budget_is_kept(machine: Machine, ernie: Checkpoint) -> None:
    plan = make(Settings(vram_gb=6), machine("h200"), ernie, "cuda")
    assert plan.kv_cache_bytes + ERNIE_BYTES + 3 * GIB == 6 * GIB
    assert plan.context_tokens == 131072


def test_a_small_budget_shortens_the_context_unless_one_is_demanded(machine: Machine, ernie: Checkpoint) -> None:
    plan = make(Settings(vram_gb=3), machine("a10"), ernie, "cuda")
    assert 1000 < plan.context_tokens < 131072
    assert plan.context_tokens * KV_TOKEN <= plan.kv_cache_bytes
    with pytest.raises(InsufficientResources, match="ENGINE_MAX_MODEL_LEN") as caught:
        make(Settings(vram_gb=3, max_model_len=131072), machine("a10"), ernie, "cuda")
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("vram_gb", [2, 30])
def test_a_budget_that_cannot_be_is_refused(machine: Machine, ernie: Checkpoint, vram_gb: float) -> None:
    with pytest.raises(InsufficientResources, match="ENGINE_VRAM_GB"):
        make(Settings(vram_gb=vram_gb), machine("a10"), ernie, "cuda")


def test_a_card_that_others_use(machine: Machine, ernie: Checkpoint) -> None:
    hardware = machine("a10")
    crowded = replace(hardware, gpus=(replace(hardware.gpus[0], memory_free_bytes=5 * GIB),))
    plan = make(Settings(), crowded, ernie, "cuda")
    assert plan.kv_cache_bytes + ERNIE_BYTES + 2 * GIB <= 5 * GIB
    full = replace(hardware, gpus=(replace(hardware.gpus[0], memory_free_bytes=GIB),))
    with pytest.raises(InsufficientResources):
        make(Settings(), full, ernie, "cuda")


def test_an_explicit_kv_cache_is_taken(machine: Machine, ernie: Checkpoint) -> None:
    assert make(Settings(kv_cache_gb=4.5), machine("a10"), ernie, "cuda").kv_cache_bytes == int(4.5 * GIB)
    with pytest.raises(InsufficientResources, match="ENGINE_KV_CACHE_GB"):
        make(Settings(kv_cache_gb=40), machine("a10"), ernie, "cuda")


def test_ernie_on_a_small_cpu(machine: Machine, ernie: Checkpoint) -> None:
    plan = make(Settings(), machine("none"), ernie, "cpu")
    assert (plan.device, plan.dtype, plan.context_tokens, plan.sequences) == ("cpu", "auto", 8192, 16)
    assert plan.kv_cache_bytes == GIB
    assert plan.eager
    assert plan.memory_utilization is None
    assert not plan.environment
    assert not make(Settings(eager="off"), machine("none"), ernie, "cpu").eager


def test_a_tiny_model_on_a_cpu(machine: Machine, ernie: Checkpoint) -> None:
    tiny = replace(ernie, weight_bytes=8 * MIB, context_tokens=2048, kv_values_per_token=1536)
    plan = make(Settings(), machine("none"), tiny, "cpu")
    assert (plan.dtype, plan.context_tokens) == ("float32", 2048)
    assert plan.kv_cache_bytes <= GIB // 4
    assert plan.environment == {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}


def test_a_cpu_context_that_is_asked_for_enlarges_the_cache(machine: Machine, ernie: Checkpoint) -> None:
    plan = make(Settings(max_model_len=131072), machine("none"), ernie, "cpu")
    assert plan.kv_cache_bytes >= 131072 * KV_TOKEN
    with pytest.raises(InsufficientResources, match="ENGINE_KV_CACHE_GB"):
        make(Settings(max_model_len=131072, kv_cache_gb=1), machine("none"), ernie, "cpu")


def test_too_little_memory_is_refused_with_the_sum(machine: Machine, ernie: Checkpoint) -> None:
    hardware = machine("none")
    small = replace(hardware, host=replace(hardware.host, memory_available_bytes=2 * GIB))
    with pytest.raises(InsufficientResources, match=r"needs 3\.9 GiB.*2\.0 GiB is available"):
        make(Settings(), small, ernie, "cpu")


def test_dockers_default_shared_memory_is_refused(machine: Machine, ernie: Checkpoint) -> None:
    hardware = machine("none")
    docker = replace(hardware, host=replace(hardware.host, shared_memory_bytes=64 * MIB))
    with pytest.raises(InsufficientResources, match="shm_size: 256m"):
        make(Settings(), docker, ernie, "cpu")


def test_quantization_that_cannot_work_is_refused(machine: Machine, ernie: Checkpoint) -> None:
    with pytest.raises(BadSetting, match="ENGINE_QUANTIZATION: awq needs a checkpoint"):
        make(Settings(quantization="awq"), machine("a10"), ernie, "cuda")
    with pytest.raises(BadSetting, match="needs an NVIDIA GPU"):
        make(Settings(quantization="fp8_per_tensor"), machine("none"), ernie, "cpu")
    make(Settings(quantization="awq"), machine("a10"), replace(ernie, quantization="awq"), "cuda")


def test_every_plan_says_why(machine: Machine, ernie: Checkpoint) -> None:
    for card, device in (("t4", "cuda"), ("a10", "cuda"), ("h200", "cuda"), ("none", "cpu")):
        reasons = "\n".join(plans.make(Settings(), machine(card), ernie, device).reasons)
        assert "KV cache for" in reasons
        assert "context" in reasons
