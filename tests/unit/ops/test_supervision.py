"""What is written for a stack of plain processes: each program's own variables, and an edge that nginx accepts."""

import configparser
from pathlib import Path

import pytest

from ops.edge import render_nginx
from ops.errors import StackError
from ops.settings import Settings, load_settings
from ops.supervision import Layout, write_configuration
from tests.conftest import ROOT

EDGE = {
    "NGINX_HTTP_PORT": "8080",
    "NGINX_GATEWAY_ADDRESS": "127.0.0.1:8001",
    "NGINX_CHAT_UI_ADDRESS": "127.0.0.1:8002",
}


def test_the_edge_is_rendered_whole(tmp_path: Path) -> None:
    render_nginx(ROOT / "nginx", tmp_path, EDGE)
    server = (tmp_path / "conf.d/server.conf").read_text()
    assert "listen 8080" in server
    assert "${" not in server
    assert "$request_uri" in server
    assert (tmp_path / "snippets/errors.conf").exists()
    assert (tmp_path / "errors/503.json").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("NGINX_MAX_BODY_BYTES", "4m"), ("NGINX_RATE_LIMIT_REQUESTS", "60/minute"), ("NGINX_GATEWAY_ADDRESS", "http://x")],
)
def test_a_bad_value_is_refused_by_name(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(StackError, match=name) as caught:
        render_nginx(ROOT / "nginx", tmp_path, EDGE | {name: value})
    assert caught.value.exit_code == 2


def test_each_program_gets_its_own_variables_and_no_secret_of_another(tmp_path: Path) -> None:
    environ = {
        "STACK_RUN_DIR": str(tmp_path),
        "ENGINE_EXTRA_ARGS": "--seed 1",
        "GATEWAY_PORT": "9001",
        "HF_TOKEN": "hidden",
    }
    layout = Layout.of(load_settings(ROOT, environ))
    write_configuration(layout, "demo")
    text = layout.configuration.read_text()
    parsed = configparser.RawConfigParser(inline_comment_prefixes=(";",))
    parsed.read_string(text)
    engine = parsed["program:vllm"]["environment"]
    gateway = parsed["program:gateway"]["environment"]
    assert 'ENGINE_MODEL="demo"' in engine
    assert 'ENGINE_EXTRA_ARGS="--seed 1"' in engine
    assert "GATEWAY_" not in engine
    assert 'GATEWAY_PORT="9001"' in gateway
    assert "ENGINE_" not in gateway
    assert 'GATEWAY_EDGE_URL="http://127.0.0.1:8080"' in gateway
    chat_ui = parsed["program:chat-ui"]["environment"]
    assert 'CHAT_UI_GATEWAY_URL="http://127.0.0.1:9001"' in chat_ui
    assert f'CHAT_UI_GATEWAY_KEY_FILE="{tmp_path}/chat-ui-key"' in chat_ui
    assert f'GATEWAY_CHAT_UI_KEY_FILE="{tmp_path}/chat-ui-key"' in gateway
    assert "hidden" not in text
    assert layout.configuration.stat().st_mode & 0o077 == 0


def test_the_page_reads_the_key_where_the_gateway_makes_it(tmp_path: Path) -> None:
    layout = Layout.of(Settings(tmp_path, tmp_path, "native", 1, {"GATEWAY_CHAT_UI_KEY_FILE": "keys/page"}))
    assert layout.gateway()["GATEWAY_CHAT_UI_KEY_FILE"] == "keys/page"  # from the run directory, where it starts
    assert layout.chat_ui()["CHAT_UI_GATEWAY_KEY_FILE"] == str(tmp_path / "keys/page")


def front(run_dir: Path, **environ: str) -> tuple[Layout, configparser.RawConfigParser]:
    """Write the configuration for these settings and read it back."""
    layout = Layout.of(load_settings(ROOT, {"STACK_RUN_DIR": str(run_dir), **environ}))
    write_configuration(layout, "demo")
    parsed = configparser.RawConfigParser(inline_comment_prefixes=(";",))
    parsed.read_string(layout.configuration.read_text())
    return layout, parsed


def test_with_tls_the_certificate_is_watched_and_the_gateway_asks_by_https(tmp_path: Path) -> None:
    layout, parsed = front(
        tmp_path, NGINX_TLS="self-signed", NGINX_HTTPS_PORT="9443", NGINX_BASE_PATH="/ernie", NGINX_SERVER_NAMES="a.b"
    )
    assert layout.settings.url == "https://127.0.0.1:9443/ernie"
    assert 'GATEWAY_EDGE_URL="https://127.0.0.1:9443/ernie"' in parsed["program:gateway"]["environment"]
    assert 'CHAT_UI_BASE_PATH="/ernie"' in parsed["program:chat-ui"]["environment"]
    watcher = parsed["program:certificate"]
    assert watcher["command"] == f"/bin/sh {tmp_path}/nginx/certificate.sh watch 10"
    assert 'NGINX_SERVER_NAMES="a.b"' in watcher["environment"]
    assert layout.ports["NGINX_HTTPS_PORT"] == 9443


def test_without_tls_there_is_neither_a_second_port_nor_a_watcher(tmp_path: Path) -> None:
    layout, parsed = front(tmp_path)
    assert layout.settings.url == "http://127.0.0.1:8080"
    assert "program:certificate" not in parsed
    assert "NGINX_HTTPS_PORT" not in layout.ports


def test_given_certificates_lie_in_the_project(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=f"NGINX_TLS_CERTIFICATE: {ROOT}/tls/nowhere.pem is not there") as caught:
        front(tmp_path, NGINX_TLS="files", NGINX_TLS_CERTIFICATE="tls/nowhere.pem")
    assert caught.value.exit_code == 2


def test_limits_of_the_edge_can_be_off(tmp_path: Path) -> None:
    off = {"NGINX_RATE_LIMIT_REQUESTS": "off", "NGINX_MAX_CONNECTIONS_PER_CLIENT": "off"}
    render_nginx(ROOT / "nginx", tmp_path, EDGE | off)
    shield = (tmp_path / "conf.d/shield.conf").read_text()
    assert shield.count('map "off" ') == 2
    assert "${" not in shield + (tmp_path / "conf.d/shield.inc").read_text()


@pytest.mark.parametrize(
    ("environ", "upstreams", "status_port"),
    [
        ({}, "launcher://127.0.0.1:8090", "8090"),
        ({"ENGINE_STATUS_PORT": "9090"}, "launcher://127.0.0.1:9090", "9090"),
        ({"ENGINE_STATUS_PORT": "0", "ENGINE_PORT": "9000"}, "http://127.0.0.1:9000", "0"),
        ({"GATEWAY_UPSTREAMS": "http://elsewhere:8000"}, "http://elsewhere:8000", "8090"),
    ],
)
def test_the_gateway_asks_the_launcher_unless_told_otherwise(
    tmp_path: Path, environ: dict[str, str], upstreams: str, status_port: str
) -> None:
    settings = Settings(tmp_path, tmp_path, "native", 1, environ)
    layout = Layout.of(settings)
    assert layout.gateway()["GATEWAY_UPSTREAMS"] == upstreams
    assert layout.engine()["ENGINE_STATUS_PORT"] == status_port
    assert ("ENGINE_STATUS_PORT" in layout.ports) is (status_port != "0")
