"""The configuration itself: accepted by nginx, clean to the linter, refused by name where a setting is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ops.edge import render_nginx
from tests.edge.server import CONTAINER, SOURCE, Edge

pytestmark = pytest.mark.edge


def check_settings(**changes: str) -> subprocess.CompletedProcess[str]:
    """Run the image's check of its settings."""
    environment = {"PATH": os.defpath} | CONTAINER | changes
    script = SOURCE / "docker-entrypoint.d/05-settings.envsh"
    return subprocess.run(["sh", script], env=environment, capture_output=True, text=True, timeout=5, check=False)


def test_nginx_accepts_the_native_rendering(tmp_path: Path) -> None:
    result = subprocess.run(Edge(tmp_path).command("-t"), capture_output=True, text=True, timeout=10, check=False)
    assert (result.returncode, "[" in result.stderr.replace("[notice]", "")) == (0, False), result.stderr


@pytest.mark.parametrize("resolve", ["", "resolve"], ids=["native", "container"])
def test_the_linter_finds_nothing(tmp_path: Path, resolve: str) -> None:
    render_nginx(SOURCE, tmp_path, CONTAINER | {"NGINX_UPSTREAM_RESOLVE": resolve})
    gixy = Path(sys.executable).parent / "gixy"
    result = subprocess.run([gixy, "nginx.conf"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No issues found" in result.stdout


def test_the_containers_defaults_are_accepted() -> None:
    result = check_settings(NGINX_VERSION="1.30.0", NGINX_ENTRYPOINT_QUIET_LOGS="1", NGINX_ENVSUBST_FILTER="^NGINX_")
    assert (result.returncode, result.stderr) == (0, "")


def test_limits_may_be_off(tmp_path: Path) -> None:
    edge = Edge(tmp_path, NGINX_RATE_LIMIT_REQUESTS="off", NGINX_MAX_CONNECTIONS_PER_CLIENT="off")
    result = subprocess.run(edge.command("-t"), capture_output=True, text=True, timeout=10, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("value", ["8080\r", " 8080 ", '"8080"'])
def test_stray_characters_around_a_value_are_dropped(value: str) -> None:
    assert check_settings(NGINX_HTTP_PORT=value).returncode == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NGINX_HTTP_PORT", ""),
        ("NGINX_HTTP_PORT", "0"),
        ("NGINX_HTTP_PORT", "65536"),
        ("NGINX_HTTP_PORT", "80; include /etc/passwd"),
        ("NGINX_MAX_BODY_BYTES", "4m"),
        ("NGINX_MAX_BODY_BYTES", "99999999999999999999"),
        ("NGINX_RATE_LIMIT_REQUESTS", ""),
        ("NGINX_RATE_LIMIT_REQUESTS", "100"),
        ("NGINX_RATE_LIMIT_REQUESTS", "0/second"),
        ("NGINX_RATE_LIMIT_REQUESTS", "60/minute"),
        ("NGINX_RATE_LIMIT_REQUESTS", "1000001/second"),
        ("NGINX_RATE_LIMIT_REQUESTS", "off/second"),
        ("NGINX_STATUS_PAGE", "yes"),
        ("NGINX_MAX_CONNECTIONS_PER_CLIENT", "0"),
        ("NGINX_MAX_CONNECTIONS_PER_CLIENT", "65536"),
        ("NGINX_MAX_CONNECTIONS_PER_CLIENT", "5; x"),
        ("NGINX_GATEWAY_ADDRESS", "gateway"),
        ("NGINX_GATEWAY_ADDRESS", "http://gateway:8001"),
        ("NGINX_GATEWAY_ADDRESS", "gateway:"),
        ("NGINX_CHAT_UI_ADDRESS", "chat-ui:port"),
        ("NGINX_CHAT_UI_ADDRESS", "chat-ui:8002;"),
        ("NGINX_MAX_BODYBYTES", "1"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, value: str) -> None:
    result = check_settings(**{name: value})
    assert result.returncode == 2
    assert result.stderr.startswith(f"{name}: ")
    assert result.stderr.count("\n") == 1
