"""`python -m gateway` serves; `python -m gateway health` tells by its exit code whether it is ready.

Exit codes: 0 stopped in order, or ready; 1 not ready, or the port is taken; 2 a setting is wrong, or
the file that it names.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from contextlib import AbstractAsyncContextManager
from functools import partial

import uvloop

from gateway import logs
from gateway.app import Application, create_app
from gateway.drain import LAST_EVENT_SECONDS
from gateway.serving import LAST_BYTES_SECONDS, listen, make_server, raise_file_limit
from gateway.settings import Settings, SettingsError, load
from gateway.workers import Shared, Supervisor, usable_cores

HEALTH_TIMEOUT_SECONDS = 3
NOT_READY = 1
WRONG_SETTING = 2
# One carries what a few engines make; the engines of this host need cores too.
MOST_CHOSEN_WORKERS = 4
# What a worker may take from the end of the grace to its end.
AFTER_GRACE_SECONDS = LAST_EVENT_SECONDS + LAST_BYTES_SECONDS + 2.0
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
    workers, reason = how_many_workers(settings)
    common = Shared(workers) if workers > 1 else None
    try:
        app = create_app(settings, common)
    except SettingsError as error:
        return _fail(str(error), WRONG_SETTING)
    fields = {"host": settings.host, "port": settings.port, "upstreams": settings.upstreams}
    log.info("started", extra={"fields": {**fields, "workers": workers, "because": reason}})
    if common:
        # It has shown that nobody else has the address, as one of several would not.
        listener.close()
        code = serve_together(settings, app, common)
    else:
        code = serve_alone(app, listener)
    log.info("stopped")
    return code


def how_many_workers(settings: Settings) -> tuple[int, str]:
    """Return the number of processes that serve, and why so many."""
    if settings.workers:
        return settings.workers, "GATEWAY_WORKERS"
    if not settings.state_url:
        return 1, "without GATEWAY_STATE_URL"
    cores = usable_cores()
    return max(1, min(MOST_CHOSEN_WORKERS, cores // 2)), f"cores that may be used: {cores}"


def serve_alone(app: Application, listener: socket.socket) -> int:
    """Serve in this process."""
    spare_the_collector()
    try:
        make_server(app.serve, app.gateway.drain.advance).run(sockets=[listener])
    finally:
        app.gateway.request_log.flush()
    return 0


def serve_together(settings: Settings, app: Application, common: Shared) -> int:
    """Serve in several processes: one that watches the engines, and the workers."""

    def work(listener: socket.socket) -> int:
        logs.configure(settings.log_level, common.cells.row, common.log_lock)
        return serve_alone(app, listener)

    def watch() -> int:
        logs.configure(settings.log_level, common.cells.row, common.log_lock)
        uvloop.run(until_stopped(app.gateway.watching()))
        return 0

    logs.configure(settings.log_level, lock=common.log_lock)
    if app.gateway.publisher:
        app.gateway.publisher.publish()
    # The processes have what is there now in common, as long as none of them touches it.
    spare_the_collector()
    one_listener = partial(listen, settings.host, settings.port, one_of_several=True)
    return Supervisor(common, watch, work, one_listener, settings.drain_seconds + AFTER_GRACE_SECONDS).run()


async def until_stopped(running: AbstractAsyncContextManager[None]) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running:
        await stop.wait()


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
