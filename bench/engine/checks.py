"""The requests that both front ends get: data, each with a name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
JSON = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Check:
    """One request; `values` names what has to be equal beside status and shape."""

    name: str
    path: str = CHAT
    body: bytes | None = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    values: tuple[str, ...] = ()


# An engine whose front end lets these through may end of them: they come last.
RISKY = frozenset(
    {
        "logit_bias beyond the vocabulary",
        "allowed_token_ids",
        "token id beyond the vocabulary",
        "token id negative",
        "regex broken",
        "schema broken",
        "lone surrogate",
        "deep JSON",
        "n 100000",
        "prompt embeddings",
        "kv_transfer_params",
        "POST /sleep",
        "POST /pause",
    }
)


def requests(model: str, words: str) -> list[Check]:
    """Return all requests; `words` is a greedy answer to `QUESTION`, for the checks of `stop`."""
    return [*_answers(model, words), *_streams(model), *_refusals(model), *_raw(model), *_paths()]


QUESTION = "你好, tell me something."


def _chat(name: str, model: str, /, *, values: tuple[str, ...] = (), **fields: Any) -> Check:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 6,
        "temperature": 0,
        **fields,
    }
    body = {key: value for key, value in body.items() if value is not ...}
    return Check(name, body=json.dumps(body).encode(), values=values or ("finish",))


def _text(name: str, model: str, /, *, values: tuple[str, ...] = (), **fields: Any) -> Check:
    body = {"model": model, "prompt": QUESTION, "max_tokens": 6, "temperature": 0, **fields}
    return Check(name, TEXT, json.dumps(body).encode(), values=values or ("finish",))


_WHOLE = ("text", "finish", "usage")


def _answers(model: str, words: str) -> list[Check]:
    middle = words[len(words) // 2 :][:3] or "a"
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    roles = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    return [
        _chat("chat", model, values=_WHOLE),
        _text("completion", model, values=_WHOLE),
        _chat("chat of several roles", model, messages=roles, values=_WHOLE),
        _chat("content as parts", model, messages=parts, values=_WHOLE),
        _chat("role developer", model, messages=[{"role": "developer", "content": "a"}, roles[1]], values=_WHOLE),
        _chat("role unknown", model, messages=[{"role": "king", "content": "a"}], values=_WHOLE),
        _chat("name of the author", model, messages=[{**roles[1], "name": "n"}], values=_WHOLE),
        _chat("max_completion_tokens", model, max_tokens=..., max_completion_tokens=5, values=_WHOLE),
        _chat("stop as a string", model, max_tokens=24, stop=middle, values=(*_WHOLE, "stop_reason")),
        _chat("stop as a list", model, max_tokens=24, stop=["@@@", middle], values=(*_WHOLE, "stop_reason")),
        _chat("stop included", model, max_tokens=24, stop=middle, include_stop_str_in_output=True, values=_WHOLE),
        _text("stop, completion", model, max_tokens=24, stop=middle, values=("finish",)),
        _chat("ignore_eos", model, max_tokens=64, ignore_eos=True, values=("finish", "usage")),
        _chat("min_tokens", model, max_tokens=40, min_tokens=40, values=("finish", "usage")),
        _chat("logprobs", model, logprobs=True, values=_WHOLE),
        _chat("logprobs with top 3", model, logprobs=True, top_logprobs=3, values=_WHOLE),
        _text("logprobs, completion", model, logprobs=2, values=_WHOLE),
        _chat("n of 2", model, n=2, temperature=1, seed=1, values=("finish", "usage", "choices")),
        _chat("seed", model, temperature=1, seed=7, max_tokens=16, values=("text",)),
        _chat("top_p and top_k", model, temperature=1, top_p=0.01, top_k=1, values=("text",)),
        _chat("penalties", model, presence_penalty=1.5, frequency_penalty=1.5, repetition_penalty=1.1, values=_WHOLE),
        _chat("logit_bias", model, logit_bias={"100": 100}, max_tokens=3, values=_WHOLE),
        _chat("user, metadata, store", model, user="u", metadata={"a": "b"}, store=False, values=_WHOLE),
        _chat("answer as JSON", model, max_tokens=20, response_format={"type": "json_object"}),
        _chat(
            "answer by a schema",
            model,
            max_tokens=20,
            response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        ),
        _chat("tools without a parser", model, tools=[tool]),
        _chat("tools, choice none", model, tools=[tool], tool_choice="none"),
        _text("prompt as token ids", model, prompt=[5, 6, 7, 8], values=_WHOLE),
        _text("prompt as a list", model, prompt=["a", "b"], values=("finish", "usage", "choices")),
        _text("echo", model, echo=True, values=_WHOLE),
        _chat("no temperature", model, temperature=..., values=("usage",)),
        _chat("no model", model, model=..., values=_WHOLE),
        _chat(
            "continue_final_message",
            model,
            messages=roles[:3],
            continue_final_message=True,
            add_generation_prompt=False,
            values=_WHOLE,
        ),
        _chat("return_token_ids", model, return_token_ids=True, values=_WHOLE),
    ]


def _streams(model: str) -> list[Check]:
    usage = {"include_usage": True}
    return [
        _chat("stream", model, stream=True, values=_WHOLE),
        _chat("stream with usage", model, stream=True, stream_options=usage, values=_WHOLE),
        _chat(
            "stream with usage all along",
            model,
            stream=True,
            stream_options={**usage, "continuous_usage_stats": True},
            values=_WHOLE,
        ),
        _chat("stream of one token", model, stream=True, stream_options=usage, max_tokens=1, values=_WHOLE),
        _chat("stream with logprobs", model, stream=True, logprobs=True, top_logprobs=1, values=_WHOLE),
        _chat(
            "stream of n 2", model, stream=True, n=2, temperature=1, stream_options=usage, values=("finish", "usage")
        ),
        _chat("stream with stop", model, stream=True, stop=["a", "的", "e"], max_tokens=40, values=("finish",)),
        _text("stream, completion", model, stream=True, stream_options=usage, values=_WHOLE),
        _chat("stream, unknown model", "no-such-model", stream=True),
        _chat("stream, prompt too long", model, stream=True, messages=[{"role": "user", "content": "a b " * 140000}]),
        _chat("stream_options without stream", model, stream_options=usage),
    ]


def _refusals(model: str) -> list[Check]:
    long = [{"role": "user", "content": "a b " * 140000}]
    image = [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/a.png"}}]
    bad: dict[str, dict[str, Any]] = {
        "messages missing": {"messages": ...},
        "messages empty": {"messages": []},
        "messages a string": {"messages": "a"},
        "message without role": {"messages": [{"content": "a"}]},
        "content a number": {"messages": [{"role": "user", "content": 1}]},
        "content null": {"messages": [{"role": "user", "content": None}]},
        "image": {"messages": [{"role": "user", "content": image}]},
        "prompt too long": {"messages": long},
        "max_tokens beyond the context": {"max_tokens": 10**6},
        "max_tokens 0": {"max_tokens": 0},
        "max_tokens -1": {"max_tokens": -1},
        "max_tokens a string": {"max_tokens": "six"},
        "max_tokens 1e99": {"max_tokens": 1e99},
        "temperature -1": {"temperature": -1},
        "temperature 100": {"temperature": 100},
        "temperature a string": {"temperature": "hot"},
        "top_p 2": {"top_p": 2},
        "top_p 0": {"top_p": 0},
        "top_k -5": {"top_k": -5},
        "n 0": {"n": 0},
        "n 100000": {"n": 100000},
        "presence_penalty 5": {"presence_penalty": 5},
        "top_logprobs 100": {"logprobs": True, "top_logprobs": 100},
        "top_logprobs without logprobs": {"top_logprobs": 2},
        "logit_bias beyond the vocabulary": {"logit_bias": {"99999999": 1}},
        "logit_bias not a number": {"logit_bias": {"a": "b"}},
        "stop of 1000": {"stop": [f"stop{number}" for number in range(1000)]},
        "stop empty": {"stop": ""},
        "stop a number": {"stop": 5},
        "seed a float": {"seed": 1.5},
        "seed huge": {"seed": 2**70},
        "stream a string": {"stream": "yes"},
        "unknown field": {"no_such_field": 1},
        "response_format unknown": {"response_format": {"type": "poem"}},
        "schema broken": {
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "nonsense"}}}
        },
        "regex broken": {"structured_outputs": {"regex": "("}},
        "tool_choice without tools": {"tool_choice": "auto"},
        "chat_template": {"chat_template": "{{ 1 }}"},
        "chat_template_kwargs": {"chat_template_kwargs": {"a": 1}},
        "prompt_logprobs": {"prompt_logprobs": 1},
        "min_tokens above max_tokens": {"min_tokens": 50},
        "bad_words": {"bad_words": ["a"]},
        "allowed_token_ids": {"allowed_token_ids": [5]},
        "priority": {"priority": 5},
        "request_id": {"request_id": "mine"},
        "cache_salt": {"cache_salt": "salt"},
        "kv_transfer_params": {"kv_transfer_params": {"a": 1}},
        "vllm_xargs": {"vllm_xargs": {"a": 1}},
        "lone surrogate": {"messages": [{"role": "user", "content": "\ud800"}]},
        "NUL": {"messages": [{"role": "user", "content": "a\0b"}]},
    }
    return [
        _chat("unknown model", "no-such-model"),
        _text("unknown model, completion", "no-such-model"),
        *(_chat(name, model, **fields) for name, fields in bad.items()),
        _text("prompt missing", model, prompt=None),
        _text("prompt embeddings", model, prompt_embeds="AAAA"),
        _text("token id beyond the vocabulary", model, prompt=[10**8]),
        _text("token id negative", model, prompt=[-1]),
        _text("best_of", model, best_of=2),
        _text("suffix", model, suffix="a"),
    ]


def _raw(model: str) -> list[Check]:
    good = _chat("", model).body or b""
    nan = good.replace(b'"temperature": 0', b'"temperature": NaN')
    twice = good[:-1] + b', "max_tokens": 2}'
    deep = good[:-1] + b', "metadata": ' + b'{"a":' * 3000 + b"1" + b"}" * 3001
    return [
        Check("body empty", body=b""),
        Check("body no JSON", body=b"{"),
        Check("body a list", body=b"[]"),
        Check("body not UTF-8", body=good.replace(b"tell", b"\xff\xfe")),
        Check("NaN", body=nan),
        Check("a key twice", body=twice, values=("usage",)),
        Check("deep JSON", body=deep),
        Check("content type missing", body=good, headers={}),
        Check("content type text", body=good, headers={"content-type": "text/plain"}),
        Check(
            "content type with charset",
            body=good,
            headers={"content-type": "application/json; charset=utf-8"},
            values=_WHOLE,
        ),
        Check("body of 5 MB", body=good[:-1] + b', "user": "' + b"a" * 5_000_000 + b'"}'),
        Check(
            "X-Request-Id", body=good, headers={**JSON, "X-Request-Id": "my-request-1"}, values=("id", "x-request-id")
        ),
        Check(
            "Authorization that nobody asks for",
            body=good,
            headers={**JSON, "Authorization": "Bearer a"},
            values=_WHOLE,
        ),
    ]


def _paths() -> list[Check]:
    get = (
        "/health",
        "/v1/models",
        "/version",
        "/ping",
        "/load",
        "/metrics",
        "/docs",
        "/openapi.json",
        "/server_info",
        "/no-such-path",
        CHAT,
    )
    post = (
        "/tokenize",
        "/detokenize",
        "/invocations",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/messages",
        "/pooling",
        "/abort_requests",
        "/sleep",
        "/pause",
    )
    return [
        *(Check(f"GET {path}", path, method="GET", headers={}) for path in get),
        *(Check(f"POST {path}", path, body=b"{}") for path in post),
        Check("HEAD /health", "/health", method="HEAD", headers={}),
        Check(
            "OPTIONS", CHAT, method="OPTIONS", headers={"Origin": "http://a", "Access-Control-Request-Method": "POST"}
        ),
    ]
