"""The system's nginx with the project's own configuration, rendered by the operator's command."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ops.edge import render_nginx
from tests.conftest import ROOT, free_ports

SOURCE = ROOT / "nginx"
START_TIMEOUT_SECONDS = 5.0
STOP_TIMEOUT_SECONDS = 5.0
LOG_TIMEOUT_SECONDS = 2.0

WORKERS = 2
MAX_BODY_BYTES = 2_000_000
CONTAINER = {
    "NGINX_HTTP_PORT": "8080",
    "NGINX_MAX_BODY_BYTES": str(MAX_BODY_BYTES),
    "NGINX_RATE_LIMIT_REQUESTS": "100/second",
    "NGINX_MAX_CONNECTIONS_PER_CLIENT": "512",
    "NGINX_STATUS_PAGE": "off",
    "NGINX_GATEWAY_ADDRESS": "gateway:8001",
    "NGINX_CHAT_UI_ADDRESS": "chat-ui:8002",
    "NGINX_UPSTREAM_RESOLVE": "resolve",
    "NGINX_LOCAL_RESOLVERS": "127.0.0.11",
}


def find_nginx() -> str:
    """Return nginx's path; it is not on an ordinary user's PATH."""
    found = shutil.which("nginx", path=os.defpath + ":/usr/sbin:/usr/local/sbin")
    assert found, "nginx is not installed: apt-get install nginx"
    return found


class Edge:
    """One nginx in a folder of its own, in front of two loopback ports."""

    def __init__(self, prefix: Path, gateway_port: int = 0, **settings: str) -> None:
        """Take free ports; `gateway_port` names one on which the gateway listens already."""
        self.prefix = prefix
        ports = free_ports(["edge", "tls", "gateway", "chat-ui"])
        self.port, self.tls_port, self.chat_port = ports["edge"], ports["tls"], ports["chat-ui"]
        self.settings = settings
        self.gateway_port = gateway_port or ports["gateway"]
        self._process: subprocess.Popen[bytes] | None = None
        render_nginx(
            SOURCE,
            prefix,
            {
                "NGINX_HTTP_PORT": str(self.port),
                "NGINX_HTTPS_PORT": str(self.tls_port),
                "NGINX_MAX_BODY_BYTES": str(MAX_BODY_BYTES),
                "NGINX_GATEWAY_ADDRESS": f"127.0.0.1:{self.gateway_port}",
                "NGINX_CHAT_UI_ADDRESS": f"127.0.0.1:{self.chat_port}",
                **settings,
            },
        )

    @property
    def url(self) -> str:
        """Its address for clients."""
        if self.settings.get("NGINX_TLS", "off") != "off":
            return f"https://127.0.0.1:{self.tls_port}"
        return f"http://127.0.0.1:{self.port}"

    def trust(self) -> ssl.SSLContext:
        """Return a context that takes this nginx's certificate and no other."""
        return ssl.create_default_context(cafile=str(self.prefix / "run/tls.pem"))

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that serves this folder."""
        # pytest's folders are closed to nginx's own unprivileged user.
        user = " user root;" if os.geteuid() == 0 else ""
        options = ["-e", "stderr", "-p", str(self.prefix), "-c", "nginx.conf", "-g", f"daemon off;{user}"]
        return [find_nginx(), *options, *arguments]

    def shorten(self, file: str, setting: str, value: str) -> None:
        """Replace the value of a directive in one file, to see a timeout without waiting for the real one."""
        path = self.prefix / file
        text, count = re.subn(rf"\b{setting} [^;]+;", f"{setting} {value};", path.read_text())
        assert count == 1, f"{setting} is not in {file}"
        path.write_text(text)

    def start(self) -> None:
        """Start nginx and return once it accepts connections."""
        with (self.prefix / "access.log").open("wb") as out, (self.prefix / "error.log").open("wb") as err:
            self._process = subprocess.Popen(self.command(), stdout=out, stderr=err)
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        raise AssertionError(f"nginx did not start: {(self.prefix / 'error.log').read_text()}")

    def reload(self) -> None:
        """Let new workers take over, as `nginx -s reload` does; returns once they serve."""
        assert self._process is not None
        before = self.workers()
        self._process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while len(self.workers() - before) < WORKERS:
            assert time.monotonic() < deadline, f"no reload: {(self.prefix / 'error.log').read_text()}"
            time.sleep(0.01)

    def workers(self) -> set[int]:
        """Return the processes that serve; others of nginx's look after its cache."""
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        titles = {}
        for child in children:
            # It may have ended by now.
            with contextlib.suppress(FileNotFoundError):
                titles[int(child)] = Path(f"/proc/{child}/cmdline").read_bytes()
        return {child for child, title in titles.items() if title.startswith(b"nginx: worker process")}

    def stop(self) -> int:
        """End nginx at once and return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise

    def stop_if_started(self) -> None:
        """End nginx in order, where a test has started it."""
        if self._process is not None:
            assert self.stop() == 0

    def log(self) -> list[dict[str, Any]]:
        """Return the access log so far."""
        return [json.loads(line) for line in (self.prefix / "access.log").read_text().splitlines()]

    def logged(self, request_id: str) -> dict[str, Any]:
        """Return the access log's line of a request; nginx writes it just after the answer."""
        deadline = time.monotonic() + LOG_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            for entry in self.log():
                if entry["request_id"] == request_id:
                    return entry
            time.sleep(0.01)
        raise AssertionError(f"no log line of request {request_id}")


@contextlib.contextmanager
def running_edges(*, without: tuple[str, ...] = ()) -> Iterator[Callable[[Edge], Edge]]:
    """Start each nginx that is handed in; in the end each stops in order, its error log `without` these levels."""
    edges: list[Edge] = []

    def run(edge: Edge) -> Edge:
        edge.start()
        edges.append(edge)
        return edge

    yield run
    for edge in edges:
        assert edge.stop() == 0
        log = (edge.prefix / "error.log").read_text()
        assert not [level for level in without if f"[{level}]" in log]


# Starts an nginx with these settings, and stops it at the test's end.
StartEdge = Callable[..., Edge]
