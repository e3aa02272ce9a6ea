"""What Chainlit 2.12 does wrong for this page, each cured in one place so that it can be dropped later.

The version is pinned; `own_page` refuses to start where Chainlit's page is not the one these cures were made for.
Numbers are those of Chainlit's issues on GitHub; where none stands, none was found (2026-11). What its Markdown does
wrong is cured in `presentation`: a colon before a letter is issue 1930.
"""

import asyncio
import base64
import functools
import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import chainlit as cl
from chainlit import server, socket
from chainlit.chat_context import chat_contexts
from chainlit.config import config
from chainlit.context import init_ws_context
from chainlit.session import WebsocketSession, ws_sessions_id
from chainlit.types import MessagePayload
from chainlit.user_session import user_sessions
from chainlit.utils import utc_now

from chat_ui import slow_readers

if TYPE_CHECKING:
    from chainlit.step import StepDict

KATEX_OF_CHAINLIT = "https://cdn.jsdelivr.net/npm/katex@0.16.22/dist/katex.min.css"
KATEX_OF_OURS = "/public/katex/katex.min.css"
PRECONNECT = re.compile(r'\s*<link rel="preconnect"[^>]*>')
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)

# socket.io drops the connection at a message above 1 MB, without a word. Above this the page's own limit is long hit.
MAX_FRAME_BYTES = 8_000_000


def apply(
    *,
    on_connect: Callable[[], Awaitable[None]],
    on_return: Callable[[], Awaitable[None]],
    arrives: Callable[[str], bool],
) -> None:
    """Put the cures in place; both hooks run in the context of a session that has just connected, or is back.

    Chainlit's `on_chat_start` locks the input as long as it runs; `on_connect` does not. `arrives` notes the id of a
    person's message, in its session's context, and says whether it is new.
    """

    async def connection_successful(sid: str) -> None:
        """Chainlit's own handler tells a returning page that all is done, even in mid-answer (issue 2201).

        And it shows a resumed conversation anew, over a question that is on the page and was lost or is on its way.
        """
        session = WebsocketSession.require(sid)
        if session.restored:
            await init_ws_context(session).emitter.task_end()
            await on_return()
        else:
            await socket.connection_successful(sid)
            await on_connect()

    async def client_message(sid: str, payload: MessagePayload) -> None:
        """Chainlit's own handler, once for each message: one that was delivered by a roll call may still come."""
        init_ws_context(WebsocketSession.require(sid))
        if arrives(payload["message"]["id"]):
            await socket.message(sid, payload)

    server.sio.on("connection_successful", connection_successful)
    server.sio.on("client_message", client_message)
    server.sio.on("stop", _stop)
    server.sio.on("edit_message", _edit_message)
    server.sio.eio.max_http_buffer_size = MAX_FRAME_BYTES
    slow_readers.bound_outboxes()


def current_session() -> WebsocketSession:
    """Return the session of the page that is speaking."""
    session = cl.context.session
    if not isinstance(session, WebsocketSession):
        raise TypeError("Only pages speak to these handlers.")
    return session


async def _stop(sid: str) -> None:
    """Stop without Chainlit's English sentence, which would stand in the chat as an answer (issue 1539)."""
    session = WebsocketSession.get(sid)
    if session and session.current_task:
        session.current_task.cancel()


async def _edit_message(sid: str, payload: MessagePayload) -> None:
    """Answer an edited message in a task that Stop can cancel; after a restart it may be unknown, then it is new."""
    session = WebsocketSession.require(sid)
    init_ws_context(session)
    message = find_message(payload["message"]["id"])
    if message is None:
        message = cl.Message.from_dict(payload["message"])
        cl.chat_context.add(message)
    message.content = payload["message"]["output"]
    await message.update()
    replay(session, message)


async def deliver(session: WebsocketSession, message_id: str, text: str) -> None:
    """Take a message that the page shows, and that was lost with a connection, as if it came now.

    Chainlit's page shows what is sent before it is, and never sends it again.
    """
    message: StepDict = {
        "id": message_id,
        "threadId": session.thread_id,
        "name": session.user.identifier if session.user else "user",
        "type": "user_message",
        "output": text,
        "createdAt": utc_now(),
    }
    # It may have been shown the conversation without it.
    await cl.context.emitter.send_step(message)
    await socket.message(session.socket_id, {"message": message, "fileReferences": None})


async def show_conversation(session: WebsocketSession) -> None:
    """Show a page that has nothing yet the conversation that it came for, if any."""
    await socket.connection_successful(session.socket_id)


