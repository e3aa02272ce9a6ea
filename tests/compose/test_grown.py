"""The same stack grown by every compose file at once: TLS, two gateways with Valkey, two pages, and Prometheus.

Grafana, the blackbox exporter and the card's exporter are not started here: their images come from registries that CI
does not reach, and the last needs a card.
"""

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.compose.conftest import FILES, PROJECT, Containers, docker, inspect_all
from tests.conftest import ROOT, free_ports
from tests.edge.certificates import Pair, make_pair
from tests.monitoring.expressions import alerts

pytestmark = pytest.mark.compose

PATIENCE_SECONDS = 60
COPIES = 2
PEOPLE = 8
FOUND_SECONDS = 5
STREAMS, LONG_TOKENS = 6, 1200
SOCKET = "/ws/socket.io/?EIO=4&transport=polling"
HTML = {"Accept": "text/html"}


@dataclass(frozen=True)
class Grown:
    """The grown stack: its addresses, its certificate, a client that trusts that, and the command that grew it."""

    url: str
    plain_url: str
    prometheus: str
    pair: Pair
    client: httpx.Client
    up: Callable[..., None]


@pytest.fixture(scope="module")
def grown(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grown]:
    """One `up` on top of what runs; what is new or set otherwise is started anew, the engine stays."""
    ports = free_ports(["NGINX_HTTPS_PORT", "STACK_PROMETHEUS_PORT"])
    folder = ROOT / "tls" / PROJECT
    engine = [details["Id"] for details in inspect_all("vllm")]
    pair = make_pair(folder)
    # The container's user is none of this host's.
    pair.key.chmod(0o644)
    settings = {
        **{name: str(port) for name, port in ports.items()},
        "NGINX_HTTP_PORT": containers.environment["NGINX_HTTP_PORT"],
        "ENGINE_MODEL": "demo",
        "GATEWAY_STATE_URL": "redis://valkey:6379",
        "NGINX_TLS": "files",
        "NGINX_TLS_CERTIFICATE": str(pair.certificate.relative_to(ROOT)),
        "NGINX_TLS_KEY": str(pair.key.relative_to(ROOT)),
    }

    def up(*words: str) -> None:
        docker("compose", *FILES, "--profile", "valkey", "up", "--detach", *words, **settings)

    try:
        up(
            *("--wait", "--wait-timeout", "180", "--scale", f"gateway={COPIES}", "--scale", f"chat-ui={COPIES}"),
            *("vllm", "gateway", "chat-ui", "nginx", "valkey", "prometheus"),
        )
        assert [details["Id"] for details in inspect_all("vllm")] == engine
        url = f"https://127.0.0.1:{ports['NGINX_HTTPS_PORT']}"
        trust = ssl.create_default_context(cafile=str(pair.certificate))
        with httpx.Client(base_url=url, verify=trust, http2=True, trust_env=False, timeout=60) as client:
            yield Grown(url, containers.url, f"http://127.0.0.1:{ports['STACK_PROMETHEUS_PORT']}", pair, client, up)
    finally:
        for file in (pair.certificate, pair.key):
            file.unlink()
        folder.rmdir()


def wait_for(what: str, found: Callable[[], Any]) -> Any:
    """Wait for something that another process does, which tells nobody."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (result := found()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.2)
    return result


def upstream_of(request_id: str) -> str:
    """Return which copy nginx asked for a request."""
    (nginx,) = inspect_all("nginx")

    def logged() -> str | None:
        lines = [line for line in docker("logs", "--tail", "400", nginx["Id"]).splitlines() if line.startswith("{")]
        return next(
            (entry["upstream"] for line in lines if (entry := json.loads(line))["request_id"] == request_id), None
        )

    found: str = wait_for(f"nginx's line of {request_id}", logged)
    return found


def engines_of(gateway: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a gateway knows of its engines."""
    read = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8001/readyz?verbose').read().decode())"
    engines: list[dict[str, Any]] = json.loads(docker("exec", gateway["Id"], "python", "-c", read))["engines"]
    return engines


def busy_at(gateways: list[dict[str, Any]]) -> set[str]:
    """Return the engines that have something to do."""
    return {engine["engine"] for gateway in gateways for engine in engines_of(gateway) if engine["outstanding"]}


def whole_stream(client: httpx.Client, question: str) -> int:
    """Read a long stream to its end and return its tokens by the engine's figure."""
    body = {
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "max_tokens": LONG_TOKENS,
    }
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    tokens: int = json.loads(events[-2])["usage"]["completion_tokens"]
    return tokens


