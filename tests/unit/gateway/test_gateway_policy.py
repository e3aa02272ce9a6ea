"""Policy: what is let through, what is refused, and under which name."""

import json
from typing import Any

import orjson
import pytest
from gateway.errors import InvalidRequest
from gateway.policy import Clamps, Policy
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.volume.refusals import lone

POLICY = Policy(Clamps(max_tokens=4096, max_choices=8))
CHAT_PATH = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> bytes:
    return json.dumps({"messages": HELLO, **fields}).encode()


def refused(body: bytes, path: str = CHAT_PATH) -> str | None:
    with pytest.raises(InvalidRequest) as error:
        POLICY.check(path, body)
    assert error.value.message
    return error.value.param


# As in the facts about vLLM: each has taken a server down or leaked from one.
NEVER = ["chat_template", "chat_template_kwargs", "prompt_embeds", "mm_processor_kwargs", "media_io_kwargs",
         "structured_outputs", "guided_regex", "guided_json", "guided_grammar", "guided_choice", "logit_bias",
         "bad_words", "allowed_token_ids", "prompt_logprobs", "min_tokens", "priority", "request_id", "cache_salt",
         "kv_transfer_params", "vllm_xargs", "tools", "tool_choice", "documents", "add_generation_prompt",
         "return_token_ids", "stop_token_ids", "skip_special_tokens", "truncate_prompt_tokens", "\u2028",
         "x" * 99]  # fmt: skip


@pytest.mark.parametrize("name", NEVER)
@pytest.mark.parametrize(("path", "base"), [(CHAT_PATH, {"messages": HELLO}), ("/v1/completions", {"prompt": "x"})])
def test_dangerous_fields_are_refused_by_name(path: str, base: dict[str, Any], name: str) -> None:
    for value in ("x", 1, True, {}, [], {"a": {"b": 1}}):
        assert refused(json.dumps({**base, name: value}).encode(), path) == name[:64]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("n", [0, -1, 9, 1_000_000, "1", True, 1.0, []]),
        ("max_tokens", [0, -1, 4097, "5", True, 1.5, 2**70, {}]),
        ("max_completion_tokens", [0, 4097, "5"]),
        ("temperature", [-0.1, 2.1, "1", True, []]),
        ("top_p", [0, 1.1, -1, "x"]),
        ("top_k", [-2, 2**31, 1.5]),
        ("min_p", [-0.1, 1.1]),
        ("presence_penalty", [-2.1, 2.1]),
        ("frequency_penalty", ["0"]),
        ("repetition_penalty", [0, 2.1]),
        ("seed", [1.5, "1", 2**63, -(2**63) - 1]),
        ("stop", ["", [], ["a"] * 17, ["a" * 257], [1], {"a": 1}, 5, [["a"]], [None]]),
        ("stream", ["true", 1, 0, "false"]),
        ("stream_options", [1, [], {"continuous_usage_stats": True}, {"include_usage": "yes"}]),
        ("logprobs", [1, "true"]),
        ("top_logprobs", [-1, 21]),
        ("response_format", ["text", {"type": "json_schema"}, {"type": "json_object", "json_schema": {"a": 1}}]),
        ("model", [1, "m" * 257, ["m"]]),
        ("user", [1, "u" * 257]),
        ("ignore_eos", ["yes"]),
        ("messages", [[], "hi", {}, [1], [[]], [{"role": "user", "content": "x"}] * 1025]),
    ],
)
def test_out_of_bounds_is_refused_by_name(field: str, values: list[Any]) -> None:
    for value in values:
        param = refused(chat(**{field: value}))
        assert param is not None
        assert param.partition(".")[0].partition("[")[0] == field


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "ernie-demo", "temperature": 0, "max_tokens": 4096, "n": 8, "seed": -(2**63), "stop": "x"},
        {"temperature": 2.0, "top_p": 1, "top_k": -1, "min_p": 0, "stop": ["a", "b"], "user": "u", "logprobs": True},
        {"top_logprobs": 20, "presence_penalty": -2, "frequency_penalty": 2, "repetition_penalty": 1.1},
        {"response_format": {"type": "json_object"}, "max_completion_tokens": 1, "ignore_eos": True},
        {"temperature": None, "stop": None, "tools": None, "logit_bias": None, "chat_template": None},
    ],
)
def test_honest_fields_pass_untouched(fields: dict[str, Any]) -> None:
    body = chat(**fields)
    assert POLICY.check(CHAT_PATH, body).body == body


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({"role": "developer", "content": "x"}, "messages[0].role"),
        ({"role": ["user"], "content": "x"}, "messages[0].role"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": []}, "messages[0].content"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text", "text": "x", "url": "u"}]}, "messages[0].content[0].url"),
        ({"role": "user", "content": [{"type": "text", "text": ["x"]}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}] * 17}, "messages[0].content"),
        ({"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}, "messages[0].tool_calls"),
        ({"role": "user", "content": "x", "name": "n" * 300}, "messages[0].name"),
    ],
)  # fmt: skip
def test_messages_are_text_only(message: dict[str, Any], param: str) -> None:
    assert refused(chat(messages=[message])) == param


def test_an_answer_can_be_sent_back_as_it_came() -> None:
    echoed = {"role": "assistant", "content": "x", "refusal": None, "tool_calls": [], "reasoning": None, "audio": None}
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "🔥"}], "name": "me"}
    body = chat(messages=[parts, echoed, {"role": "assistant", "content": None}, {"role": "system", "content": "s"}])
    assert POLICY.check(CHAT_PATH, body).body == body


