"""`python -m gateway` serves; `python -m gateway health` tells by its exit code whether it is ready.

Exit codes: 0 stopped in order, or ready; 1 not ready, or the port is taken; 2 a setting is wrong, or
the file that it names.
"""

import gc
import logging
import os
import socket
import sys
import urllib.error
import urllib.request

from prometheus_client import disable_created_metrics

from gateway import logs
from gateway.app import create_app
from gateway.server import listen, make_server, raise_file_limit
from gateway.settings import Settings, SettingsError, load

HEALTH_TIMEOUT_SECONDS = 3
NOT_READY = 1
WRONG_SETTING = 2
# Some hundred requests' objects, instead of some ten's.
GC_THRESHOLDS = (50_000, 20, 50)
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def main(arguments: list[str]) -> int:
    """Do what the arguments say and return the exit code."""
    try:
        settings = load()
    except SettingsError as error:
        return _fail(str(error), WRONG_SETTING)
    if arguments == ["health"]:
        return check_health(settings)
    if arguments:
        return _fail(f"{arguments[0]!r} is not known; the one subcommand is 'health'.", WRONG_SETTING)
    logs.configure(settings.log_level)
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        address = f"GATEWAY_HOST={settings.host} GATEWAY_PORT={settings.port}"
        return _fail(f"{address} cannot be listened on: {reason}. Stop what uses it, or set another.", NOT_READY)
    return serve(settings, listener)


def serve(settings: Settings, listener: socket.socket) -> int:
    """Serve until a signal has stopped it in order; return the exit code."""
    log = logging.getLogger("gateway")
    raise_file_limit()
    # A second series for each counter, which nothing reads.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        app = create_app(settings)
    except SettingsError as error:
        return _fail(str(error), WRONG_SETTING)
    fields = {"host": settings.host, "port": settings.port, "upstreams": settings.upstreams}
    log.info("started", extra={"fields": fields})
    spare_the_collector()
    make_server(app.serve, app.gateway.drain.advance).run(sockets=[listener])
    log.info("stopped")
    return 0


def spare_the_collector() -> None:
    """Keep what lives as long as the process out of every collection, and collect less often.

    What requests leave behind is freed by counting; cycles are few. CPU time per request is 7 % less (bench/README.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def check_health(settings: Settings) -> int:
    """Ask the gateway of these settings on this machine whether it is ready."""
    host = ANY_ADDRESS.get(settings.host, settings.host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/readyz"
    # No proxy of the environment may stand in between.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=HEALTH_TIMEOUT_SECONDS):
            return 0
    except urllib.error.HTTPError as error:
        return _fail(error.read().decode(errors="replace"), NOT_READY)
    except OSError as error:
        return _fail(f"no answer from {url}: {error}", NOT_READY)


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"gateway: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
