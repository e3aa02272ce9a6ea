"""Chainlit's data layer on the store: what it calls to keep, list and resume conversations.

Chainlit's own one for SQL puts the ids of conversations, which the browser chooses, into its statements as they are,
reads everything a person ever said for each look at the list, and swallows every error.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

from chainlit.context import context
from chainlit.data.base import BaseDataLayer
from chainlit.data.utils import queue_until_user_message
from chainlit.types import Feedback, PageInfo, PaginatedResponse, Pagination, ThreadDict, ThreadFilter
from chainlit.user import PersistedUser, User
from fastapi import HTTPException
from sqlalchemy.ext.asyncio import AsyncConnection

from chat_ui.history import threads
from chat_ui.history.errors import NotTheirs, StoreUnavailable
from chat_ui.history.guests import Guests
from chat_ui.history.steps import to_step, to_thread_dict
from chat_ui.history.store import Store

if TYPE_CHECKING:
    from chainlit.element import Element, ElementDict
    from chainlit.session import BaseSession
    from chainlit.step import StepDict

logger = logging.getLogger("chat_ui")

PAGE_THREADS = 100
# What of Chainlit's session comes back with a conversation; the rest holds the person and the environment.
KEPT_SETTINGS = ("chat_settings", "chat_profile")
# Messages, and the runs that Chainlit nests answers in: a thumb is the run's.
KEPT_TYPES = ("user_message", "assistant_message", "run")
CLOSE_SECONDS = 2
# Both languages: Chainlit does not say whose request it is.
AWAY = (
    "以往的对话暂时打不开，也改不了：可以继续聊天，过一会儿刷新页面再试。 "
    "Past conversations cannot be opened or changed right now: go on chatting, and reload the page in a while."
)

Work = Callable[[AsyncConnection], Awaitable[None]]


class Layer(BaseDataLayer):
    """Keeps the conversations of whom `person` names; without a name nothing is kept and nothing found.

    Writes to one conversation happen in the order in which Chainlit asks for them. One that fails ends here:
    `tell` is called in the context of the page, once for each page until a write of its own succeeds again.
    """

    def __init__(
        self,
        store: Store,
        *,
        person: Callable[[], str],
        tell: Callable[[], Awaitable[None]],
        guests: Guests,
    ) -> None:
        self._store = store
        self._person = person
        self._tell = tell
        self._guests = guests
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._writes: set[asyncio.Task[None]] = set()
        self._told: WeakSet[BaseSession] = WeakSet()

    # --- People: who they are is in their cookie, so nothing is kept of them but their conversations.

    async def get_user(self, identifier: str) -> PersistedUser | None:
        """Return the person of a name."""
        return PersistedUser(id=identifier, identifier=identifier, createdAt="")

    async def create_user(self, user: User) -> PersistedUser | None:
        """Return the person who has just come in."""
        return await self.get_user(user.identifier)

    # --- Conversations

    async def get_thread_author(self, thread_id: str) -> str:
        """Return whose conversation it is; empty for one that is not there."""
        async with self._answering() as connection:
            return await threads.owner_of(connection, thread_id) or ""

    async def get_thread(self, thread_id: str) -> ThreadDict | None:
        """Return a conversation of this person's; None, as for one that is not there, while the store is away."""
        try:
            async with self._store.work() as connection:
                thread = await threads.find(connection, thread_id, self._person())
        except StoreUnavailable:
            return None
        return to_thread_dict(thread) if thread else None

    async def list_threads(self, pagination: Pagination, filters: ThreadFilter) -> PaginatedResponse[ThreadDict]:
        """Return a page of this person's conversations, the last used first."""
        async with self._answering() as connection:
            found, more = await threads.page(
                connection,
                self._person(),
                search=(filters.search or "").strip(),
                thumb=filters.feedback,
                after=pagination.cursor or "",
                count=min(max(pagination.first, 1), PAGE_THREADS),
            )
        page = PageInfo(
            hasNextPage=more, startCursor=found[0].id if found else None, endCursor=found[-1].id if found else None
        )
        return PaginatedResponse(pageInfo=page, data=[to_thread_dict(thread) for thread in found])

    async def update_thread(
        self,
        thread_id: str,
        name: str | None = None,
        user_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        tags: list[str] | None = None,
    ) -> None:
        """Begin a conversation (Chainlit then names its person), rename it, or keep what is set beside it."""
        del tags
        person = self._person()
        if user_id is not None:
            await self._keep(
                thread_id, lambda connection: threads.claim(connection, thread_id, person, threads.title(name or ""))
            )
        elif name is not None:
            async with self._answering() as connection:
                await threads.rename(connection, thread_id, person, name)
        elif metadata is not None:
            settings = {key: metadata[key] for key in KEPT_SETTINGS if metadata.get(key)}
            await self._keep(
                thread_id, lambda connection: threads.set_settings(connection, thread_id, person, settings)
            )
        self._sweep_sometimes()

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a conversation of this person's."""
        async with self._answering() as connection:
            await threads.remove(connection, thread_id, self._person())

    async def delete_all(self) -> None:
        """Delete all conversations of this person's."""
        async with self._store.work() as connection:
            await threads.remove_all(connection, self._person())

    # --- Messages

    @queue_until_user_message()  # type: ignore[untyped-decorator]
    async def create_step(self, step_dict: "StepDict") -> None:
        """Keep a message, new or changed."""
        person = self._person()
        step = to_step(step_dict)
        question = step.text if step.type == "user_message" else ""

        async def keep(connection: AsyncConnection) -> None:
            await threads.claim(connection, step.thread_id, person, threads.title(question))
            self._guests.note_written(await threads.keep_step(connection, step))

        if step.type in KEPT_TYPES:
            await self._keep(step.thread_id, keep)
            self._sweep_sometimes()

    @queue_until_user_message()  # type: ignore[untyped-decorator]
    async def update_step(self, step_dict: "StepDict") -> None:
        """Keep a changed message."""
        await self.create_step(step_dict)

    @queue_until_user_message()  # type: ignore[untyped-decorator]
    async def delete_step(self, step_id: str) -> None:
        """Forget a message that left the page."""
        person = self._person()
        await self._keep(context.session.thread_id, lambda connection: threads.drop_step(connection, step_id, person))

    async def get_favorite_steps(self, user_id: str) -> list["StepDict"]:
        """Return nothing: the page has no favourites."""
        del user_id
        return []

    # --- Thumbs. One for a run, so its id is the run's.

    async def upsert_feedback(self, feedback: Feedback) -> str:
        """Keep a thumb and its comment."""
        async with self._answering() as connection:
            await threads.rate(connection, feedback.forId, self._person(), feedback.value, feedback.comment)
        return feedback.forId

    async def delete_feedback(self, feedback_id: str) -> bool:
        """Take a thumb back."""
        async with self._answering() as connection:
            await threads.unrate(connection, feedback_id, self._person())
        return True

    # --- Elements: the page sends no files, so there are none to keep.

    async def create_element(self, element: "Element") -> None:
        """Keep nothing."""

    async def get_element(self, thread_id: str, element_id: str) -> "ElementDict | None":
        """Return nothing."""
        del thread_id, element_id
        return None

    async def delete_element(self, element_id: str, thread_id: str | None = None) -> None:
        """Forget nothing."""

    # --- The process

    async def build_debug_url(self) -> str:
        """Return no address."""
        return ""

    async def close(self) -> None:
        """Finish what is being written and close the store."""
        if self._writes:
            await asyncio.wait(self._writes, timeout=CLOSE_SECONDS)
        await self._store.close()

    @contextlib.asynccontextmanager
    async def _answering(self) -> AsyncIterator[AsyncConnection]:
        """Work whose failure is the answer to a request of the page, in words that the page shows."""
        try:
            async with self._store.work() as connection:
                yield connection
        except StoreUnavailable as error:
            raise HTTPException(503, AWAY) from error
        except NotTheirs as error:
            raise HTTPException(404, "not found") from error

    async def _keep(self, thread_id: str, work: Work) -> None:
        """Write in a task of its own: that whoever asked for it is cancelled (a stopped answer) does not end it."""
        if not _is_id(thread_id) or not self._person():
            return
        task = asyncio.create_task(self._write(thread_id, work))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        await asyncio.shield(task)

    async def _write(self, thread_id: str, work: Work) -> None:
        lock = self._locks.setdefault(thread_id, asyncio.Lock())
        try:
            async with lock, self._store.work() as connection:
                await work(connection)
        except NotTheirs:
            logger.warning("refused to write to a conversation that is somebody else's")
        except StoreUnavailable:
            if context.session not in self._told:
                self._told.add(context.session)
                await self._tell()
            return
        self._told.discard(context.session)

    def _sweep_sometimes(self) -> None:
        """Remove what has to go of the guests'; conversations begin, and grow, often enough to ask here."""
        if self._guests.take_turn():
            task = asyncio.create_task(self._guests.sweep())
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)


def _is_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
