"""The whole path, nginx to sampler, by the OpenAI SDK: exact texts, usage, errors, request ids."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from tests.conftest import Stack

pytestmark = pytest.mark.stack

MODEL = "ernie-demo"


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[OpenAI]:
    with (
        httpx.Client(trust_env=False) as http,
        OpenAI(base_url=f"{stack.url}/v1", api_key="unused", max_retries=0, timeout=60, http_client=http) as client,
    ):
        yield client


def answer_of(client: OpenAI, case: dict[str, Any]) -> str:
    reply = client.chat.completions.create(model=MODEL, messages=case["messages"], max_tokens=1024)
    assert reply.choices[0].finish_reason == "stop"
    return reply.choices[0].message.content or ""


def streamed_answer_of(client: OpenAI, case: dict[str, Any]) -> str:
    stream = client.chat.completions.create(model=MODEL, messages=case["messages"], max_tokens=1024, stream=True)
    chunks = [chunk for chunk in stream if chunk.choices]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len(chunks) > 2
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def test_make_up_showed_the_address_after_a_real_answer(stack: Stack) -> None:
    assert f"{stack.url}/v1" in stack.output
    assert f"{MODEL} answered" in stack.output


def test_every_known_question_gets_its_exact_answer(client: OpenAI, questions: list[dict[str, Any]]) -> None:
    cases = [case for case in questions if "paraphrase" not in case["tags"]]
    assert len(cases) >= 60
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda case: answer_of(client, case), cases))
    wrong = [(q["messages"][-1]["content"], a) for q, a in zip(cases, answers, strict=True) if a != q["answer"]]
    assert wrong == []


def test_streams_spell_the_same_answers(client: OpenAI, questions: list[dict[str, Any]]) -> None:
    kinds = {"code", "long", "table", "emoji", "multi-turn"}
    cases = [case for case in questions if kinds & set(case["tags"]) and "paraphrase" not in case["tags"]]
    assert {tag for case in cases for tag in case["tags"]} >= kinds
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda case: streamed_answer_of(client, case), cases))
    wrong = [(q["messages"][-1]["content"], a) for q, a in zip(cases, answers, strict=True) if a != q["answer"]]
    assert wrong == []


def test_models_lists_what_is_served(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]


def test_usage_is_the_engines_own(client: OpenAI, questions: list[dict[str, Any]]) -> None:
    case = questions[0]
    plain = client.chat.completions.create(model=MODEL, messages=case["messages"]).usage
    stream = client.chat.completions.create(
        model=MODEL, messages=case["messages"], stream=True, stream_options={"include_usage": True}
    )
    streamed = [chunk.usage for chunk in stream if chunk.usage]
    assert plain is not None
    assert len(streamed) == 1
    assert plain.completion_tokens > 1
    assert (streamed[0].prompt_tokens, streamed[0].completion_tokens) == (plain.prompt_tokens, plain.completion_tokens)


def test_usage_stays_hidden_from_a_stream_that_did_not_ask(client: OpenAI, questions: list[dict[str, Any]]) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=questions[0]["messages"], stream=True)
    chunks = list(stream)
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


def test_completions_work_streamed_and_not(client: OpenAI) -> None:
    prompt = "<|begin_of_sentence|>User: 你好\nAssistant: "
    plain = client.completions.create(model=MODEL, prompt=prompt, max_tokens=16, temperature=0)
    stream = client.completions.create(model=MODEL, prompt=prompt, max_tokens=16, temperature=0, stream=True)
    assert plain.choices[0].text
    assert "".join(chunk.choices[0].text for chunk in stream) == plain.choices[0].text


def test_unknown_model_is_the_engines_404(client: OpenAI) -> None:
    with pytest.raises(NotFoundError) as caught:
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "x"}])
    assert "nobody" in caught.value.message
    assert caught.value.request_id


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_a_prompt_is_a_400_that_says_so(client: OpenAI, stream: bool) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "很长的问题 " * 5000}], stream=stream
        )
    assert "maximum context length" in caught.value.message.lower() or "max_model_len" in caught.value.message


def test_dangerous_field_is_refused_by_name(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "x"}],
            extra_body={"chat_template": "{{ 1 }}"},
        )
    assert "chat_template" in caught.value.message
    assert caught.value.param == "chat_template"


def test_request_id_comes_back(stack: Stack) -> None:
    answer = httpx.get(f"{stack.url}/v1/models", headers={"x-request-id": "my-id-1"}, trust_env=False)
    assert answer.headers["x-request-id"] == "my-id-1"


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/tokenize", "/health/../metrics", "/docs"])
def test_inner_paths_stay_inside(stack: Stack, path: str) -> None:
    assert httpx.get(f"{stack.url}{path}", trust_env=False).status_code == 404


def test_readiness_from_outside_tells_no_details(stack: Stack) -> None:
    plain, verbose = (httpx.get(f"{stack.url}/readyz{query}", trust_env=False) for query in ("", "?verbose"))
    assert plain.status_code == 200
    assert verbose.content == plain.content
    assert str(stack.ports["ENGINE_PORT"]) not in verbose.text
