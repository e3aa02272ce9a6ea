"""The database of conversations: opened when first needed, upgraded, and given up on for a while when it fails."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator

from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from chat_ui.history.errors import StoreTooNew, StoreUnavailable
from chat_ui.history.migrations import upgrade

logger = logging.getLogger("chat_ui")

# Longest time for one piece of work, the wait for a connection or a lock included.
WORK_SECONDS = 5.0
SQLITE_BUSY_SECONDS = 2.0
REST_SECONDS = 2.0
CONNECTIONS = 4


def engine_url(url: str) -> URL:
    """Return the address for SQLAlchemy of a `sqlite:///` or `postgresql://` address."""
    parsed = make_url(url)
    if parsed.drivername == "sqlite":
        return parsed.set(drivername="sqlite+aiosqlite")
    # asyncpg's name for what libpq and most manuals call sslmode.
    query = {("ssl" if name == "sslmode" else name): value for name, value in parsed.query.items()}
    return parsed.set(drivername="postgresql+asyncpg", query=query)


class Store:
    """One database. Work on it raises `StoreUnavailable` for whatever is wrong with it; the log says so once."""

    def __init__(self, url: str) -> None:
        self._url = engine_url(url)
        self._engine: AsyncEngine | None = None
        self._opening = asyncio.Lock()
        self._failed_at: float | None = None
        self._reason = ""
        # After a failure nobody waits for the database again so soon: a chat beside a hanging one stays quick.
        self.rest_seconds = REST_SECONDS

    @property
    def place(self) -> str:
        """Where the database is, without its password."""
        return self._url.render_as_string(hide_password=True)

    async def open(self) -> AsyncEngine:
        """Connect and upgrade, once; raises `StoreTooNew` and `StoreUnavailable`."""
        async with self._opening:
            if self._engine is not None:
                return self._engine
            engine = self._create_engine()
            try:
                async with asyncio.timeout(WORK_SECONDS), engine.begin() as connection:
                    await upgrade(connection)
            except BaseException as error:
                await engine.dispose()
                if isinstance(error, SQLAlchemyError | OSError | TimeoutError):
                    raise StoreUnavailable(_reason(error)) from error
                raise
            self._engine = engine
            return engine

    @contextlib.asynccontextmanager
    async def work(self) -> AsyncIterator[AsyncConnection]:
        """Give a connection in a transaction, committed at the end; raises `StoreUnavailable`."""
        if self._failed_at is not None and time.monotonic() - self._failed_at < self.rest_seconds:
            raise StoreUnavailable(self._reason)
        try:
            async with asyncio.timeout(WORK_SECONDS):
                engine = await self.open()
                async with engine.begin() as connection:
                    yield connection
        except (SQLAlchemyError, OSError, TimeoutError, StoreTooNew, StoreUnavailable) as error:
            reason = _reason(error)
            self._note_failure(reason)
            raise StoreUnavailable(reason) from error
        self._note_success()

    async def close(self) -> None:
        """Give the connections back."""
        if self._engine is not None:
            await self._engine.dispose()
            self._engine = None

    def _create_engine(self) -> AsyncEngine:
        if self._url.get_backend_name() != "sqlite":
            return create_async_engine(
                self._url,
                pool_size=CONNECTIONS,
                max_overflow=0,
                pool_timeout=WORK_SECONDS,
                pool_pre_ping=True,
                connect_args={"timeout": WORK_SECONDS, "command_timeout": WORK_SECONDS},
            )
        engine = create_async_engine(
            self._url,
            pool_size=CONNECTIONS,
            max_overflow=0,
            pool_timeout=WORK_SECONDS,
            connect_args={"timeout": SQLITE_BUSY_SECONDS},
        )
        event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        return engine

    def _note_failure(self, reason: str) -> None:
        if self._failed_at is None or reason != self._reason:
            logger.error("conversations are not kept: %s: %s", self.place, reason)
        self._failed_at, self._reason = time.monotonic(), reason

    def _note_success(self) -> None:
        if self._failed_at is not None:
            logger.info("conversations are kept again: %s", self.place)
        self._failed_at, self._reason = None, ""


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    # Readers do not wait for a writer, and a crash of the machine costs the last answer at most.
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _reason(error: BaseException) -> str:
    """Say what the driver says: SQLAlchemy's own text holds the statement, and in it what a person wrote."""
    if isinstance(error, TimeoutError):
        return f"no answer within {WORK_SECONDS:g} s"
    return str(getattr(error, "orig", None) or error).splitlines()[0] if str(error) else type(error).__name__
