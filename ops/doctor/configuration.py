"""What is wrong with the settings before any service sees them, a line each."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ops.errors import StackError
from ops.keys import SETTING, keys_file
from ops.settings import Settings, load_settings
from ops.supervision import PORTS, Layout

SECRET_WORDS = ("TOKEN", "SECRET", "PASSW", "KEY", "CREDENTIAL", "AUTH", "COOKIE")
SHOWN = ("ENGINE_", "GATEWAY_", "CHAT_UI_", "NGINX_", "STACK_", "HF_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def read_settings(root: Path, environ: Mapping[str, str] | None = None) -> tuple[Settings, list[str]]:
    """Return the settings and what is wrong with them; wrong ones are replaced by the defaults, so that it goes on."""
    try:
        settings, lines = _without_bad_monitoring(load_settings(root, environ))
        lines += check(settings)
    except StackError as error:
        return load_settings(root, {"PATH": (environ or {}).get("PATH", "")}, use_file=False), [str(error)]
    return settings, lines


def _without_bad_monitoring(settings: Settings) -> tuple[Settings, list[str]]:
    """Return settings with which the rest can be looked at, and what is wrong with the monitoring's."""
    try:
        _ = settings.monitoring
    except StackError as error:
        rest = {name: value for name, value in settings.environment.items() if name != "STACK_MONITORING"}
        return replace(settings, environment=rest), [str(error)]
    return settings, []


def check(settings: Settings) -> Iterator[str]:
    """Return what can be seen to be wrong without starting anything."""
    model = settings.model
    if model.endswith("-Paddle"):
        yield f"ENGINE_MODEL: {model} holds Paddle weights"
    if model.startswith(("/", "./", "../")) and not (settings.root / model).is_dir():
        yield f"ENGINE_MODEL: the folder {model} does not exist"
    if settings.environment.get(SETTING):
        yield from _keys(settings)
    ports = Layout.of(settings).ports
    if settings.way == "native":
        yield from _collisions(ports)


def show(settings: Settings) -> Iterator[str]:
    """Return the settings that are given, the secret ones without their value."""
    for name, value in sorted(settings.environment.items()):
        if name.startswith(SHOWN):
            yield f"{name}={'***' if is_secret(name) else value}"


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds what nobody may see; a file's place is none."""
    return any(word in name.upper() for word in SECRET_WORDS) and not name.endswith(("_FILE", "_TOKENS"))


def _keys(settings: Settings) -> Iterator[str]:
    file = keys_file(settings)
    try:
        file.read_text(encoding="utf-8")
    except FileNotFoundError:
        yield f"{SETTING}: {file} does not exist"
    except (OSError, UnicodeDecodeError):
        yield f"{SETTING}: {file} cannot be read"


def _collisions(ports: Mapping[str, int]) -> Iterator[str]:
    seen: dict[int, str] = {}
    for name in PORTS:
        if name in ports and ports[name] in seen:
            yield f"{seen[ports[name]]} and {name} are both port {ports[name]}"
        seen.setdefault(ports.get(name, 0), name)