@pytest.mark.parametrize(
    ("fields", "param"),
    [({}, "prompt"), ({"prompt": None}, "prompt"), ({"prompt": [1, 2]}, "prompt"), ({"prompt": ["a"] * 9}, "prompt"),
     ({"prompt": [[1]]}, "prompt"), ({"prompt": "a", "messages": HELLO}, "messages"),
     ({"prompt": "a", "best_of": 9}, "best_of"), ({"prompt": "a", "logprobs": 21}, "logprobs"),
     ({"prompt": "a", "echo": True}, "echo"), ({"prompt": "a", "suffix": "b"}, "suffix")],
)  # fmt: skip
def test_completions_have_fields_of_their_own(fields: dict[str, Any], param: str) -> None:
    assert refused(json.dumps(fields).encode(), "/v1/completions") == param


def test_missing_messages_are_named() -> None:
    assert refused(b"{}") == "messages"
    assert refused(b'{"messages":null}') == "messages"


@pytest.mark.parametrize("space", ["", " ", "\n\t "])
def test_usage_is_asked_for_and_nothing_else_changes(space: str) -> None:
    body = (space + "{" + space + '"stream":true,"messages":[{"role":"user","content":"{\\"a\\":1} 🔥"}]}').encode()
    checked = POLICY.check(CHAT_PATH, body)
    assert (checked.stream, checked.hide_usage) == (True, True)
    assert checked.body.replace(b'"stream_options":{"include_usage":true},', b"") == body
    assert orjson.loads(checked.body) == {**orjson.loads(body), "stream_options": {"include_usage": True}}


def test_usage_is_left_to_whoever_asks() -> None:
    body = chat(stream=True, stream_options={"include_usage": True})
    checked = POLICY.check(CHAT_PATH, body)
    assert (checked.stream, checked.hide_usage, checked.body) == (True, False, body)


@pytest.mark.parametrize("stream", [True, False])
def test_half_a_surrogate_pair_is_refused_wherever_it_stands(*, stream: bool) -> None:
    for body in lone(stream=stream).values():
        assert b"\\ud83d" in body
        assert refused(body) is None


def test_a_whole_surrogate_pair_reaches_the_engine_as_it_came() -> None:
    body = b'{"messages":[{"role":"user","content":"\\ud83d\\udd25"}],"stop":"\\ud83d\\udd25"}'
    assert POLICY.check(CHAT_PATH, body).body == body


@pytest.mark.parametrize(
    ("message", "param"),
    [({"role": None, "content": "x"}, "messages[0].role"),
     ({"role": "user", "content": [{"type": "text", "text": None}]}, "messages[0].content[0].text")],
)  # fmt: skip
def test_null_is_missing_in_a_message_too(message: dict[str, Any], param: str) -> None:
    assert refused(chat(messages=[message])) == param


def test_last_of_two_equal_keys_counts_as_in_the_engine() -> None:
    assert POLICY.check(CHAT_PATH, chat()[:-1] + b',"stream":true,"stream":false}').stream is False
    assert refused(chat()[:-1] + b',"n":1,"n":1000000}') == "n"


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"x":' * 5000 + b"1" + b"}" * 5000,
        json.dumps({"messages": HELLO, "stop": ["a"] * 500_000}).encode(),
        b'{"x":[' + b"{}," * 690_000 + b"{}]}",
        json.dumps({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 16}] * 1025}).encode(),
        json.dumps({"messages": HELLO * 1024, "x": 1}).encode(),
    ],
    ids=["deep list", "deep object", "stops", "objects", "parts", "messages"],
)
def test_hostile_bodies_are_refused(body: bytes) -> None:
    """How quickly is measured, by tests/volume/refusals.py."""
    refused(body)


@pytest.mark.parametrize("piece", [b"[]", b"{}", b'""', b'"\\\\"', b'"\\""'])
def test_more_pieces_than_any_request_needs_are_refused_before_they_are_made(
    piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.policy.orjson.loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(InvalidRequest, match="holds more than"):
        POLICY.check(CHAT_PATH, b'{"messages":[' + b",".join([piece] * 200_000) + b"]}")


@pytest.mark.parametrize("text", ["[{" * 200_000, '"{}",\\' * 150_000, "\\" * 300_000, '\\"' * 300_000])
def test_a_text_full_of_brackets_and_quotes_is_no_such_body(text: str) -> None:
    assert POLICY.check(CHAT_PATH, chat(messages=[{"role": "user", "content": text}])).body


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=12), inner, max_size=5),
    max_leaves=20,
)
names = st.sampled_from(["messages", "stop", "n", "stream", "stream_options", "temperature", "response_format", "role"])


@settings(max_examples=60)
@given(st.dictionaries(names | st.text(max_size=8), json_values, max_size=6))
def test_any_json_is_either_checked_or_refused(fields: dict[str, Any]) -> None:
    body = json.dumps(fields).encode()
    for path in (CHAT_PATH, "/v1/completions"):
        try:
            checked = POLICY.check(path, body)
        except InvalidRequest as error:
            assert error.message  # noqa: PT017  (both ends are right)
        else:
            assert orjson.loads(checked.body)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_checked(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        POLICY.check(CHAT_PATH, body)
