"""The installed Chainlit's own index page names no foreign host once it has passed the edge."""

import importlib.util
import re
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from tests.edge.backend import Backend

pytestmark = pytest.mark.edge


def chainlit_index() -> str:
    """Return the page as the wheel ships it; importing Chainlit would write files."""
    spec = importlib.util.find_spec("chainlit")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "frontend/dist/index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("encoding", ["gzip, br", "identity"])
async def test_the_page_names_no_foreign_host(client: httpx.AsyncClient, chat_ui: Backend, encoding: str) -> None:
    source = chainlit_index()
    assert "cdn.jsdelivr.net" in source

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=source, content_type="text/html")

    chat_ui.handler = page
    answer = await client.get("/", headers={"Accept-Encoding": encoding})
    assert re.findall(r"https?://[^\"'\s]+", answer.text) == []
    assert '<link\n      rel="stylesheet"\n      href="/public/katex/katex.min.css"\n    />' in answer.text
    assert '<div id="root"></div>' in answer.text
    assert "Accept-Encoding" not in chat_ui.seen[0].headers


async def test_a_page_that_is_cured_already_stays_as_it_is(client: httpx.AsyncClient, chat_ui: Backend) -> None:
    source = '<link rel="stylesheet" href="/public/katex/katex.min.css"><p>你好</p>'

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=source, content_type="text/html")

    chat_ui.handler = page
    assert (await client.get("/")).text == source
