"""The process: Chainlit's application behind the edge, on one socket, in one event loop.

Import it only with the working directory at Chainlit's root and `config.run.root_path` set: Chainlit fixes both when it
is imported.
"""

import logging
import shutil
import socket
import sys
from pathlib import Path

import uvicorn
from chainlit import server as chainlit_server
from chainlit.config import config, load_module

from chat_ui import chainlit_fixes
from chat_ui.accounts import callbacks
from chat_ui.accounts.gate import Gate
from chat_ui.accounts.login import Login
from chat_ui.accounts.oauth_return import OAuthReturn
from chat_ui.accounts.throttle import Throttle
from chat_ui.accounts.ways import OAuthLogin
from chat_ui.edge import Edge, content_security_policy
from chat_ui.history.keeping import keep_history
from chat_ui.root import APP_FILE
from chat_ui.settings import Settings
from chat_ui.slow_readers import BrowserSocket

logger = logging.getLogger("chat_ui")

# Longer than nginx keeps an idle connection (60 s), so that it never sends into a closing one.
KEEP_ALIVE_SECONDS = 75

# A line for each request of httpx, one for each page in a language without a file of its own.
QUIET_LOGGERS = {"httpx": logging.WARNING, "uvicorn.error": logging.WARNING, "chainlit": logging.ERROR}


def serve(settings: Settings, root: Path, listener: socket.socket, login: Login | None) -> None:
    """Serve on `listener` until SIGTERM or SIGINT; answers under way are cancelled, their generations with them.

    Raises `LoginError` before it serves.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for name, level in QUIET_LOGGERS.items():
        logging.getLogger(name).setLevel(level)
    config.run.headless = True
    config.run.host, config.run.port = settings.host, settings.port
    config.project.session_timeout = settings.session_timeout_seconds
    if settings.language != "auto":
        config.ui.language = settings.language
    load_module(str(APP_FILE))
    html = chainlit_fixes.own_page(settings.language, settings.base_path, login=settings.login)
    app = keep_history(chainlit_server.app, settings, root) if settings.keeps_history else chainlit_server.app
    if login:
        callbacks.register(login)
        if isinstance(login.way, OAuthLogin):
            app = OAuthReturn(app, way=login.way, passes=login.passes, base_path=settings.base_path)
        app = Gate(
            app,
            way=login.way,
            passes=login.passes,
            trusted_proxies=settings.trusted_proxies,
            header=login.header,
            throttle=Throttle(),
            base_path=settings.base_path,
        )
    edge = Edge(
        app,
        base_path=settings.base_path,
        allowed_origins=settings.allowed_origins,
        policy=content_security_policy(chainlit_fixes.script_hashes(html)),
    )
    server = uvicorn.Server(
        uvicorn.Config(
            edge,
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws=BrowserSocket,
            ws_per_message_deflate=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=settings.shutdown_seconds,
        )
    )
    logger.info("chat page on http://%s:%d, answers from %s", settings.host, settings.port, settings.gateway_url)
    _remove_at_shutdown(root)
    server.run(sockets=[listener])


def _remove_at_shutdown(root: Path) -> None:
    """Remove the root in Chainlit's last hook: after it Chainlit ends the process where it stands."""
    close_page = config.code.on_app_shutdown

    async def close() -> None:
        if close_page:
            await close_page()
        shutil.rmtree(root, ignore_errors=True)

    config.code.on_app_shutdown = close
