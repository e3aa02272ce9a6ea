"""The plan for each recorded machine, what settings change of it, and what is refused."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from launcher import checkpoint as checkpoints
from launcher.checkpoint import Checkpoint
from launcher.errors import BadSetting, InsufficientResources
from launcher.hardware import GIB, MIB, Hardware, Process
from launcher.installation import Installation
from launcher.planning import shapes
from launcher.planning.plan import make
from launcher.settings import Settings

from .conftest import MACHINES, assert_it_fits, published, with_cards

Machine = Callable[[str], Hardware]
Install = Callable[[str], Installation]
ERNIE = "baidu/ERNIE-4.5-0.3B-PT"
MIXTURE = "baidu/ERNIE-4.5-21B-A3B-PT"
KV_TOKEN = 18 * 1024


@dataclass(frozen=True)
class Expected:
    """The default plan's numbers for ERNIE-4.5-0.3B; sizes in bytes."""

    engines: int
    api_servers: int
    dtype: str
    attention_backend: str | None
    context_tokens: int
    sequences: int
    batched_tokens: int | None
    kv_cache_bytes: int
    gpu_bytes: int | None
    memory_utilization: float | None


# Found by running the plan, then read through: 40 % of a card (half of a T4, a quarter of a large one) less weights and
# working memory, over the engines.
GOLDEN = {
    "t4": Expected(1, 2, "float16", "TRITON_ATTN", 131072, 256, None, 5512246016, 7817134080, 0.437),
    "a10": Expected(1, 4, "auto", None, 131072, 256, None, 7165011507, 9469899571, 0.353),
    "a10g": Expected(1, 2, "auto", None, 131072, 256, None, 7165011507, 9469899571, 0.353),
    "l4": Expected(1, 4, "auto", None, 131072, 256, None, 7167528089, 9472416153, 0.353),
    "rtx-3090": Expected(1, 4, "auto", None, 131072, 256, None, 7814289766, 10119177830, 0.353),
    "rtx-4090": Expected(1, 4, "auto", None, 131072, 256, None, 7809256601, 10114144665, 0.353),
    "rtx-5090": Expected(1, 4, "auto", None, 131072, 256, None, 11182735308, 13487623372, 0.355),
    "a100-40gb": Expected(1, 4, "auto", None, 131072, 256, None, 14686237440, 16991125504, 0.356),
    "a100-80gb": Expected(1, 4, "auto", None, 131072, 256, None, 31866106624, 34170994688, 0.358),
    "l40s": Expected(1, 4, "auto", None, 131072, 256, None, 16828687923, 19133575987, 0.356),
    "h100": Expected(2, 4, "auto", None, 131072, 512, 8192, 8042838784, 10631118848, 0.112),
    "h200": Expected(2, 4, "auto", None, 131072, 512, 8192, 16175454976, 18763735040, 0.112),
    "h200-x8": Expected(8, 4, "auto", None, 131072, 1024, 8192, 34415676160, 37570740224, 0.224),
    "b200": Expected(2, 4, "auto", None, 131072, 512, 8192, 21385968384, 23974248448, 0.112),
    "cpu-small": Expected(1, 1, "auto", None, 8192, 16, None, 1073741824, None, None),
    "cpu-large": Expected(1, 1, "auto", None, 32768, 64, None, 4294967296, None, None),
}
REFUSED = {"v100": "compute capability 7.0", "cpu-old": "AVX2"}
# Of the backends that vLLM 0.32 has, the one that reads an fp8 KV cache there; None where its own choice does.
FP8_KV_BACKENDS = {
    **dict.fromkeys(("a10", "a10g", "l4", "rtx-3090", "rtx-4090", "a100-40gb", "a100-80gb", "l40s"), "FLASHINFER"),
    "rtx-5090": "FLASHINFER",
    **dict.fromkeys(("h100", "h200", "h200-x8", "b200"), None),
}


def _device(hardware: Hardware) -> str:
    return "cuda" if hardware.gpus else "cpu"


def test_every_recorded_machine_has_its_plan() -> None:
    assert {path.stem for path in MACHINES.glob("*.json")} == {*GOLDEN, *REFUSED}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_plan_of_a_recorded_machine(machine: Machine, ernie: Checkpoint, name: str) -> None:
    hardware = machine(name)
    plan = make(Settings(), hardware, ernie, _device(hardware))
    assert Expected(**{field: getattr(plan, field) for field in Expected.__dataclass_fields__}) == GOLDEN[name]
    assert (plan.front_end, plan.kv_cache_dtype, plan.tensor_parallel) == ("python", "auto", 1)
    assert plan.eager == (not hardware.gpus)
    assert_it_fits(plan, hardware)


