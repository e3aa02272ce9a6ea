"""What guests leave behind: nobody tidies it up, so what is old goes, and the oldest where all takes too much room."""

import logging
import time

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from chat_ui.history.errors import StoreUnavailable
from chat_ui.history.schema import THREADS
from chat_ui.history.store import Store

logger = logging.getLogger("chat_ui")

SWEEP_SECONDS = 3600
# So much of the room may be written between two sweeps.
SWEEP_SHARE = 1 / 16
# Conversations that go in one transaction: others write in between.
AT_ONCE = 100


class Guests:
    """The conversations of owners whose names begin with `prefix`: kept for `days` after their last use, and in `room`.

    The room is in bytes, of what was said; the oldest in use go first.
    """

    def __init__(self, store: Store, prefix: str, *, days: float, room_bytes: int) -> None:
        self._store = store
        self._prefix = prefix
        self._days = days
        self._room_bytes = room_bytes
        self._swept_at = float("-inf")
        self._written_bytes = 0

    def note_written(self, size: int) -> None:
        """So many bytes more are kept, of anybody's."""
        self._written_bytes += size

    def take_turn(self) -> bool:
        """Return whether it is time for a sweep; whoever is told so sweeps."""
        is_due = (
            time.monotonic() - self._swept_at >= SWEEP_SECONDS or self._written_bytes >= self._room_bytes * SWEEP_SHARE
        )
        if is_due:
            self._swept_at, self._written_bytes = time.monotonic(), 0
        return is_due

    async def sweep(self) -> None:
        """Remove what has to go; where the store is away, the next sweep does."""
        try:
            async with self._store.work() as connection:
                unused = await remove_unused(connection, self._prefix, days=self._days)
            oldest = 0
            while removed := await self._remove_oldest():
                oldest += removed
        except StoreUnavailable:
            return
        if unused:
            logger.info("removed %d conversations of guests, unused for %g days", unused, self._days)
        if oldest:
            logger.info("removed the %d oldest conversations of guests: CHAT_UI_GUEST_MEGABYTES is reached", oldest)

    async def _remove_oldest(self) -> int:
        async with self._store.work() as connection:
            return await remove_oldest(connection, self._prefix, room_bytes=self._room_bytes)


async def remove_unused(connection: AsyncConnection, owners: str, *, days: float) -> int:
    """Delete the conversations that were not used for so many days, of owners whose names begin with `owners`."""
    before_ms = int((time.time() - days * 86_400) * 1000)
    return (await connection.execute(delete(THREADS).where(THREADS.c.used_ms < before_ms, _are(owners)))).rowcount


async def remove_oldest(connection: AsyncConnection, owners: str, *, room_bytes: int) -> int:
    """Delete the conversations, `AT_ONCE` at most, that were not used for longest, until the others find room."""
    excess = (await connection.scalar(select(func.coalesce(func.sum(THREADS.c.bytes), 0)).where(_are(owners)))) or 0
    excess -= room_bytes
    if excess <= 0:
        return 0
    oldest = select(THREADS.c.id, THREADS.c.bytes).where(_are(owners)).order_by(THREADS.c.used_ms).limit(AT_ONCE)
    going = []
    for row in await connection.execute(oldest):
        if excess <= 0:
            break
        going.append(row.id)
        excess -= row.bytes
    return (await connection.execute(delete(THREADS).where(THREADS.c.id.in_(going)))).rowcount


def _are(owners: str) -> ColumnElement[bool]:
    return THREADS.c.owner.startswith(owners, autoescape=True)
