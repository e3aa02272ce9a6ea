"""Conversations in the store. Every function names the person, and sees nothing of anybody else's."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, delete, exists, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from chat_ui.history.errors import NotTheirs
from chat_ui.history.schema import FEEDBACK, STEPS, THREADS

NAME_CHARACTERS = 80
# What a person may call a conversation; the page's own field has no limit.
RENAME_CHARACTERS = 200
COMMENT_CHARACTERS = 4000
SETTINGS_CHARACTERS = 20_000
# What a row takes besides its texts, about.
ROW_BYTES = 200


@dataclass(frozen=True, slots=True)
class Step:
    """A message: `output` as the page shows it, `text` as it was said, `details` what Chainlit keeps beside."""

    id: str
    thread_id: str
    created_at: str
    type: str
    name: str
    output: str
    text: str
    is_error: bool = False
    details: dict[str, Any] = field(default_factory=dict)
    thumb: int | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation; times in milliseconds since 1970."""

    id: str
    owner: str
    name: str
    created_ms: int
    used_ms: int
    settings: dict[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()


def title(text: str) -> str:
    """Return the first words of a question, as the name of the conversation that it begins."""
    line = " ".join(text.split())
    return line if len(line) <= NAME_CHARACTERS else line[: NAME_CHARACTERS - 1] + "…"


async def claim(connection: AsyncConnection, thread_id: str, owner: str, name: str) -> None:
    """Make the conversation if it is not there and mark it as used; raises `NotTheirs`."""
    now = int(time.time() * 1000)
    row = {
        "id": thread_id,
        "owner": owner,
        "name": _clean(name),
        "created_ms": now,
        "used_ms": now,
        "settings": "{}",
        "bytes": ROW_BYTES,
    }
    statement = _insert(connection)(THREADS).values(row)
    statement = statement.on_conflict_do_update(
        index_elements=["id"],
        set_={"used_ms": now, "name": func.coalesce(func.nullif(THREADS.c.name, ""), statement.excluded.name)},
        where=THREADS.c.owner == owner,
    )
    await connection.execute(statement)
    if await connection.scalar(select(THREADS.c.owner).where(THREADS.c.id == thread_id)) != owner:
        raise NotTheirs(thread_id)


async def keep_step(connection: AsyncConnection, step: Step) -> int:
    """Add or replace a message of a conversation that has been claimed; return how many bytes more that takes."""
    texts = {
        "output": _clean(step.output),
        "text": _clean(step.text),
        "details": _clean(json.dumps(step.details, ensure_ascii=False)),
    }
    size = ROW_BYTES + sum(len(text.encode()) for text in texts.values())
    row = {
        "id": step.id,
        "thread_id": step.thread_id,
        "created_at": step.created_at,
        "type": step.type,
        "name": step.name,
        "is_error": step.is_error,
        "bytes": size,
        **texts,
    }
    there = (await connection.execute(select(STEPS.c.thread_id, STEPS.c.bytes).where(STEPS.c.id == step.id))).first()
    if there and there.thread_id != step.thread_id:
        return 0
    statement = _insert(connection)(STEPS).values(row)
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["id"],
            set_={name: statement.excluded[name] for name in row if name not in {"id", "thread_id", "created_at"}},
            where=STEPS.c.thread_id == step.thread_id,
        )
    )
    growth: int = size - (there.bytes if there else 0)
    await _grow(connection, step.thread_id, growth)
    return growth


async def drop_step(connection: AsyncConnection, step_id: str, owner: str) -> None:
    """Delete a message and its thumb."""
    dropped = delete(STEPS).where(STEPS.c.id == step_id, _step_is_of(owner)).returning(STEPS.c.thread_id, STEPS.c.bytes)
    for row in (await connection.execute(dropped)).all():
        await _grow(connection, row.thread_id, -row.bytes)


async def owner_of(connection: AsyncConnection, thread_id: str) -> str | None:
    """Return whose conversation it is."""
    owner: str | None = await connection.scalar(select(THREADS.c.owner).where(THREADS.c.id == thread_id))
    return owner


async def find(connection: AsyncConnection, thread_id: str, owner: str) -> Thread | None:
    """Return a conversation with its messages, oldest first."""
    row = (await connection.execute(select(THREADS).where(THREADS.c.id == thread_id, THREADS.c.owner == owner))).first()
    if row is None:
        return None
    steps = await connection.execute(
        select(STEPS, FEEDBACK.c.value, FEEDBACK.c.comment)
        .join_from(STEPS, FEEDBACK, isouter=True)
        .where(STEPS.c.thread_id == thread_id)
        .order_by(STEPS.c.created_at, STEPS.c.id)
    )
    return _thread(row, tuple(_step(step) for step in steps))