@pytest.mark.parametrize(
    ("sequences", "kv_bytes", "measured_gb"),
    [
        (1024, 16e9, 19.14),
        (1024, 9e9, 12.17),
        (1024, 7e9, 10.16),
        (256, 7e9, 9.311),
        (256, 14e9, 16.29),
        (1024, 3e9, 6.166),
    ],
)
def test_the_memory_foreseen_is_what_an_h200_showed(
    machine: Machine, ernie: Checkpoint, sequences: int, kv_bytes: float, measured_gb: float
) -> None:
    # bench/engine/README.md, "GPU memory of it"; fp8 weights below.
    settings = Settings(replicas=1, max_sequences=sequences, kv_cache_gb=kv_bytes / GIB, max_model_len=131072)
    plan = make(settings, machine("h200"), ernie, "cuda")
    assert plan.gpu_bytes == pytest.approx(measured_gb * 1e9, rel=0.01)
    if sequences == 1024 and kv_bytes == 7e9:
        quantized = make(settings.model_copy(update={"quantization": "fp8_per_tensor"}), machine("h200"), ernie, "cuda")
        assert quantized.gpu_bytes == pytest.approx(9.85e9, rel=0.02)


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.startswith("cpu")])
def test_a_budget_is_for_all_engines_of_a_card(machine: Machine, ernie: Checkpoint, name: str) -> None:
    hardware = machine(name)
    plan = make(Settings(vram_gb=8), hardware, ernie, "cuda")
    assert plan.gpu_bytes is not None
    sharing = -(-plan.engines // len(hardware.gpus))
    assert 0 <= 8 * GIB - sharing * plan.gpu_bytes < MIB
    assert plan.context_tokens == 131072
    assert_it_fits(plan, hardware)


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.startswith("cpu")])
def test_an_fp8_kv_cache_by_card(machine: Machine, ernie: Checkpoint, name: str) -> None:
    hardware, settings = machine(name), Settings(kv_cache_dtype="fp8")
    if name == "t4":
        with pytest.raises(BadSetting, match=r"ENGINE_KV_CACHE_DTYPE: .*Tesla T4; use auto"):
            make(settings, hardware, ernie, "cuda")
        return
    plan = make(settings, hardware, ernie, "cuda")
    assert (plan.kv_cache_dtype, plan.attention_backend) == ("fp8", FP8_KV_BACKENDS[name])
    auto = GOLDEN[name]
    assert (plan.kv_cache_bytes, plan.gpu_bytes) == (auto.kv_cache_bytes, auto.gpu_bytes)
    assert f"KV cache for {auto.kv_cache_bytes * 2 // KV_TOKEN} tokens" in "\n".join(plan.reasons)


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.startswith("cpu")])
def test_a_card_that_others_use(machine: Machine, ernie: Checkpoint, name: str) -> None:
    crowded = with_cards(machine(name), 1, memory_free_bytes=6 * GIB, processes=(Process(4711, None),))
    plan = make(Settings(), crowded, ernie, "cuda")
    assert plan.engines == 1
    assert plan.context_tokens == 131072
    assert "(processes 4711)" in "\n".join(plan.reasons)
    assert_it_fits(plan, crowded)
    with pytest.raises(InsufficientResources, match=r"may give 942 MiB.*4711"):
        make(Settings(), with_cards(crowded, 1, memory_free_bytes=GIB), ernie, "cuda")


def test_a_24_gb_card_stays_below_the_ceiling(machine: Machine, ernie: Checkpoint) -> None:
    # The ceiling that the project set itself for a 24 GB card.
    plan = make(Settings(), machine("a10"), ernie, "cuda")
    assert (plan.gpu_bytes or 0) <= 10.5e9


def test_a_t4_computes_in_float16(machine: Machine, ernie: Checkpoint) -> None:
    assert make(Settings(), machine("t4"), ernie, "cuda").dtype == "float16"
    with pytest.raises(BadSetting, match="ENGINE_DTYPE: Tesla T4 has no bfloat16"):
        make(Settings(dtype="bfloat16"), machine("t4"), ernie, "cuda")


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


