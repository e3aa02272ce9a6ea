"""The operator's settings: a misspelt or bad one stops the command, and its name is in the message."""

from pathlib import Path

import pytest

from ops.errors import StackError
from ops.settings import load_settings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".env.example").write_text("# ENGINE_MODEL=demo\nNGINX_HTTP_PORT=8080\n# STACK_WAY=auto\n")
    return tmp_path


def test_environment_wins_over_env_file(root: Path) -> None:
    (root / ".env").write_text("NGINX_HTTP_PORT=9000\nENGINE_MODEL=from-file\n")
    settings = load_settings(root, {"NGINX_HTTP_PORT": "9001"})
    assert settings.port("NGINX_HTTP_PORT", 8080) == 9001
    assert settings.model == "from-file"


def test_no_env_file_gives_the_defaults(root: Path) -> None:
    settings = load_settings(root, {})
    assert settings.port("NGINX_HTTP_PORT", 8080) == 8080
    assert settings.way == "auto"


def test_empty_value_counts_as_not_set(root: Path) -> None:
    assert load_settings(root, {"NGINX_HTTP_PORT": ""}).port("NGINX_HTTP_PORT", 8080) == 8080


@pytest.mark.parametrize(
    ("name", "hint"),
    [("ENGINE_MODELL", "ENGINE_MODEL"), ("NGINX_PORT", "NGINX_HTTP_PORT"), ("GATEWAY_XYZZY", ".env.example")],
)
def test_unknown_name_is_refused_with_a_hint(root: Path, name: str, hint: str) -> None:
    with pytest.raises(StackError, match=name) as caught:
        load_settings(root, {name: "1"})
    assert hint in str(caught.value)
    assert caught.value.exit_code == 2


def test_unknown_name_in_env_file_is_refused(root: Path) -> None:
    (root / ".env").write_text("ENGINE_MODEL_NAME=x\n")
    with pytest.raises(StackError, match="ENGINE_MODEL_NAME"):
        load_settings(root, {})


@pytest.mark.parametrize("value", ["http", "0", "65536", "-1", "80.5"])
def test_bad_port_names_the_variable(root: Path, value: str) -> None:
    with pytest.raises(StackError, match="NGINX_HTTP_PORT"):
        load_settings(root, {"NGINX_HTTP_PORT": value}).port("NGINX_HTTP_PORT", 8080)


def test_unknown_way_is_refused(root: Path) -> None:
    with pytest.raises(StackError, match="STACK_WAY"):
        load_settings(root, {"STACK_WAY": "podman"})


def test_each_service_sees_its_own_variables(root: Path) -> None:
    settings = load_settings(root, {"ENGINE_MODEL": "demo", "NGINX_HTTP_PORT": "81", "HF_TOKEN": "secret"})
    assert settings.of_service("ENGINE_") == {"ENGINE_MODEL": "demo"}
