"""ENGINE_* as people, env files and compose write them."""

from pathlib import Path

import pytest
from launcher.errors import BadSetting
from launcher.settings import Settings, foreign, reference, variable


def test_nothing_set_serves_ernie() -> None:
    settings = Settings.from_environment({"PATH": "/bin", "VLLM_LOGGING_LEVEL": "DEBUG"})
    assert settings.model == settings.name == "baidu/ERNIE-4.5-0.3B-PT"
    assert (settings.host, settings.port, settings.device, settings.offline) == ("127.0.0.1", 8000, "auto", False)


def test_an_empty_value_means_the_default() -> None:
    assert Settings.from_environment({"ENGINE_PORT": "", "ENGINE_MODEL": "  "}) == Settings()


@pytest.mark.parametrize("text", ["8123", " 8123 ", '"8123"', "'8123'", "8123\r", '"8123"\r\n'])
def test_quotes_blanks_and_carriage_returns_are_stripped(text: str) -> None:
    assert Settings.from_environment({"ENGINE_PORT": text}).port == 8123


def test_extra_args_keep_their_own_quotes() -> None:
    text = "--compilation-config '{\"mode\": 3}' -tp 2"
    assert Settings.from_environment({"ENGINE_EXTRA_ARGS": text}).extra_args == (
        *("--compilation-config", '{"mode": 3}'),
        *("-tp", "2"),
    )
    both_ends = '"--stream-interval" "4"'
    assert Settings.from_environment({"ENGINE_EXTRA_ARGS": both_ends}).extra_args == ("--stream-interval", "4")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("ENGINE_MODLE", "demo", "did you mean ENGINE_MODEL?"),
        ("ENGINE_COLOUR_OF_MOON", "blue", "no such setting"),
        ("ENGINE_MODEL", "ernie", "hub id"),
        ("ENGINE_MODEL", "--port", "hub id"),
        ("ENGINE_PORT", "eighty", "integer"),
        ("ENGINE_PORT", "70000", "65535"),
        ("ENGINE_DEVICE", "gpu", "'cuda'"),
        ("ENGINE_DTYPE", "int8", "'bfloat16'"),
        ("ENGINE_VRAM_GB", "0", "greater than 0"),
        ("ENGINE_VRAM_GB", "nan", "finite"),
        ("ENGINE_KV_CACHE_GB", "2GB", "number"),
        ("ENGINE_MAX_MODEL_LEN", "-1", "16"),
        ("ENGINE_OFFLINE", "maybe", "on or off"),
        ("ENGINE_EAGER", "yes", "'auto'"),
        ("ENGINE_HUB_ENDPOINT", "hf-mirror.com", "pattern"),
        ("ENGINE_HUB_ENDPOINT", "https://user:secret@host", "pattern"),
        ("ENGINE_EXTRA_ARGS", "--seed 'a", "quotation"),
        ("ENGINE_SERVED_NAME", "-x", "pattern"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, text: str, says: str) -> None:
    with pytest.raises(BadSetting) as caught:
        Settings.from_environment({name: text})
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(f"{name}: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_that_clients_use(tmp_path: Path) -> None:
    assert Settings(model="demo").name == "ernie-demo"
    assert Settings(model=f"{tmp_path}/my-ernie/").name == "my-ernie"
    assert Settings(model="demo", served_name="chat").name == "chat"


def test_the_demo_lies_in_the_repository() -> None:
    assert Settings(model="demo").folder == Path(__file__).resolve().parents[3] / "models" / "demo"
    assert Settings(model="demo", demo_dir="/elsewhere").folder == Path("/elsewhere")


def test_settings_do_not_change_once_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1


def test_only_foreign_names_are_left_for_the_engine() -> None:
    environment = {"ENGINE_PORT": "1", "HF_TOKEN": "secret", "VLLM_LOGGING_LEVEL": "INFO"}
    assert foreign(environment) == {"HF_TOKEN": "secret", "VLLM_LOGGING_LEVEL": "INFO"}


def test_the_reference_names_every_setting_with_a_value_that_is_accepted() -> None:
    lines = reference().splitlines()
    rows = [line.removeprefix("# ") for line in lines if line.startswith("# ENGINE_")]
    assert [row.partition("=")[0] for row in rows] == [variable(field) for field in Settings.model_fields]
    assert Settings.from_environment(dict(row.split("=", 1) for row in rows)) == Settings()
    assert all(info.description for info in Settings.model_fields.values())
