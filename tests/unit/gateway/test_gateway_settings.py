"""Settings: strict about names and values, forgiving about what shells leave around them."""

import subprocess
import sys
from pathlib import Path

import pytest
from gateway.settings import Settings, SettingsError, load


def test_defaults_need_no_environment() -> None:
    settings = load({})
    assert settings == Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8001)
    assert settings.upstreams == ("http://127.0.0.1:8000",)


def test_other_services_names_are_none_of_its_business() -> None:
    assert load({"ENGINE_MODEL": "x", "CHAT_UI_PORT": "?", "PATH": "/bin", "gateway_port": "x"}) == Settings()


@pytest.mark.parametrize("value", ["9", " 9\r", '"9"', "'9' ", "9\n"])
def test_values_are_freed_of_what_shells_leave(value: str) -> None:
    assert load({"GATEWAY_PORT": value}).port == 9


@pytest.mark.parametrize("value", ["", " ", '""'])
def test_empty_is_the_default(value: str) -> None:
    assert load({"GATEWAY_PORT": value}).port == 8001


def test_several_upstreams() -> None:
    given = {"GATEWAY_UPSTREAMS": "http://a:8000, https://b/ ,dns://vllm:8000,http://[::1]:8000"}
    assert load(given).upstreams == ("http://a:8000", "https://b", "dns://vllm:8000", "http://[::1]:8000")
    given = {"GATEWAY_UPSTREAMS": "launcher://vllm:8090/,launcher://[::1]:8090"}
    assert load(given).upstreams == ("launcher://vllm:8090", "launcher://[::1]:8090")


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("http://nginx:8080/", "http://nginx:8080"),
        ("http://[::1]:80", "http://[::1]:80"),
        ("http://nginx", "http://nginx"),
        ("https://nginx:8443/ernie/", "https://nginx:8443/ernie"),
        ("off", ""),
        ("", ""),
    ],
)
def test_where_nginx_is(value: str, url: str) -> None:
    assert load({"GATEWAY_EDGE_URL": value}).edge_url == url


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GATEWAY_PORT", "0"),
        ("GATEWAY_PORT", "65536"),
        ("GATEWAY_PORT", "eighty"),
        ("GATEWAY_WARMUP", "maybe"),
        ("GATEWAY_LOG_LEVEL", "loud"),
        ("GATEWAY_DRAIN_SECONDS", "-1"),
        ("GATEWAY_HEARTBEAT_SECONDS", "0"),
        ("GATEWAY_IDLE_TIMEOUT_SECONDS", "nan"),
        ("GATEWAY_IDLE_TIMEOUT_SECONDS", "inf"),
        ("GATEWAY_MAX_BODY_BYTES", "2MB"),
        ("GATEWAY_UPSTREAMS", ","),
        ("GATEWAY_UPSTREAMS", "vllm:8000"),
        ("GATEWAY_UPSTREAMS", "ftp://vllm"),
        ("GATEWAY_UPSTREAMS", "http://vllm:99999"),
        ("GATEWAY_UPSTREAMS", "http://vllm:8000/v1"),
        ("GATEWAY_UPSTREAMS", "http://user:secret@vllm:8000"),
        ("GATEWAY_UPSTREAMS", "http://a,http://a"),
        ("GATEWAY_UPSTREAMS", "launcher://vllm:8090/status"),
        ("GATEWAY_UPSTREAMS", "launcher://[::x]:8090"),
        ("GATEWAY_UPSTREAMS", "launcher://a:1,dns://a:1"),
        ("GATEWAY_EDGE_URL", "nginx:8080"),
        ("GATEWAY_EDGE_URL", "ftp://nginx"),
        ("GATEWAY_EDGE_URL", "http://nginx/a b"),
        ("GATEWAY_EDGE_URL", "http://nginx/ernie?x"),
        ("GATEWAY_EDGE_URL", "http://nginx:99999"),
        ("GATEWAY_EDGE_URL", "http://[::x]"),
    ],
)
def test_wrong_value_names_the_variable_on_one_line(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load({name: value})
    message = str(refused.value)
    assert message.startswith(f"{name}=")
    assert "\n" not in message


@pytest.mark.parametrize("name", ["GATEWAY_PROT", "GATEWAY_UPSTREAM", "GATEWAY_Port", "GATEWAY_"])
def test_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load({name: ""})
    assert str(refused.value).startswith(f"{name} is not a setting")


def test_unknown_name_gets_the_closest() -> None:
    with pytest.raises(SettingsError, match=r"Did you mean GATEWAY_PORT\?"):
        load({"GATEWAY_PROT": "1"})


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load({}).port = 1  # type: ignore[misc]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        env=environment, cwd=Path("/"), capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("environment", [{"GATEWAY_PROT": "1"}, {"GATEWAY_PORT": "x"}])
def test_process_refuses_wrong_settings_with_exit_code_2(environment: dict[str, str]) -> None:
    done = run(**environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert next(iter(environment)) in done.stderr


def test_process_refuses_unknown_arguments() -> None:
    done = run("serve")
    assert done.returncode == 2
    assert "'serve'" in done.stderr
