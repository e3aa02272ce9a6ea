"""The naive gateway: FastAPI, httpx and nothing else, as a first version is written.

`python -m bench.peers.naive ENGINE_URL PORT`, in an environment of its own (requirements/naive.txt).
"""

import sys
from collections.abc import AsyncIterator

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse


def create_app(engine: str) -> FastAPI:
    """Return the gateway before an engine."""
    app = FastAPI()
    # Without httpx's default of 100 connections and 5 seconds, behind which the other streams would wait and fail.
    limits = httpx.Limits(max_keepalive_connections=1024)
    client = httpx.AsyncClient(base_url=engine, limits=limits, timeout=httpx.Timeout(600))

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        headers = {"content-type": "application/json"}
        sent = client.build_request("POST", request.url.path, content=await request.body(), headers=headers)
        answer = await client.send(sent, stream=True)

        async def chunks() -> AsyncIterator[bytes]:
            async for chunk in answer.aiter_bytes():
                yield chunk
            await answer.aclose()

        return StreamingResponse(chunks(), answer.status_code, media_type=answer.headers["content-type"])

    return app


if __name__ == "__main__":
    uvicorn.run(create_app(sys.argv[1]), port=int(sys.argv[2]), access_log=False)
