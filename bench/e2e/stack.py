"""Gateways and nginxes of ours before engines that run: a pair for each way that is to be measured, all at once."""

import http.client
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.e2e.clockwork import Clockwork
from bench.engine.engines import Engine, ask
from bench.engine.servers import LOGS
from ops.edge import render_nginx

NGINX_SOURCE = Path(__file__).parents[2] / "nginx"
READY_SECONDS = 60.0
_STEP_SECONDS = 0.1
_OFF = ("GATEWAY_RATE_LIMIT_REQUESTS", "GATEWAY_RATE_LIMIT_TOKENS", "GATEWAY_MAX_STREAMS_PER_CLIENT")


@dataclass(frozen=True, slots=True)
class Commands:
    """How gateway and nginx are started on this machine, and where a gateway of several workers keeps its state."""

    gateway: Sequence[str]
    nginx: Sequence[str]
    state_url: str


class Server(Engine):
    """A process of ours with its children: a session of its own."""

    def __init__(self, name: str, port: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.port, self.log = port, LOGS / f"{name}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **environment},  # noqa: TID251 - the tool's own
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Return once /readyz is 200, asked here or passed on."""
        until = time.monotonic() + READY_SECONDS
        while ask(self.port, "/readyz", 2.0)[0] != http.client.OK:
            if time.monotonic() > until or self.process.poll() is not None:
                raise RuntimeError(f"not ready: {self.last_lines(5)}")
            time.sleep(_STEP_SECONDS)


class Way:
    """`direct`, `gateway:WORKERS` or `edge:WORKERS[:NGINX_WORKERS]`."""

    def __init__(self, text: str) -> None:
        kind, *numbers = text.split(":")
        if kind not in {"direct", "gateway", "edge"} or not all(number.isdigit() for number in numbers):
            raise ValueError(f"{text!r} is no way")
        self.text, self.kind = text, kind
        self.workers = numbers[0] if numbers else "1"
        self.nginx_workers = numbers[1] if len(numbers) > 1 else ""


class Stack:
    """What stands before the engines, by ways."""

    def __init__(self, engines: Sequence[Engine], status_port: int, commands: Commands) -> None:
        self.engines = engines
        # Further engines have the ports next to the launcher's.
        self._status_port, self._next_port, self._commands = status_port, status_port + 100, commands
        self._gateways: dict[str, Server] = {}
        self._edges: dict[str, Server] = {}

    def open(self, way: Way) -> None:
        """Start what the way needs and does not share with one before."""
        if way.kind != "direct" and way.workers not in self._gateways:
            self._gateways[way.workers] = self._gateway(way.workers)
        if way.kind == "edge":
            self._edges[way.text] = self._edge(way, self._gateways[way.workers].port)

    def ports(self, way: Way) -> list[int]:
        """Where the way begins."""
        servers = {"direct": self.engines, "gateway": [self._gateways.get(way.workers)]}
        return [server.port for server in servers.get(way.kind, [self._edges.get(way.text)]) if server]

    def meter(self, way: Way) -> Clockwork:
        """What looks at the cost of everything on this way."""
        parts: dict[str, Sequence[Engine]] = {"engines": self.engines}
        if way.kind != "direct":
            parts["gateway"] = [self._gateways[way.workers]]
        if way.kind == "edge":
            parts["nginx"] = [self._edges[way.text]]
        return Clockwork(parts)

    def stop(self) -> None:
        """End what was started here."""
        for server in (*self._edges.values(), *self._gateways.values()):
            server.stop()

    def _gateway(self, workers: str) -> Server:
        environment = {
            "GATEWAY_UPSTREAMS": f"launcher://127.0.0.1:{self._status_port}",
            "GATEWAY_PORT": str(self._port()),
            "GATEWAY_WORKERS": workers,
            # Loads of several clients come from other addresses of the loopback, by way of nginx at this one.
            "GATEWAY_TRUSTED_PROXIES": "127.0.0.1/32",
            **dict.fromkeys(_OFF, "off"),
            **({"GATEWAY_STATE_URL": self._commands.state_url} if int(workers) > 1 else {}),
        }
        gateway = Server(f"gateway-{workers}", self._next_port, self._commands.gateway, environment)
        gateway.wait_until_ready()
        return gateway

    def _edge(self, way: Way, gateway_port: int) -> Server:
        prefix = LOGS / way.text.replace(":", "-")
        settings = {
            "NGINX_HTTP_PORT": str(self._port()),
            "NGINX_GATEWAY_ADDRESS": f"127.0.0.1:{gateway_port}",
            "NGINX_CHAT_UI_ADDRESS": "127.0.0.1:9",
            "NGINX_RATE_LIMIT_REQUESTS": "off",
            "NGINX_MAX_CONNECTIONS_PER_CLIENT": "off",
        }
        render_nginx(NGINX_SOURCE, prefix, settings)
        if way.nginx_workers:
            path = prefix / "nginx.conf"
            path.write_text(
                re.sub(r"\bworker_processes \d+;", f"worker_processes {way.nginx_workers};", path.read_text())
            )
        user = " user root;" if os.geteuid() == 0 else ""
        options = ["-e", "stderr", "-p", str(prefix), "-c", "nginx.conf", "-g", f"daemon off;{user}"]
        edge = Server(prefix.name, self._next_port, [*self._commands.nginx, *options], {})
        edge.wait_until_ready()
        return edge

    def _port(self) -> int:
        self._next_port += 1
        return self._next_port
