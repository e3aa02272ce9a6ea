"""OpenAI's SDK for Python."""

from typing import Any

import httpx
import openai

from tests.clients.driver import Ask, Failure, Told


class PythonSdk:
    """The asynchronous client, on an HTTP client that outlives its requests."""

    name = "python"

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, url: str, ask: Ask) -> Told:
        """Make the request as the SDK's documentation shows it."""
        told = Told()
        sdk = self._sdk(url, ask)
        try:
            await (_stream(sdk, ask, told) if ask.stream else _whole(sdk, ask, told))
        except openai.APIError as error:
            told.failure = failure_of(error)
        return told

    async def models(self, url: str) -> list[str]:
        """Return the ids of the models."""
        return [model.id async for model in await self._sdk(url, Ask()).models.list()]

    def _sdk(self, url: str, ask: Ask) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            max_retries=ask.retries,
            timeout=ask.timeout_seconds,
            http_client=self._http,
        )


def failure_of(error: openai.APIError) -> Failure:
    """Return what a program can read from an error of the SDK."""
    return Failure(
        kind=type(error).__name__,
        message=error.message,
        status=getattr(error, "status_code", None),
        code=error.code,
        param=error.param,
        request_id=getattr(error, "request_id", None),
    )


def _arguments(ask: Ask) -> dict[str, Any]:
    subject = {"prompt": ask.content} if ask.legacy else {"messages": [{"role": "user", "content": ask.content}]}
    options = {"stream_options": {"include_usage": True}} if ask.usage else {}
    return {"model": ask.model, **subject, **options, "extra_body": ask.extra}


def _create(sdk: openai.AsyncOpenAI, ask: Ask) -> Any:
    return sdk.completions.create if ask.legacy else sdk.chat.completions.create


async def _whole(sdk: openai.AsyncOpenAI, ask: Ask, told: Told) -> None:
    reply = await _create(sdk, ask)(**_arguments(ask))
    told.texts.append(reply.choices[0].text if ask.legacy else reply.choices[0].message.content)
    told.usage = (reply.usage.prompt_tokens, reply.usage.completion_tokens)


async def _stream(sdk: openai.AsyncOpenAI, ask: Ask, told: Told) -> None:
    stream = await _create(sdk, ask)(**_arguments(ask), stream=True)
    async for chunk in stream:
        if chunk.usage:
            told.usage = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        for choice in chunk.choices:
            text = choice.text if ask.legacy else choice.delta.content
            if text:
                told.texts.append(text)
        if len(told.texts) == ask.stop_after:
            break
    if ask.closes:
        await stream.close()
