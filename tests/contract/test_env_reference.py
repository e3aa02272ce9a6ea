"""`.env.example` is the one reference: every setting stands in it once, with its default, and reaches its service."""

import json
import re
from typing import Any

import pytest
import yaml
from chat_ui.settings import Settings as ChatUiSettings
from gateway.settings import Settings as GatewaySettings
from launcher.settings import Settings as EngineSettings
from pydantic import BaseModel

from tests.conftest import ROOT

SERVICES: dict[str, tuple[str, type[BaseModel]]] = {
    "vllm": ("ENGINE_", EngineSettings),
    "gateway": ("GATEWAY_", GatewaySettings),
    "chat-ui": ("CHAT_UI_", ChatUiSettings),
}
# What compose fixes for its own network, and the operator's own names.
# Compose unsets in the container what is not set outside, the image's own ENV included: these repeat it.
OF_THE_IMAGE = {"ENGINE_CACHE_DIR": "/cache", "GATEWAY_STATE_DIR": "/state", "CHAT_UI_DATA_DIR": "/data"}
# What has another default between containers than on one host.
OF_COMPOSE = {
    "GATEWAY_UPSTREAMS",
    "GATEWAY_TRUSTED_PROXIES",
    "GATEWAY_CHAT_UI_KEY_FILE",
    "GATEWAY_EDGE_URL",
    "CHAT_UI_GATEWAY_KEY_FILE",
    "CHAT_UI_TRUSTED_PROXIES",
}
FIXED = {
    "vllm": {"HOST", "PORT", "STATUS_PORT"},
    "gateway": {"HOST", "PORT"},
    "chat-ui": {"HOST", "PORT", "GATEWAY_URL"},
}


def reference() -> dict[str, str]:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    found = re.findall(r"^(?:# )?([A-Z][A-Z0-9_]+)=(.*)$", text, flags=re.MULTILINE)
    assert len({name for name, _ in found}) == len(found), "a setting stands twice in .env.example"
    return dict(found)


def compose(file: str = "docker-compose.yml") -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / file).read_text(encoding="utf-8").replace("!reset", ""))
    return loaded


def written(default: object) -> str:
    """Write a default as a person writes it in a file."""
    if default is None:
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, (tuple, list)):
        return ",".join(str(part) for part in default)
    return str(default)


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_is_documented_with_its_default(service: str) -> None:
    prefix, settings = SERVICES[service]
    documented = {name: value for name, value in reference().items() if name.startswith(prefix)}
    expected = {prefix + name.upper(): written(field.default) for name, field in settings.model_fields.items()}
    assert documented == expected


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_says_what_it_is_for(service: str) -> None:
    _, settings = SERVICES[service]
    assert [name for name, field in settings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("service", SERVICES)
def test_compose_hands_each_service_all_of_its_settings(service: str) -> None:
    prefix, settings = SERVICES[service]
    environment = compose()["services"][service]["environment"]
    passed = {name for name in environment if name.startswith(prefix)}
    assert passed == {prefix + name.upper() for name in settings.model_fields}
    free = {name for name, value in environment.items() if value is None}
    fixed = {prefix + name for name in FIXED[service]} | OF_COMPOSE | OF_THE_IMAGE.keys()
    assert free == passed - fixed | {name for name in free if not name.startswith(prefix)}


@pytest.mark.parametrize("service", ["services/vllm", "services/gateway", "services/chat-ui", "nginx"])
def test_no_variable_of_an_image_is_unset_by_compose(service: str) -> None:
    dockerfile = (ROOT / service / "Dockerfile").read_text(encoding="utf-8")
    last_stage = dockerfile[dockerfile.rindex("\nFROM ") :]
    own = set(re.findall(r"(?:^ENV|^   ) ([A-Z_]+)=", last_stage, flags=re.MULTILINE))
    assert own
    environment = compose()["services"][service.rpartition("/")[2]]["environment"]
    assert [name for name in own if name in environment and environment[name] is None] == []


@pytest.mark.parametrize("file", ["docker-compose.yml", "docker-compose.cpu.yml", "docker-compose.monitoring.yml"])
def test_every_variable_in_compose_is_documented_with_its_default(file: str) -> None:
    documented = reference()
    for name, default in re.findall(r"\$\{([A-Z0-9_]+)(?::-([^}]*))?(?::\?[^}]*)?\}", json.dumps(compose(file))):
        assert name in documented, name
        if name in OF_THE_IMAGE:
            assert default == OF_THE_IMAGE[name]
        elif name not in OF_COMPOSE and not name.startswith("GATEWAY_"):
            assert documented[name] == default, name


def test_the_edge_documents_its_variables() -> None:
    script = (ROOT / "nginx/docker-entrypoint.d/05-settings.envsh").read_text(encoding="utf-8")
    documented = {name for name in reference() if name.startswith("NGINX_")}
    assert documented
    assert all(name in script for name in documented)


def test_no_secret_has_a_default() -> None:
    secret = re.compile(r"TOKEN$|SECRET|PASSWORD|API_KEY$")
    assert [name for name, value in reference().items() if secret.search(name) and value] == []
