"""The operator's settings: `.env` and the environment, checked against `.env.example`. The only reader of both.

Values pass on to the services untouched; each service checks its own. What is checked here is what a service cannot
see: a misspelt name in `.env`, which compose would drop in silence.
"""

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from dotenv import dotenv_values

from ops.errors import StackError

PREFIXES = ("ENGINE_", "GATEWAY_", "CHAT_UI_", "NGINX_", "STACK_")
WAYS = ("auto", "docker", "native")
BAD_SETTING = 2

Way = Literal["auto", "docker", "native"]


@dataclass(frozen=True)
class Settings:
    """What the operator asked for: how to run, where to keep things, and each service's own variables."""

    root: Path
    run_dir: Path
    way: Way
    start_timeout_seconds: float
    environment: Mapping[str, str]

    @property
    def model(self) -> str:
        """The model that is asked for; empty means the product's own default."""
        return self.environment.get("ENGINE_MODEL", "")

    @property
    def monitoring(self) -> bool:
        """Whether Prometheus and Grafana are asked for; raises `StackError` for a bad word, or without a password."""
        word = self.environment.get("STACK_MONITORING", "off")
        if word not in ("on", "off"):
            raise StackError(f"STACK_MONITORING={word!r} is unknown: use on or off.", BAD_SETTING)
        if word == "on" and not self.environment.get("STACK_GRAFANA_PASSWORD"):
            raise StackError(
                "STACK_MONITORING=on wants a password for Grafana's user admin: set STACK_GRAFANA_PASSWORD in .env.",
                BAD_SETTING,
            )
        return word == "on"

    @property
    def http_port(self) -> int:
        """The one published port, nginx's."""
        return self.port("NGINX_HTTP_PORT", 8080)

    @property
    def api_key(self) -> str:
        """The key that this command's own questions carry; empty for none."""
        return self.environment.get("STACK_API_KEY", "")

    def port(self, name: str, default: int) -> int:
        """Return the TCP port in variable `name`; raises `StackError` for anything that is not one."""
        value = self.environment.get(name, "") or str(default)
        if not value.isdigit() or not 0 < int(value) <= 65535:  # noqa: PLR2004 - the range of TCP ports
            raise StackError(f"{name}={value!r} is not a port: give a number from 1 to 65535.", BAD_SETTING)
        return int(value)

    def of_service(self, prefix: str) -> dict[str, str]:
        """Return the variables that belong to one service, by its prefix."""
        return {name: value for name, value in self.environment.items() if name.startswith(prefix)}


def load_settings(root: Path, environ: Mapping[str, str] | None = None, *, use_file: bool = True) -> Settings:
    """Read `root/.env` and the environment (which wins).

    Raises `StackError` naming an unknown or bad variable, or a file that cannot be read.
    """
    process = dict(os.environ if environ is None else environ)
    file_values = _read_file(root / ".env") if use_file else {}
    merged = {**file_values, **process}
    ours = {name: value for name, value in merged.items() if name.startswith(PREFIXES) and value != ""}
    _refuse_unknown(ours, documented_names(root))
    way = ours.get("STACK_WAY", "auto")
    if way not in WAYS:
        raise StackError(f"STACK_WAY={way!r} is unknown: use auto, docker or native.", BAD_SETTING)
    timeout = ours.get("STACK_START_TIMEOUT_SECONDS", "3600")
    if not timeout.isdigit() or int(timeout) == 0:
        raise StackError(f"STACK_START_TIMEOUT_SECONDS={timeout!r}: give whole seconds above 0.", BAD_SETTING)
    return Settings(
        root=root,
        run_dir=root / ours.get("STACK_RUN_DIR", ".run"),
        way=cast("Way", way),
        start_timeout_seconds=int(timeout),
        environment={**{n: v for n, v in merged.items() if not n.startswith(PREFIXES)}, **ours},
    )


def _read_file(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    if path.is_dir():
        raise StackError(f"{path} cannot be read: it is a directory", BAD_SETTING)
    try:
        return {name: value or "" for name, value in dotenv_values(path).items()}
    except UnicodeDecodeError as error:
        raise StackError(f"{path} cannot be read: it is not UTF-8 (byte {error.start})", BAD_SETTING) from error
    except OSError as error:
        raise StackError(f"{path} cannot be read: {error.strerror}", BAD_SETTING) from error


def documented_names(root: Path) -> set[str]:
    """Return every variable that `.env.example` names, set or commented out."""
    text = (root / ".env.example").read_text(encoding="utf-8")
    return set(re.findall(r"^(?:# )?([A-Z][A-Z0-9_]+)=", text, flags=re.MULTILINE))


def _refuse_unknown(variables: Mapping[str, str], known: set[str]) -> None:
    for name in sorted(variables):
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else ".env.example lists them all."
            raise StackError(f"{name} is not a setting of this stack; {hint}", BAD_SETTING)
