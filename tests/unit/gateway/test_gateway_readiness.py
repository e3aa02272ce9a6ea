"""What a sound text is, and what vLLM's counters say."""

import pytest
from gateway.readiness.counters import read_counters
from gateway.readiness.trial import Trial, TrialFault, check_text

UNSOUND = {
    "empty": ("", "stop"),
    "was empty": ("  \n", "length"),
    "U+FFFD": ("a\ufffdb", "length"),
    "broken characters": ("a\ufffd", "stop"),
    "special tokens": ("Hi</s>", "stop"),
    "held special tokens": ("<|im_start|>", "length"),
    "special": ("<mask:3>", "length"),
    "repeated itself": ("x" * 30, "length"),
    "without end": ("Well, " + "ha " * 12 + "ha", "length"),
    "finish reason": ("Hi", None),
}


@pytest.mark.parametrize(("fault", "text", "reason"), [(fault, *rest) for fault, rest in UNSOUND.items()])
def test_unsound_texts_are_named(fault: str, text: str, reason: str | None) -> None:
    with pytest.raises(TrialFault, match=fault.replace("+", r"\+")):
        check_text(Trial(text, reason, 0.1))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Hello! How can I help?", "stop"),
        ("你好, 我是文心一言", "length"),
        ("Hi", "stop"),
        ("你\ufffd", "length"),  # the limit fell into a character
        ("a < b | c > d", "stop"),
        ("no no no no", "stop"),
        ("| --- | --- |\n| 1 | 2 |", "stop"),
    ],
)
def test_sound_texts_pass(text: str, reason: str) -> None:
    check_text(Trial(text, reason, 0.1))


def test_counters_are_summed_over_processes() -> None:
    page = b"""# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.5e+06
vllm:generation_tokens_total{engine="0",model_name="m"} 7.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
process_start_time_seconds 12.5
"""
    counters = read_counters(page)
    assert counters is not None
    assert (counters.running, counters.waiting, counters.tokens, counters.started_at) == (5, 1, 1_500_007, 12.5)


@pytest.mark.parametrize("page", [b"", b"<html>", b"process_start_time_seconds 1\n", b"vllm:num_requests_running - \n"])
def test_other_pages_say_nothing(page: bytes) -> None:
    assert read_counters(page) is None