def ask_prometheus(grown: Grown, path: str) -> Any:
    answer = httpx.get(f"{grown.prometheus}/api/v1/{path}", trust_env=False, timeout=10)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def test_https_answers_and_plain_http_leads_there(grown: Grown, questions: list[dict[str, Any]]) -> None:
    case = questions[0]
    body = {"model": "ernie-demo", "messages": case["messages"], "max_tokens": 1024}
    answer = grown.client.post("/v1/chat/completions", json=body)
    assert (answer.http_version, answer.status_code) == ("HTTP/2", 200), answer.text
    assert answer.json()["choices"][0]["message"]["content"] == case["answer"]
    led = httpx.get(f"{grown.plain_url}/v1/models", trust_env=False)
    assert (led.status_code, led.headers["location"]) == (308, f"{grown.url}/v1/models")
    assert "strict-transport-security" in answer.headers


def test_two_gateways_count_one_client_together_in_valkey(grown: Grown) -> None:
    left, asked = [], set()
    for number in range(6):
        request_id = f"shared-{number}"
        body = {"messages": [{"role": "user", "content": "你好"}], "max_tokens": 1}
        answer = grown.client.post("/v1/chat/completions", json=body, headers={"X-Request-Id": request_id})
        assert answer.status_code == 200, answer.text
        left.append(int(answer.headers["x-ratelimit-remaining-requests"]))
        asked.add(upstream_of(request_id))
    assert len(asked) == COPIES
    # Each gateway alone would count to half of it.
    assert left[0] - left[-1] == len(left) - 1
    (valkey,) = inspect_all("valkey")
    assert int(docker("exec", valkey["Id"], "valkey-cli", "dbsize")) > 0


def test_nothing_is_published_but_nginx_and_on_this_host_alone_prometheus(grown: Grown) -> None:
    published = {
        (details["Config"]["Labels"]["com.docker.compose.service"], binding["HostIp"] or "0.0.0.0")
        for details in inspect_all()
        for bindings in (details["HostConfig"]["PortBindings"] or {}).values()
        for binding in bindings
    }
    assert published == {("nginx", "0.0.0.0"), ("prometheus", "127.0.0.1")}


def test_prometheus_scrapes_both_gateways_and_the_engine_and_has_the_rules(grown: Grown) -> None:
    def scraped() -> bool:
        up = [
            one["labels"]["job"] for one in ask_prometheus(grown, "targets")["activeTargets"] if one["health"] == "up"
        ]
        return sorted(up) == ["engine", *["gateway"] * COPIES]

    wait_for("the targets", scraped)
    groups = ask_prometheus(grown, "rules")["groups"]
    assert {rule["name"] for group in groups for rule in group["rules"]} == {rule["alert"] for rule in alerts()}
    # The edge is asked by way of the blackbox exporter, and the card's exporter needs a card.
    jobs = {one["labels"]["job"] for one in ask_prometheus(grown, "targets")["activeTargets"]}
    assert jobs == {"gateway", "engine", "edge", "certificate"}


def test_valkey_is_confined_forgets_nobody_and_writes_nothing(grown: Grown) -> None:
    (valkey,) = inspect_all("valkey")
    assert valkey["HostConfig"]["ReadonlyRootfs"] is True
    assert valkey["HostConfig"]["CapDrop"] == ["ALL"]
    assert docker("exec", valkey["Id"], "id", "-u").strip() == "10001"
    told = [
        docker("exec", valkey["Id"], "valkey-cli", "config", "get", name).split()[1:] for name in ("save", "appendonly")
    ]
    assert told == [[], ["no"]]
    assert "noeviction" in docker("exec", valkey["Id"], "valkey-cli", "config", "get", "maxmemory-policy")
    # A network of the gateway's alone, that leads nowhere.
    (network,) = valkey["NetworkSettings"]["Networks"]
    (details,) = json.loads(docker("network", "inspect", network))
    assert details["Internal"] is True
    names = {container["Name"] for container in details["Containers"].values()}
    assert {re.sub(rf"^{PROJECT}-|-\d+$", "", name) for name in names} == {"gateway", "valkey"}


def test_a_person_stays_at_one_of_two_pages(grown: Grown) -> None:
    pages = set()
    trust = ssl.create_default_context(cafile=str(grown.pair.certificate))
    for person in range(PEOPLE):
        with httpx.Client(base_url=grown.url, verify=trust, trust_env=False, timeout=30) as browser:
            assert browser.get("/", headers=HTML).status_code == 200
            opened = browser.get(SOCKET, headers={"X-Request-Id": f"person-{person}"})
            assert opened.status_code == 200, opened.text
            session = json.loads(opened.text[1:])["sid"]
            # Only the copy that opened the session knows it.
            answers = [browser.post(f"{SOCKET}&sid={session}", content="3") for _ in range(4)]
            assert [answer.text for answer in answers] == ["OK"] * 4
            pages.add(upstream_of(f"person-{person}"))
    assert len(pages) == COPIES


