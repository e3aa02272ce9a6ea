"""What the environment may say."""

import pytest
from chat_ui.settings import SettingError, Settings, hide_foreign_settings


def test_defaults_need_no_environment() -> None:
    settings = Settings.from_environment({})
    assert (settings.host, settings.port) == ("127.0.0.1", 8002)
    assert settings.gateway_url == "http://127.0.0.1:8001"


@pytest.mark.parametrize("raw", ['"9000"', "'9000'", " 9000\r", "9000"])
def test_values_lose_what_env_files_leave_around_them(raw: str) -> None:
    assert Settings.from_environment({"CHAT_UI_PORT": raw}).port == 9000


def test_empty_value_means_the_default() -> None:
    assert Settings.from_environment({"CHAT_UI_PORT": ""}).port == 8002


def test_unknown_name_is_refused_with_its_nearest_neighbour() -> None:
    with pytest.raises(SettingError, match=r"CHAT_UI_GATEWAY_ULR .* Did you mean CHAT_UI_GATEWAY_URL\?"):
        Settings.from_environment({"CHAT_UI_GATEWAY_ULR": "http://gateway:8001"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CHAT_UI_PORT", "0"),
        ("CHAT_UI_PORT", "eighty"),
        ("CHAT_UI_HOST", "chat-ui"),
        ("CHAT_UI_GATEWAY_URL", "gateway:8001"),
        ("CHAT_UI_LANGUAGE", "fr-FR"),
        ("CHAT_UI_IDLE_TIMEOUT_SECONDS", "nan"),
        ("CHAT_UI_MAX_TOKENS", "0"),
        ("CHAT_UI_TRUSTED_PROXIES", "10.0.0.0/8,nginx"),
        ("CHAT_UI_ALLOWED_ORIGINS", "*"),
        ("CHAT_UI_ALLOWED_ORIGINS", "https://a.example/path"),
    ],
)
def test_bad_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=rf"^{name}="):
        Settings.from_environment({name: value})


def test_origins_are_split_at_commas() -> None:
    settings = Settings.from_environment({"CHAT_UI_ALLOWED_ORIGINS": "https://a.example, https://b.example:8443/"})
    assert settings.allowed_origins == ("https://a.example", "https://b.example:8443")


def test_other_services_settings_are_none_of_its_business() -> None:
    assert Settings.from_environment({"GATEWAY_PORT": "1", "PATH": "/bin"}) == Settings.from_environment({})


def test_what_chainlit_would_act_on_leaves_the_environment() -> None:
    environment = {"DATABASE_URL": "x", "SLACK_BOT_TOKEN": "x", "CHAINLIT_ROOT_PATH": "/x", "PATH": "/bin"}
    hide_foreign_settings(environment)
    assert environment == {"PATH": "/bin"}