async def page(
    connection: AsyncConnection, owner: str, *, search: str, thumb: int | None, after: str, count: int
) -> tuple[list[Thread], bool]:
    """Return the next conversations without messages, the last used first, and whether more follow.

    `after` is the id of the last one of the page before; `search` is looked for in names and messages.
    """
    conditions: list[ColumnElement[bool]] = [THREADS.c.owner == owner]
    if search:
        said = exists().where(STEPS.c.thread_id == THREADS.c.id, STEPS.c.text.icontains(search, autoescape=True))
        conditions.append(or_(THREADS.c.name.icontains(search, autoescape=True), said))
    if thumb is not None:
        conditions.append(
            exists().where(
                STEPS.c.thread_id == THREADS.c.id, FEEDBACK.c.step_id == STEPS.c.id, FEEDBACK.c.value == thumb
            )
        )
    if after:
        used_ms = select(THREADS.c.used_ms).where(THREADS.c.id == after).scalar_subquery()
        conditions.append(or_(THREADS.c.used_ms < used_ms, and_(THREADS.c.used_ms == used_ms, THREADS.c.id < after)))
    rows = await connection.execute(
        select(THREADS).where(*conditions).order_by(THREADS.c.used_ms.desc(), THREADS.c.id.desc()).limit(count + 1)
    )
    threads = [_thread(row) for row in rows]
    return threads[:count], len(threads) > count


async def rename(connection: AsyncConnection, thread_id: str, owner: str, name: str) -> None:
    """Give a conversation another name."""
    await _change(connection, thread_id, owner, {"name": _clean(" ".join(name.split()))[:RENAME_CHARACTERS]})


async def set_settings(connection: AsyncConnection, thread_id: str, owner: str, settings: dict[str, Any]) -> None:
    """Keep what was set beside the conversation; what is unreasonably long is left out."""
    text = json.dumps(settings, ensure_ascii=False)
    if len(text) <= SETTINGS_CHARACTERS:
        await _change(connection, thread_id, owner, {"settings": _clean(text)})


async def remove(connection: AsyncConnection, thread_id: str, owner: str) -> None:
    """Delete a conversation with all that was said in it."""
    await connection.execute(delete(THREADS).where(THREADS.c.id == thread_id, THREADS.c.owner == owner))


async def remove_all(connection: AsyncConnection, owner: str) -> None:
    """Delete everything of one person's."""
    await connection.execute(delete(THREADS).where(THREADS.c.owner == owner))


async def rate(connection: AsyncConnection, step_id: str, owner: str, thumb: int, comment: str | None) -> None:
    """Keep a thumb, in place of an earlier one; raises `NotTheirs`."""
    if not await connection.scalar(
        select(func.count()).select_from(STEPS).where(STEPS.c.id == step_id, _step_is_of(owner))
    ):
        raise NotTheirs(step_id)
    row = {"step_id": step_id, "value": thumb, "comment": _clean(comment)[:COMMENT_CHARACTERS] if comment else None}
    statement = _insert(connection)(FEEDBACK).values(row)
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["step_id"], set_={name: statement.excluded[name] for name in ("value", "comment")}
        )
    )


async def unrate(connection: AsyncConnection, step_id: str, owner: str) -> None:
    """Take a thumb back."""
    theirs = select(STEPS.c.id).where(_step_is_of(owner))
    await connection.execute(delete(FEEDBACK).where(FEEDBACK.c.step_id == step_id, FEEDBACK.c.step_id.in_(theirs)))


async def _grow(connection: AsyncConnection, thread_id: str, growth: int) -> None:
    await connection.execute(update(THREADS).where(THREADS.c.id == thread_id).values(bytes=THREADS.c.bytes + growth))


async def _change(connection: AsyncConnection, thread_id: str, owner: str, values: dict[str, str]) -> None:
    await connection.execute(update(THREADS).where(THREADS.c.id == thread_id, THREADS.c.owner == owner).values(values))


def _step_is_of(owner: str) -> ColumnElement[bool]:
    return STEPS.c.thread_id.in_(select(THREADS.c.id).where(THREADS.c.owner == owner))


def _insert(connection: AsyncConnection) -> Any:
    """Return the dialect's INSERT: both know ON CONFLICT, SQLAlchemy's common one does not."""
    return postgresql_insert if connection.dialect.name == "postgresql" else sqlite_insert


def _clean(text: str) -> str:
    """Drop what PostgreSQL's text cannot hold, and lone surrogates, which no database takes."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def _thread(row: Row[Any], steps: tuple[Step, ...] = ()) -> Thread:
    return Thread(row.id, row.owner, row.name, row.created_ms, row.used_ms, json.loads(row.settings), steps)


def _step(row: Row[Any]) -> Step:
    return Step(
        id=row.id,
        thread_id=row.thread_id,
        created_at=row.created_at,
        type=row.type,
        name=row.name,
        output=row.output,
        text=row.text,
        is_error=row.is_error,
        details=json.loads(row.details),
        thumb=row.value,
        comment=row.comment,
    )
