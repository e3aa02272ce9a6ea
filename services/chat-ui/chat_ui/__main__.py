"""`python -m chat_ui` serves the page, `python -m chat_ui health` checks one that runs."""

import asyncio
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import NoReturn

from chat_ui.accounts.errors import LoginError
from chat_ui.accounts.login import Login, set_up_login
from chat_ui.health import check_health
from chat_ui.history.errors import StoreTooNew
from chat_ui.history.opening import data_folder, look_at, store_at
from chat_ui.root import fill_root
from chat_ui.settings import EXIT_BAD_SETTING, Settings, give_chainlit, hide_foreign_settings, read_settings

EXIT_CANNOT_LISTEN = 1
BACKLOG = 1024


def main(arguments: list[str]) -> int:
    """Run one of the two commands, set by the environment alone."""
    if arguments not in ([], ["health"]):
        sys.stderr.write("usage: python -m chat_ui [health]\n")
        return EXIT_BAD_SETTING
    settings = read_settings()
    if arguments:
        return check_health(settings.host, settings.port, settings.base_path)
    # The first process of a container ignores a signal that it does not handle, and the server handles it only later.
    # Until the folder is sure to be removed, the signal waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGTERM, _end)
    # Once Chainlit runs, it ends the process with code 0 whatever happens: what can fail is done before.
    with (
        _listen(settings.host, settings.port) as listener,
        tempfile.TemporaryDirectory(prefix="chat-ui-", ignore_cleanup_errors=True) as folder,
    ):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        hide_foreign_settings()
        root = Path(folder)
        fill_root(root)
        os.chdir(root)
        login = _prepare(settings, root)
        # Chainlit fixes its folders when it is imported, and its paths when its server is.
        from chainlit.config import config  # noqa: PLC0415

        config.run.root_path = settings.base_path
        from chat_ui.server import serve  # noqa: PLC0415

        try:
            serve(settings, root, listener, login)
        except LoginError as error:
            _refuse(error)
    return 0


def _prepare(settings: Settings, root: Path) -> Login | None:
    """Look at all that conversations and logins need; leaves with one line where it cannot be as the settings say."""
    folder = data_folder(settings.data_dir, root)
    try:
        login = set_up_login(settings, folder)
        if settings.keeps_history:
            asyncio.run(look_at(store_at(settings.history_url, folder)))
    except (LoginError, StoreTooNew) as error:
        _refuse(error)
    if login:
        give_chainlit(login.variables)
    return login


def _refuse(error: Exception) -> NoReturn:
    sys.stderr.write(f"chat-ui: {error}\n")
    raise SystemExit(EXIT_BAD_SETTING) from error


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        sys.stderr.write(f"chat-ui: CHAT_UI_HOST={host} CHAT_UI_PORT={port}: {error.strerror}. Choose another.\n")
        raise SystemExit(EXIT_CANNOT_LISTEN) from error
    return listener


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
