"""`/history/export`: a page that offers the open conversation and all of them, and the files themselves."""

import html
import re
from collections.abc import AsyncIterator, Callable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from chat_ui.history import threads
from chat_ui.history.errors import StoreUnavailable
from chat_ui.history.export import to_json, to_markdown
from chat_ui.history.store import Store
from chat_ui.history.threads import Thread

PAGE = "/history/export"
FILE = re.compile(r"/history/export/(?P<what>all|[0-9a-f-]{36})\.(?P<kind>md|json)")
TYPES = {"md": "text/markdown; charset=utf-8", "json": "application/json"}
AWAY = "对话记录暂时不可用，请稍后再试。 Conversations cannot be read now: try again later.\n"
UNSAFE = re.compile(r'[\\/:*?"<>|\x00-\x1f]+')
PAGE_THREADS = 50

STYLE = (
    "body{font:16px/1.6 system-ui,sans-serif;max-width:36rem;margin:3rem auto;padding:0 1rem}"
    "a{display:inline-block;margin:.25rem .5rem .25rem 0;padding:.4rem 1rem;border:1px solid;border-radius:.5rem;"
    "text-decoration:none;color:inherit}:root{color-scheme:light dark}"
)


class Downloads:
    """ASGI wrapper that answers below `/history/` and leaves the rest to Chainlit. `person` names who asks."""

    def __init__(
        self, app: ASGIApp, store: Store, *, person: Callable[[], str], language: str, base_path: str = ""
    ) -> None:
        self._app = app
        self._store = store
        self._person = person
        self._language = language
        self._base_path = base_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or not scope["path"].startswith(f"{self._base_path}{PAGE}"):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if request.method not in {"GET", "HEAD"}:
            response: Response = PlainTextResponse("GET only\n", 405, {"allow": "GET, HEAD"})
        elif not self._person():
            response = RedirectResponse(f"{self._base_path}/")
        else:
            try:
                response = await self._answer(request)
            except StoreUnavailable:
                response = PlainTextResponse(AWAY, 503)
        response.headers["cache-control"] = "no-store"
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        file = FILE.fullmatch(request.url.path.removeprefix(self._base_path))
        if file is None:
            return await self._offer(request)
        if file["what"] == "all":
            return _download(self._all(file["kind"]), file["kind"], "conversations")
        thread = await self._find(file["what"])
        if thread is None:
            return PlainTextResponse("没有这段对话。 There is no such conversation.\n", 404)
        text = to_markdown(thread) if file["kind"] == "md" else to_json(thread) + "\n"
        return _download(text, file["kind"], thread.name or thread.id)

    async def _offer(self, request: Request) -> Response:
        """Show what there is to take along; the page names the conversation that the person comes from (thread.js)."""
        chinese = _wants_chinese(request, self._language)
        thread = await self._find(request.query_params.get("thread", ""))
        title = "导出对话" if chinese else "Export conversations"
        parts = [f"<h1>{title}</h1>"]
        if thread:
            heading = "当前对话" if chinese else "This conversation"
            parts += [f"<h2>{heading}</h2><p>{html.escape(thread.name)}</p>", _links(thread.id)]
        parts += [f"<h2>{'全部对话' if chinese else 'All my conversations'}</h2>", _links("all")]
        back = f"{self._base_path}/thread/{thread.id}" if thread else f"{self._base_path}/"
        parts.append(f'<p><a href="{back}">{"返回" if chinese else "Back to the chat"}</a></p>')
        language = "zh-CN" if chinese else "en"
        head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
        page = f'<!doctype html><html lang="{language}"><head>{head}<style>{STYLE}</style></head>'
        return HTMLResponse(f"{page}<body>{''.join(parts)}</body></html>")

    async def _find(self, thread_id: str) -> Thread | None:
        async with self._store.work() as connection:
            return await threads.find(connection, thread_id, self._person())

    async def _all(self, kind: str) -> AsyncIterator[str]:
        """Write one conversation after the other, so that many need no more memory than the longest."""
        person, after, first = self._person(), "", True
        if kind == "json":
            yield "[\n"
        while True:
            async with self._store.work() as connection:
                found, more = await threads.page(
                    connection, person, search="", thumb=None, after=after, count=PAGE_THREADS
                )
            for listed in found:
                thread = await self._find(listed.id)
                if thread is None:
                    continue
                if not first:
                    yield ",\n" if kind == "json" else "\n---\n\n"
                first = False
                yield to_json(thread) if kind == "json" else to_markdown(thread)
            if not more or not found:
                break
            after = found[-1].id
        if kind == "json":
            yield "\n]\n"


def _links(what: str) -> str:
    return f'<p><a href="export/{what}.md" download>Markdown</a><a href="export/{what}.json" download>JSON</a></p>'


def _download(content: str | AsyncIterator[str], kind: str, name: str) -> Response:
    file_name = f"{UNSAFE.sub(' ', name).strip() or 'conversation'}.{kind}"
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(file_name, safe='')}"}
    if isinstance(content, str):
        return Response(content, media_type=TYPES[kind], headers=headers)
    return StreamingResponse(content, media_type=TYPES[kind], headers=headers)


def _wants_chinese(request: Request, fixed: str) -> bool:
    return (request.headers.get("accept-language", "") if fixed == "auto" else fixed).lower().startswith("zh")
