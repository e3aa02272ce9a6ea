"""The services' limits of time fit together: whoever stands in front waits longer than whoever stands behind."""

import re

import pytest
import yaml
from chat_ui.settings import Settings as ChatUiSettings
from gateway.serving import LAST_BYTES_SECONDS
from gateway.settings import Settings as GatewaySettings
from launcher.settings import Settings as EngineSettings

from tests.conftest import ROOT

GATEWAY, CHAT_UI, ENGINE = GatewaySettings(), ChatUiSettings(), EngineSettings()
# What load balancers in front of all this cut by default when nothing passes.
USUAL_IDLE_LIMIT_SECONDS = 60


def nginx_seconds(file: str, directive: str, block: str = "") -> float:
    """Return a directive's value, in a block of that head if one is named."""
    text = (ROOT / "nginx" / file).read_text(encoding="utf-8")
    inside = re.search(rf"{re.escape(block)} \{{(.*?)^\}}", text, re.DOTALL | re.MULTILINE) if block else None
    found = re.findall(rf"^\s*{directive} (\d+)s;", inside[1] if inside else text, re.MULTILINE)
    assert len(found) == 1, (file, directive)
    return float(found[0])


def grace_seconds(service: str) -> float:
    """Return what a container gets to stop."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return float(compose["services"][service]["stop_grace_period"].removesuffix("s"))


def test_nginx_outwaits_the_gateway_and_the_page() -> None:
    limits = [value for name, value in GATEWAY.model_dump().items() if name.endswith("_timeout_seconds")]
    assert len(limits) > 3
    # A request may meet them one after the other.
    assert nginx_seconds("snippets/stream.conf", "proxy_read_timeout") > sum(limits)
    assert nginx_seconds("snippets/websocket.conf", "proxy_read_timeout") > CHAT_UI.request_timeout_seconds


def test_nginx_outwaits_whatever_an_operator_may_set() -> None:
    def most(name: str) -> float:
        [bound] = [rule.le for rule in GatewaySettings.model_fields[name].metadata if hasattr(rule, "le")]
        return float(bound)

    waits = ("answer_timeout_seconds", "first_token_timeout_seconds", "idle_timeout_seconds")
    silence = most("queue_timeout_seconds") + max(most(name) for name in waits)
    assert nginx_seconds("snippets/stream.conf", "proxy_read_timeout") > silence + GATEWAY.connect_timeout_seconds


def test_the_page_outwaits_the_gateways_silence() -> None:
    assert CHAT_UI.idle_timeout_seconds > GATEWAY.idle_timeout_seconds
    assert CHAT_UI.idle_timeout_seconds > GATEWAY.first_token_timeout_seconds
    assert CHAT_UI.request_timeout_seconds > GATEWAY.answer_timeout_seconds


def test_heartbeats_come_before_anybody_cuts_a_silent_stream() -> None:
    assert GATEWAY.heartbeat_seconds < USUAL_IDLE_LIMIT_SECONDS
    assert GATEWAY.heartbeat_seconds < CHAT_UI.idle_timeout_seconds
    assert GATEWAY.heartbeat_seconds < nginx_seconds("snippets/stream.conf", "proxy_read_timeout")


@pytest.mark.parametrize(
    ("service", "source"),
    [("gateway", "services/gateway/gateway/serving/server.py"), ("chat-ui", "services/chat-ui/chat_ui/server.py")],
)
def test_nginx_lets_go_of_an_idle_connection_first(service: str, source: str) -> None:
    """A connection that both sides may close at once costs a request."""
    kept = re.search(r"^KEEP_ALIVE_SECONDS = (\d+)$", (ROOT / source).read_text(encoding="utf-8"), re.MULTILINE)
    assert kept
    idle = nginx_seconds("templates/upstreams.conf.template", "keepalive_timeout", f"upstream {service}")
    assert idle < float(kept[1])


@pytest.mark.parametrize(
    ("service", "needs"),
    [
        ("gateway", GATEWAY.drain_seconds + LAST_BYTES_SECONDS),
        ("chat-ui", CHAT_UI.shutdown_seconds),
        ("vllm", ENGINE.shutdown_timeout_seconds),
    ],
)
def test_a_container_gets_the_time_that_it_needs_to_stop(service: str, needs: float) -> None:
    assert grace_seconds(service) > needs


@pytest.mark.parametrize("service", ["services/vllm", "services/gateway", "services/chat-ui", "nginx"])
def test_signals_reach_the_service_itself(service: str) -> None:
    """A shell as the first process would keep SIGTERM for itself."""
    text = (ROOT / service / "Dockerfile").read_text(encoding="utf-8")
    commands = re.findall(r"^(?:CMD|ENTRYPOINT) (.*)$", text, re.MULTILINE)
    assert commands
    assert all(command.startswith("[") for command in commands), commands
