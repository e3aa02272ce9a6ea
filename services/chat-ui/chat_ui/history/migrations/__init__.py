"""Numbered steps from an empty database to the present tables, each a file of SQL that both kinds of database take."""

from importlib import resources

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from chat_ui.history.errors import StoreTooNew

# Two processes that start at once take turns; in PostgreSQL by this number of the project's own.
LOCK_NUMBER = 4_505_003


def scripts() -> list[str]:
    """Return the SQL of every step; the first one leads to version 1."""
    files = (file for file in resources.files(__name__).iterdir() if file.name.endswith(".sql"))
    return [file.read_text(encoding="utf-8") for file in sorted(files, key=lambda file: file.name)]


async def upgrade(connection: AsyncConnection) -> int:
    """Bring the database up to date within the connection's transaction; returns the version it had.

    Raises `StoreTooNew` for one that a newer release has upgraded.
    """
    if connection.dialect.name == "postgresql":
        await connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK_NUMBER})"))
    else:
        # Python's driver opens no transaction by itself before a change of tables.
        await connection.exec_driver_sql("BEGIN IMMEDIATE")
    steps = scripts()
    found = await _version(connection)
    if found > len(steps):
        raise StoreTooNew(
            f"the store is of version {found}, this release knows versions up to {len(steps)}: "
            "run the newer release, or give this one a store of its own"
        )
    for script in steps[found:]:
        for statement in script.split(";"):
            if statement.strip():
                await connection.execute(text(statement))
    if found < len(steps):
        await connection.execute(text("DELETE FROM history_version"))
        await connection.execute(
            text("INSERT INTO history_version (version) VALUES (:version)"), {"version": len(steps)}
        )
    return found


async def _version(connection: AsyncConnection) -> int:
    await connection.execute(text("CREATE TABLE IF NOT EXISTS history_version (version INTEGER NOT NULL)"))
    version = await connection.scalar(text("SELECT version FROM history_version"))
    return int(version or 0)
