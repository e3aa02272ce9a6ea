"""The store of the settings, and a look at it before the page is served."""

import contextlib
import logging
from pathlib import Path

from chat_ui.history.errors import StoreUnavailable
from chat_ui.history.store import Store

logger = logging.getLogger("chat_ui")

FILE = "history.sqlite"


def data_folder(data_dir: str, root: Path) -> Path:
    """Return the folder for what stays, one below the process's own where none is set."""
    return Path(data_dir) if data_dir else root / "data"


def store_at(url: str, folder: Path) -> Store:
    """Return the store at an address, for an empty one the file in `folder`, which only this user may read."""
    if url:
        return Store(url)
    file = folder / FILE
    # Where this fails, so does the first use of the store, and that says why.
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
    return Store(f"sqlite:///{file}")


async def look_at(store: Store) -> None:
    """Open and upgrade a store, and close it again; raises `StoreTooNew`.

    One that cannot be used now costs no start: the page answers without keeping, and tries again.
    """
    try:
        await store.open()
    except StoreUnavailable as error:
        logger.error("conversations are not kept until this is mended: %s: %s", store.place, error)  # noqa: TRY400
    finally:
        await store.close()
