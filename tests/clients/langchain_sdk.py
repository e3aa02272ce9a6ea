"""LangChain's ChatOpenAI and OpenAI, from langchain-openai."""

from typing import Any

import httpx
import openai
from langchain_openai import ChatOpenAI, OpenAI

from tests.clients.driver import Ask, Told
from tests.clients.python_sdk import failure_of


class LangChain:
    """The models' asynchronous calls, on HTTP clients that outlive them.

    By itself LangChain keeps the HTTP clients it makes for the life of the process, beyond a test's loop.
    """

    name = "langchain"

    def __init__(self, http: httpx.AsyncClient, sync_http: httpx.Client) -> None:
        self._http = http
        self._sync_http = sync_http

    async def ask(self, url: str, ask: Ask) -> Told:
        """Make the request as LangChain's documentation shows it."""
        told = Told()
        model = self.model(url, ask)
        try:
            await (_stream(model, ask, told) if ask.stream else _whole(model, ask, told))
        except openai.APIError as error:
            told.failure = failure_of(error)
        return told

    def model(self, url: str, ask: Ask, **settings: Any) -> ChatOpenAI | OpenAI:
        """Return the model object that asks."""
        settings |= {
            "base_url": f"{url}/v1",
            "api_key": "none",
            "model": ask.model,
            "max_retries": ask.retries,
            "timeout": ask.timeout_seconds,
            "http_async_client": self._http,
            "http_client": self._sync_http,
        }
        if ask.legacy:
            return OpenAI(**settings)
        return ChatOpenAI(**settings, stream_usage=ask.usage, extra_body=ask.extra or None)


async def _whole(model: ChatOpenAI | OpenAI, ask: Ask, told: Told) -> None:
    _take(await model.ainvoke(ask.content), told)


async def _stream(model: ChatOpenAI | OpenAI, ask: Ask, told: Told) -> None:
    stream: Any = model.astream(ask.content)
    async for chunk in stream:
        _take(chunk, told)
        if len(told.texts) == ask.stop_after:
            break
    if ask.closes:
        await stream.aclose()


def _take(part: Any, told: Told) -> None:
    text = part if isinstance(part, str) else part.content
    if text:
        told.texts.append(text)
    usage = getattr(part, "usage_metadata", None)
    if usage:
        told.usage = (usage["input_tokens"], usage["output_tokens"])