def test_an_engine_that_is_added_is_found_in_5_s_and_one_taken_away_loses_no_request(
    grown: Grown, questions: list[dict[str, Any]]
) -> None:
    grown.up("--no-deps", "--no-recreate", "--scale", f"vllm={COPIES}", "vllm")
    added = max(inspect_all("vllm"), key=lambda details: str(details["Created"]))
    gateways = inspect_all("gateway")

    def states(gateway: dict[str, Any]) -> set[str]:
        return {engine["state"] for engine in engines_of(gateway)}

    found_at: dict[str, datetime] = {}

    def all_have_found_it() -> bool:
        for gateway in gateways:
            engines = engines_of(gateway)
            if len(engines) == COPIES:
                # What it says of the new one at first sight: it is renewed with every state.
                found_at.setdefault(gateway["Id"], max(datetime.fromisoformat(engine["since"]) for engine in engines))
        return len(found_at) == COPIES

    wait_for("both engines", all_have_found_it)
    started_at = datetime.fromisoformat(f"{added['State']['StartedAt'][:19]}+00:00")
    assert all((found - started_at).total_seconds() <= FOUND_SECONDS for found in found_at.values())
    for gateway in gateways:
        wait_for("the new engine", lambda gateway=gateway: states(gateway) == {"ready"})
    with ThreadPoolExecutor(STREAMS + 1) as people:
        # Of one conversation all would go to one engine.
        streams = [people.submit(whole_stream, grown.client, f"Question {number}") for number in range(STREAMS)]
        wait_for("work at each engine", lambda: len(busy_at(gateways)) == COPIES)
        taking_away = people.submit(grown.up, "--no-deps", "--no-recreate", "--scale", "vllm=1", "vllm")
        answers: list[httpx.Response] = []
        while not taking_away.done():
            case = questions[len(answers) % len(questions)]
            body = {"model": "ernie-demo", "messages": case["messages"], "max_tokens": 1024}
            answers.append(grown.client.post("/v1/chat/completions", json=body))
            assert answers[-1].status_code == 200, answers[-1].text
            assert answers[-1].json()["choices"][0]["message"]["content"] == case["answer"]
        taking_away.result()
        assert [stream.result() for stream in streams] == [LONG_TOKENS] * STREAMS
    assert answers
    for gateway in gateways:
        wait_for("one engine alone", lambda gateway=gateway: len(engines_of(gateway)) == 1)


def test_a_certificate_is_renewed_while_a_stream_goes_on(grown: Grown, tmp_path: Path) -> None:
    renewed = make_pair(tmp_path)
    renewed.key.chmod(0o644)
    seen: list[float] = []
    ends: list[str] = []
    faults: list[Exception] = []
    stop = threading.Event()

    def read() -> None:
        body = {
            "messages": [{"role": "user", "content": "你好"}],
            "stream": True,
            "ignore_eos": True,
            "max_tokens": 3900,
        }
        try:
            # nginx takes up to 20 s to find the new one: one stream after the other, on one connection.
            while not stop.is_set():
                with grown.client.stream("POST", "/v1/chat/completions", json=body) as answer:
                    for line in answer.iter_lines():
                        seen.append(time.monotonic())
                        if stop.is_set():
                            return
                        ends.append(line)
                        del ends[:-2]
                assert "data: [DONE]" in ends
        except (httpx.HTTPError, AssertionError) as error:
            faults.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        wait_for("the first event", lambda: seen or faults)
        grown.pair.replace_by(renewed)
        wanted = ssl.PEM_cert_to_DER_cert(renewed.certificate.read_text())
        port = int(grown.url.rpartition(":")[2])
        wait_for("the new certificate", lambda: _served(port) == wanted)
        served_at = time.monotonic()
        wait_for("another event after it", lambda: faults or seen[-1] > served_at)
    finally:
        stop.set()
        reader.join(PATIENCE_SECONDS)
    assert faults == []


def _served(port: int) -> bytes:
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port), timeout=5))


def test_without_a_password_for_grafana_nothing_starts_and_it_is_named(docker_engine: None) -> None:
    with pytest.raises(AssertionError, match=r"STACK_GRAFANA_PASSWORD.*set it in \.env"):
        docker("compose", *FILES, "config", STACK_GRAFANA_PASSWORD="")