async def tell_of_run(run: cl.Step | None) -> None:
    """Send the step that an answer is part of: the page drops, without a word, what is part of one it does not have."""
    if run is not None:
        await cl.context.emitter.send_step(run.to_dict())


async def tell_of_thread(first_question: str) -> None:
    """Tell of a conversation that was begun on this page; who knows it already does nothing.

    Chainlit does so once, and its list of conversations waits for it.
    """
    session = current_session()
    if session.has_first_interaction and session.thread_id_to_resume is None:
        told = {"interaction": first_question, "thread_id": session.thread_id}
        await cl.context.emitter.emit("first_interaction", told)


async def send_once(action: cl.Action, message_id: str) -> None:
    """Put a button under a message, in the place of the same one: the page adds what it has a second time."""
    await action.remove()
    await action.send(message_id)


def find_message(message_id: str) -> cl.Message | None:
    """Return the message of the page with this id, if the server still knows it."""
    return next((message for message in cl.chat_context.get() if message.id == message_id), None)


def replay(session: WebsocketSession, message: cl.Message) -> None:
    """Answer a message once more in the session's own task; what came after it leaves the page."""

    async def run() -> None:
        context = init_ws_context(session)
        messages = cl.chat_context.get()
        for later in messages[messages.index(message) + 1 :]:
            await later.remove()
        await context.emitter.task_start()
        try:
            await config.code.on_message(message)
        finally:
            await context.emitter.task_end()

    session.current_task = asyncio.create_task(run())


async def release(session: WebsocketSession, task: asyncio.Task[None] | None, grace_seconds: float) -> None:
    """Cancel the answer of a page that stays away for the grace, and drop its messages when its session ends.

    Chainlit does neither: it generates on for nobody, and keeps every message of every session (issue 2951).
    """
    socket_id = session.socket_id
    await asyncio.sleep(grace_seconds)
    if session.socket_id != socket_id:
        return
    was_taken_over = session.current_task is None
    if task and not was_taken_over:
        task.cancel()
        await asyncio.wait([task])
    if not session.to_clear:
        await asyncio.sleep(config.project.session_timeout)
    if session.socket_id == socket_id:
        chat_contexts.pop(session.id, None)


def take_over_page(key: str, *, is_wanted: Callable[[Any], bool]) -> Any:
    """Give this page what a lost one of the same conversation held under `key` in its session, its output included.

    A page that was loaded anew is another session to Chainlit, and the answer under way would end unseen. None if no
    lost page holds what is wanted.
    """
    session = current_session()
    for lost in list(ws_sessions_id.values()):
        held = user_sessions.get(lost.id, {}).get(key)
        is_same = lost.thread_id == session.thread_id and lost.user == session.user
        if held is None or not is_same or server.sio.manager.is_connected(lost.socket_id, "/") or not is_wanted(held):
            continue
        lost.emit = functools.partial(_emit, session)
        lost.current_task = None
        del user_sessions[lost.id][key]
        cl.user_session.set(key, held)
        return held
    return None


def _emit(session: WebsocketSession, event: str, data: Any) -> Any:
    """Send through the session, whose own way to the browser changes with each connection."""
    return session.emit(event, data)


def own_page(language: str, base_path: str, *, login: str) -> str:
    """Return Chainlit's page without the foreign hosts it names, in a language if one is fixed; served from now on.

    All that it loads from its own site lies below `base_path`. Its style sheet finds the kind of login at the root: a
    guest has no account to log out of.

    Where those hosts hang (a closed network, a blocked one), the page would stay blank: they are blocking stylesheets.
    """
    html = PRECONNECT.sub("", server.get_html_template(base_path))
    html = html.replace(KATEX_OF_CHAINLIT, f"{base_path}{KATEX_OF_OURS}")
    if KATEX_OF_OURS not in html or "://" in html:
        raise RuntimeError("Chainlit's page is not that of the pinned version: see chainlit_fixes.own_page.")
    if language != "auto":
        html = html.replace('<html lang="en">', f'<html lang="{language}">')
    html = html.replace("<html ", f'<html data-login="{login}" ', 1)
    server.get_html_template = lambda _root_path: html
    return html


def script_hashes(html: str) -> list[str]:
    """Return the hashes by which a content security policy allows the page's inline scripts."""
    digests = (hashlib.sha256(script.encode()).digest() for script in INLINE_SCRIPT.findall(html))
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
