"""VLLM_* in the environment: what is told, what is refused, what is none of anybody's business."""

import pytest
from launcher.errors import BadSetting
from launcher.installation import variables

KNOWN = frozenset({"VLLM_LOGGING_LEVEL", "VLLM_CPU_KVCACHE_SPACE", "VLLM_PORT"})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("VLLM_ATTENTION_BACKEND", "--attention-backend"),
        ("VLLM_USE_V1", "leave it out"),
        ("VLLM_CPU_KVCACHE_SPACE", "ENGINE_KV_CACHE_GB"),
        ("VLLM_USE_MODELSCOPE", "ENGINE_HUB=modelscope"),
        ("VLLM_LOGING_LEVEL", "the installed vLLM knows no VLLM_LOGING_LEVEL"),
    ],
)
def test_what_has_no_effect_is_told(name: str, says: str) -> None:
    (warning,) = variables.check({name: "1"}, KNOWN)
    assert name in warning
    assert says in warning


def test_the_rest_passes() -> None:
    fine = {"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_USE_V1": "", "VLLM_PORT": "5000", "PATH": "/bin"}
    assert variables.check(fine, KNOWN) == []
    assert variables.check({"VLLM_SOMETHING": "1"}, frozenset()) == []


def test_what_would_break_the_stack_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"VLLM_API_KEY: .*GATEWAY_API_KEYS_FILE") as caught:
        variables.check({"VLLM_API_KEY": "sk-secret"}, KNOWN)
    assert "sk-secret" not in str(caught.value)


def test_a_service_of_kubernetes_that_is_named_vllm() -> None:
    links = {"VLLM_SERVICE_HOST": "10.0.0.7", "VLLM_SERVICE_PORT": "8000", "VLLM_PORT_8000_TCP_ADDR": "10.0.0.7"}
    assert variables.check(links, KNOWN) == []
    with pytest.raises(BadSetting, match=r"VLLM_PORT: .*enableServiceLinks: false"):
        variables.check({**links, "VLLM_PORT": "tcp://10.0.0.7:8000"}, KNOWN)
