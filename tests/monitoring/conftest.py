"""A real Prometheus, with the project's own configuration, on the real stack."""

import contextlib
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.conftest import ROOT, Stack, clean_environment, free_ports

WAIT_SECONDS = 60


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that scrapes."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its API."""
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, trust_env=False, timeout=10)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression gives now."""
        result: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return result


def wait_for(what: str, found: Callable[[], Any]) -> Any:
    """Wait for something that another process does, which tells nobody."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (result := found()):
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.2)
    return result


@contextlib.contextmanager
def running(command: list[str | Path], log: Path) -> Iterator[None]:
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=clean_environment()) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A port that shows a certificate of ten days."""
    folder = tmp_path_factory.mktemp("certificate")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "10", "-subj", "/CN=localhost", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    port = free_ports(["TLS"])["TLS"]
    command: list[str | Path] = ["openssl", "s_server", "-accept", str(port), "-key", key, "-cert", certificate]
    with running([*command, "-quiet"], folder / "log"):
        wait_for("the certificate", lambda: _shows_a_certificate(port))
        yield port


def _shows_a_certificate(port: int) -> bool:
    try:
        return bool(ssl.get_server_certificate(("127.0.0.1", port), timeout=5))
    except OSError:
        return False


@pytest.fixture(scope="module")
def prometheus(stack: Stack, certificate: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """The project's own configuration with this machine's addresses in the place of the containers'."""
    folder = tmp_path_factory.mktemp("prometheus")
    ports = free_ports(["PROMETHEUS", "BLACKBOX"])
    gateway = f"127.0.0.1:{stack.ports['GATEWAY_PORT']}"
    text = (ROOT / "monitoring/prometheus.yml").read_text(encoding="utf-8")
    for name, address in {
        "gateway:8001": gateway,
        "nginx:8080": f"127.0.0.1:{stack.ports['NGINX_HTTP_PORT']}",
        "nginx:8443": f"127.0.0.1:{certificate}",
        "blackbox:9115": f"127.0.0.1:{ports['BLACKBOX']}",
        "refresh_interval: 10s": "refresh_interval: 1s",
        "rules/*.yml": str(ROOT / "monitoring/rules/*.yml"),
    }.items():
        assert name in text
        text = text.replace(name, address)
    configuration = yaml.safe_load(text)
    configuration["global"] |= {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    for job in configuration["scrape_configs"]:
        # There is no name service for what runs on one host; no card either.
        if job.pop("dns_sd_configs", None) and job["job_name"] == "gateway":
            job["static_configs"] = [{"targets": [gateway]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    with (
        running(
            [
                "prometheus-blackbox-exporter",
                f"--config.file={ROOT / 'monitoring/blackbox.yml'}",
                f"--web.listen-address=127.0.0.1:{ports['BLACKBOX']}",
            ],
            folder / "blackbox.log",
        ),
        running(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{ports['PROMETHEUS']}",
            ],
            folder / "prometheus.log",
        ),
    ):
        scraping = Prometheus(f"http://127.0.0.1:{ports['PROMETHEUS']}")
        _ask(stack)
        wait_for("every target to be up", lambda: _targets_up(scraping) == {"gateway", "engine", "edge", "certificate"})
        before = time.time()
        wait_for("a scrape of what was asked", lambda: _scraped_since(scraping, before))
        yield scraping


def _ask(stack: Stack) -> None:
    body = {"messages": [{"role": "user", "content": "你好"}], "stream": True}
    answer = httpx.post(f"{stack.url}/v1/chat/completions", json=body, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text


def _targets_up(prometheus: Prometheus) -> set[str]:
    try:
        active = prometheus.get("targets")["activeTargets"]
    except httpx.HTTPError:
        return set()
    return {target["labels"]["job"] for target in active if target["health"] == "up"}


def _scraped_since(prometheus: Prometheus, moment: float) -> bool:
    times = prometheus.query("timestamp(up)")
    return len(times) >= 4 and all(float(sample["value"][1]) > moment for sample in times)