def test_an_explicit_kv_cache_is_taken(machine: Machine, ernie: Checkpoint) -> None:
    assert make(Settings(kv_cache_gb=4.5), machine("a10"), ernie, "cuda").kv_cache_bytes == int(4.5 * GIB)
    with pytest.raises(InsufficientResources, match="ENGINE_KV_CACHE_GB"):
        make(Settings(kv_cache_gb=40), machine("a10"), ernie, "cuda")


@pytest.mark.parametrize("replicas", [2, None])
def test_a_kv_cache_that_is_asked_for_stays_in_the_budget(machine: Machine, ernie: Checkpoint, replicas: int) -> None:
    settings = Settings(kv_cache_gb=20, vram_gb=30, replicas=replicas)
    if replicas:
        with pytest.raises(InsufficientResources, match=r"ENGINE_KV_CACHE_GB .*ENGINE_VRAM_GB allows 30\.0 GiB"):
            make(settings, machine("h200"), ernie, "cuda")
        return
    plan = make(settings, machine("h200"), ernie, "cuda")
    assert (plan.engines, plan.kv_cache_bytes) == (1, 20 * GIB)
    assert (plan.gpu_bytes or 0) <= 30 * GIB


def test_streams_that_do_not_fit_are_named(machine: Machine, ernie: Checkpoint) -> None:
    with pytest.raises(InsufficientResources, match="lower ENGINE_MAX_SEQUENCES"):
        make(Settings(max_sequences=65536), machine("t4"), ernie, "cuda")


@pytest.mark.parametrize(("name", "device"), [("a10", "cuda"), ("none", "cpu")])
def test_a_context_beyond_the_models_is_refused(machine: Machine, ernie: Checkpoint, name: str, device: str) -> None:
    known = replace(ernie, longest_context_tokens=131072)
    with pytest.raises(BadSetting, match="ENGINE_MAX_MODEL_LEN: 131073, but the model goes to 131072"):
        make(Settings(max_model_len=131073), machine(name), known, device)
    stretched = Settings(max_model_len=131073, extra_args=("--hf-overrides", "{}"))
    assert make(stretched, machine("a10"), known, "cuda").context_tokens == 131073


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


def test_several_http_processes_by_setting(machine: Machine, ernie: Checkpoint) -> None:
    plan = make(Settings(api_servers=3), machine("h200"), ernie, "cuda")
    assert plan.api_servers == 3
    assert any("3 processes an engine" in reason for reason in plan.reasons)


def test_the_rust_front_end_has_one_process(machine: Machine, ernie: Checkpoint) -> None:
    plan = make(Settings(front_end="rust", api_servers=4), machine("h200"), ernie, "cuda")
    assert (plan.front_end, plan.api_servers) == ("rust", 1)
    assert plan.environment == {"VLLM_USE_RUST_FRONTEND": "1"}
    with pytest.raises(BadSetting, match="ENGINE_FRONT_END"):
        make(Settings(front_end="rust"), machine("cpu-large"), ernie, "cpu")


def test_several_engines_on_a_cpu_need_memory_for_each(machine: Machine, ernie: Checkpoint) -> None:
    assert make(Settings(replicas=2), machine("cpu-large"), ernie, "cpu").engines == 2
    with pytest.raises(InsufficientResources, match="6 engines need"):
        make(Settings(replicas=6), machine("cpu-small"), ernie, "cpu")
    with pytest.raises(BadSetting, match="ENGINE_TENSOR_PARALLEL"):
        make(Settings(tensor_parallel=2), machine("cpu-large"), ernie, "cpu")


def test_the_published_shapes(model: Path) -> None:
    # The test model has the config of ERNIE-4.5-0.3B.
    own, known = checkpoints.inspect(model), published(ERNIE)
    assert replace(known, folder=own.folder, weight_bytes=own.weight_bytes) == own
    mixture = published(MIXTURE)
    assert (mixture.is_moe, mixture.experts, mixture.kv_bytes_per_token("auto")) == (True, 64, 57344)
    assert shapes.known("owner/unknown") is None


def test_every_plan_says_why(machine: Machine, ernie: Checkpoint) -> None:
    for name in GOLDEN:
        hardware = machine(name)
        reasons = make(Settings(), hardware, ernie, _device(hardware)).reasons
        text = "\n".join(reasons)
        assert all(words in text for words in ("KV cache for", "context", "engine", "weights"))
        assert not any("\n" in reason for reason in reasons)
