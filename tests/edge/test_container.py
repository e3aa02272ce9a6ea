"""The image: built, hardened, started before its upstreams, and in front of services that move."""

import json
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.edge.certificates import Pair, make_pair
from tests.edge.server import SOURCE

pytestmark = pytest.mark.compose

PROJECT = "ernie-serving-test-edge"
FOUND_WITHIN_SECONDS = 10.0
RENEWED_WITHIN_SECONDS = 60.0
# The edge's own base image stands behind it as well: a whole configuration of one line tells each copy's address.
FILE = f"""
services:
  edge: &edge
    build: {json.dumps(str(SOURCE))}
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    tmpfs: ["/etc/nginx/conf.d:uid=101,gid=101", "/etc/nginx/run:uid=101,gid=101,size=96m"]
    ports: ["127.0.0.1::8080"]
    healthcheck: {{ interval: 1s }}
  gateway: &service
    image: nginx:1.30
    command:
      - sh
      - -c
      - >-
        echo 'events {{}} http {{ server {{ listen 8001; listen 8002; return 200 "$$server_addr"; }} }}' > /tmp/n.conf
        && exec nginx -c /tmp/n.conf -g 'daemon off;'
  chat-ui: *service
  tls: # as docker-compose.tls.yml has it
    <<: *edge
    environment: {{ NGINX_TLS: "${{TEST_TLS:-self-signed}}", NGINX_HTTPS_PORT: "8443" }}
    ports: ["127.0.0.1::8443"]
    volumes: ["certificate:/etc/nginx/tls", "${{TEST_FOLDER:-certificate}}:/tls:ro"]
volumes:
  certificate:
"""


def compose(*arguments: str, returncode: int = 0, **environment: str) -> str:
    """Call docker compose on the file above; returns what it printed."""
    done = subprocess.run(
        ["docker", "compose", "--project-name", PROJECT, "--file", "-", *arguments],
        input=FILE,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == returncode, done.stdout
    return done.stdout


def containers(service: str) -> list[str]:
    """Return the names of a service's containers, oldest first."""
    lines = compose("ps", "--format", "json", service).splitlines()
    return sorted(json.loads(line)["Name"] for line in lines if line.startswith("{"))


@pytest.fixture
def client(docker_engine: None) -> Iterator[httpx.Client]:
    """A client of the edge alone: nothing stands behind it yet, and it is healthy all the same."""
    try:
        compose("up", "--build", "--detach", "--wait", "--wait-timeout", "60", "edge")
        address = compose("port", "edge", "8080").strip()
        with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=5) as client:
            yield client
    finally:
        compose("--profile", "*", "down", "--volumes", "--rmi", "local", "--timeout", "2")


def wait_for(answered: Callable[[], bool], seconds: float = FOUND_WITHIN_SECONDS) -> None:
    """Ask again until the edge has found its service."""
    deadline = time.monotonic() + seconds
    while not answered():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)


def test_the_edge_finds_services_that_come_late_and_move(client: httpx.Client) -> None:
    assert client.get("/healthz").text == "ok\n"
    refused = client.post("/v1/chat/completions", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (502, "bad_gateway")
    page = client.get("/", headers={"Accept": "text/html"})
    assert (page.status_code, "正在启动" in page.text) == (502, True)

    compose("up", "--detach", "gateway", "chat-ui")
    wait_for(lambda: client.get("/v1/models").status_code == client.get("/").status_code == 200)
    first_address = client.get("/v1/models").text

    # A second copy takes another address; then the first goes, as when a service is recreated.
    (first,) = containers("gateway")
    compose("up", "--detach", "--no-recreate", "--scale", "gateway=2", "gateway", "chat-ui")
    subprocess.run(["docker", "rm", "--force", first], check=True, capture_output=True, timeout=30)
    wait_for(lambda: client.get("/v1/models").text not in ("", first_address) and client.get("/v1/models").is_success)
    assert {client.get("/v1/models").text for _ in range(20)} == {client.get("/v1/models").text}

    (edge,) = containers("edge")
    log = subprocess.run(["docker", "logs", edge], check=True, capture_output=True, text=True, timeout=30)
    entries = [json.loads(line) for line in log.stdout.splitlines()]
    assert {entry["status"] for entry in entries} >= {200, 502}
    assert {entry["service"] for entry in entries} == {"nginx"}


def test_a_wrong_setting_stops_the_container(client: httpx.Client) -> None:
    output = compose("run", "--rm", "-e", "NGINX_MAX_BODY_BYTES=2m", "edge", returncode=2)
    assert "NGINX_MAX_BODY_BYTES: '2m' is not a whole number from 1 to 67108864" in output


def up_with_tls(**environment: str) -> int:
    """Start the edge with TLS, or anew; returns its port on this host."""
    compose("up", "--detach", "--force-recreate", "--wait", "--wait-timeout", "60", "tls", **environment)
    return int(compose("port", "tls", "8443").strip().rpartition(":")[2])


def served(port: int) -> str:
    """Return the certificate that a new connection gets, in PEM."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=5)


def test_a_self_signed_certificate_outlives_its_container(client: httpx.Client) -> None:
    port = up_with_tls()
    first = served(port)
    assert agreed_protocol(port, first) == "h2"
    with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusting(first), trust_env=False) as encrypted:
        assert encrypted.get("/healthz").text == "ok\n"
    assert served(up_with_tls()) == first
    (name,) = containers("tls")
    log = subprocess.run(["docker", "logs", name], check=True, capture_output=True, text=True, timeout=30)
    assert "[warn]" not in log.stderr


def agreed_protocol(port: int, certificate: str) -> str | None:
    context = trusting(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as encrypted,
    ):
        return encrypted.selected_alpn_protocol()


def trusting(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificate)


def test_given_certificates_are_renewed_in_the_running_container(client: httpx.Client, tmp_path: Path) -> None:
    folder, renewed = tmp_path / "tls", make_pair(tmp_path / "renewed")
    pair = make_pair(folder)
    give = {"TEST_TLS": "files", "TEST_FOLDER": str(folder)}
    pair.key.chmod(0o600)
    compose("up", "--detach", "tls", **give)
    wait_for(lambda: "cannot be read by user 101: chown 101 tls/privkey.pem" in compose("logs", "tls", **give))
    os.chown(pair.key, 101, 101)
    port = up_with_tls(**give)
    assert same(served(port), pair)
    pair.replace_by(renewed)
    wait_for(lambda: same(served(port), renewed), RENEWED_WITHIN_SECONDS)


def same(certificate: str, pair: Pair) -> bool:
    """Tell whether a certificate in PEM is that of a pair, however its lines are broken."""
    return ssl.PEM_cert_to_DER_cert(certificate) == ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


def test_tls_without_its_compose_file_says_so(client: httpx.Client) -> None:
    output = compose("run", "--rm", "-e", "NGINX_TLS=self-signed", "edge", returncode=2)
    assert "NGINX_HTTPS_PORT: NGINX_TLS=self-signed needs a port; with Docker add docker-compose.tls.yml" in output
