"""ENGINE_EXTRA_ARGS: what is let through, and what is refused with the right way."""

import shlex
from collections.abc import Callable

import pytest
from launcher.errors import BadSetting
from launcher.installation import Installation, flags

Install = Callable[[str], Installation]


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--max-num-batched-tokens 4096",
        "--max_num_batched_tokens=4096",
        "--no-enable-prefix-caching",
        "--compilation-config.mode 3 -O3",
        "--stream-interval -1",
    ],
)
def test_flags_of_the_installed_vllm_pass(installation: Install, words: str) -> None:
    flags.check(shlex.split(words), installation("cuda").flags, is_moe=False)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--port 9", "ENGINE_PORT"),
        ("--served_model_name=x", "ENGINE_SERVED_NAME"),
        ("--gpu-memory-utilization 0.9", "ENGINE_VRAM_GB"),
        ("--enforce-eager", "ENGINE_EAGER=on"),
        ("-q awq", "ENGINE_QUANTIZATION"),
        ("-tp 2", "ENGINE_TENSOR_PARALLEL"),
        ("--data-parallel-size=2", "ENGINE_REPLICAS"),
        ("--api-server-count 4", "ENGINE_API_SERVERS"),
        ("-asc 4", "ENGINE_API_SERVERS"),
        ("--grpc", "speak HTTP"),
        ("--config /x.yaml", "unchecked"),
        ("-pp 2", "ENGINE_TENSOR_PARALLEL"),
        ("--ssl-keyfile k --ssl-certfile c", "plain HTTP"),
        ("--kv-cache-dtype fp8", "ENGINE_KV_CACHE_DTYPE"),
        ("--load-format dummy", "random numbers"),
        ("--load_format=dummy", "random numbers"),
        ("--device cpu", "ENGINE_DEVICE"),
        ("--num-experts-per-token 2", "no such flag"),
        ("--moe-expert-parallel-size 2", "--enable-expert-parallel"),
        ("--awq-ckpt x", "AWQ checkpoint"),
        ("--swap-space 4", "leave it out"),
        ("--enable-moe", "--enable-moe-shared-loras"),
        ("--enable-expert-parallel", "dense"),
        ("--api-key sk-1", "process list"),
        ("--hf-token=hf_1", "HF_TOKEN"),
        ("--max-num-batched 4096", "did you mean --max-num-batched-tokens"),
        ("--stream-intervall 4", "did you mean --stream-interval"),
        ("--qqqqqqqq", "vllm serve --help=all"),
        ("some/model", "ENGINE_MODEL"),
    ],
)
def test_the_rest_is_refused_with_the_right_way(installation: Install, words: str, says: str) -> None:
    with pytest.raises(BadSetting) as caught:
        flags.check(shlex.split(words), installation("cuda").flags, is_moe=False)
    assert caught.value.variable == "ENGINE_EXTRA_ARGS"
    assert says in str(caught.value)


def test_a_value_that_is_a_secret_is_not_repeated(installation: Install) -> None:
    with pytest.raises(BadSetting) as caught:
        flags.check(["--api-key=sk-secret"], installation("cuda").flags, is_moe=False)
    assert "sk-secret" not in str(caught.value)


def test_moe_flags_pass_on_moe(installation: Install) -> None:
    flags.check(["--enable-expert-parallel"], installation("cuda").flags, is_moe=True)


def test_names_are_not_checked_where_the_sources_are_unknown() -> None:
    flags.check(["--anything", "1"], frozenset(), is_moe=False)
    with pytest.raises(BadSetting):
        flags.check(["--port", "1"], frozenset(), is_moe=False)
