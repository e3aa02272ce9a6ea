"""The settings of the chat page: read once from `CHAT_UI_*`, checked, frozen. Nothing else reads the environment."""

import difflib
import functools
import ipaddress
import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

PREFIX = "CHAT_UI_"

# Chainlit and its parts act on these by themselves: a database they find is written to, a bot token starts a bot.
FOREIGN_PREFIXES = ("CHAINLIT_", "LITERAL_", "SLACK_", "DISCORD_", "TEAMS_", "OAUTH_", "UVICORN_")
FOREIGN_NAMES = ("DATABASE_URL", "BUCKET_NAME")

EXIT_BAD_SETTING = 2

SECRET_NAMES = ("CHAT_UI_HISTORY_URL",)

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class SettingError(ValueError):
    """A setting that the service must not start with; the message names the variable and the cure."""


def _base_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be a base URL such as http://gateway:8001")
    return value.rstrip("/")


def _absolute(value: str) -> str:
    # Chainlit wants the process in a folder of its own.
    return str(Path(value).absolute())


def _database_url(value: str) -> str:
    parts = urlsplit(value)
    if value not in {"", "off"} and not (
        parts.scheme in {"postgresql", "postgres"} and parts.hostname and parts.path.strip("/")
    ):
        raise ValueError("must be postgresql://user:password@host/database, off, or empty")
    return value.replace("postgres://", "postgresql://", 1)


def _host(value: str) -> str:
    if value != "localhost":
        ipaddress.ip_address(value)
    return value


class Settings(BaseModel):
    """Every `CHAT_UI_*` variable: the field `port` is `CHAT_UI_PORT`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Annotated[str, AfterValidator(_host)] = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8002, ge=1, le=65_535, description="Port to listen on.")
    base_path: str = Field(
        "",
        pattern=r"^((/[A-Za-z0-9_-]+)+)?$",
        description="Path below which nginx serves the page (NGINX_BASE_PATH), such as /ernie. Empty: none.",
    )
    gateway_url: Annotated[str, AfterValidator(_base_url)] = Field(
        "http://127.0.0.1:8001", description="The gateway's base URL; the page knows no other address."
    )
    gateway_key_file: Annotated[str, AfterValidator(_absolute)] = Field(
        "",
        description="File with the key that the gateway makes for this page (GATEWAY_CHAT_UI_KEY_FILE). With it each "
        "person at the page has limits of their own. Empty: all of them are one client.",
    )
    trusted_proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = Field(
        (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128")),
        description="Where nginx may be, whose word on a browser's address is believed, as addresses or networks with "
        "commas between them. Compose: private networks.",
    )
    language: Literal["auto", "zh-CN", "en-US"] = Field(
        "auto", description="Language of the page; auto follows the browser."
    )
    allowed_origins: tuple[str, ...] = Field(
        (),
        description="Further addresses at which the page is opened, as origins with commas between them. "
        "Its own address needs no entry unless a proxy hides it.",
    )
    data_dir: Annotated[str, AfterValidator(_absolute)] = Field(
        "",
        description="Folder for conversations (history.sqlite) and for the secret that signs cookies. Empty: both end "
        "with the process. Compose and `make up` set it.",
    )
    history_url: Annotated[str, AfterValidator(_database_url)] = Field(
        "",
        description="Where conversations are kept: postgresql://user:password@host/database, or off. Empty: a SQLite "
        "file in CHAT_UI_DATA_DIR.",
    )
    guest_days: float = Field(
        30,
        ge=1,
        le=3650,
        allow_inf_nan=False,
        description="Without a login: days without use after which a browser's conversations are deleted.",
    )
    guest_megabytes: int = Field(
        1000,
        ge=10,
        le=1_000_000,
        description="Without a login: what all kept conversations may take, in MB. Beyond it those go that were not "
        "used for longest.",
    )
    login: Literal["none", "password", "oauth", "header"] = Field(
        "none",
        description="How people log in: none, password (make account NAME=alice), oauth, or header (a proxy in front "
        "names them).",
    )
    accounts_file: Annotated[str, AfterValidator(_absolute)] = Field(
        "",
        description="File of accounts for CHAT_UI_LOGIN=password: accounts/people, where `make account` writes them.",
    )
    oauth_file: Annotated[str, AfterValidator(_absolute)] = Field(
        "",
        description="File of OAUTH_* lines for CHAT_UI_LOGIN=oauth, by the names of Chainlit's providers, such as "
        "OAUTH_GITHUB_CLIENT_ID.",
    )
    oauth_allowed: tuple[str, ...] = Field(
        (),
        description="Who may come in by OAuth: names or addresses, or @example.org for a whole domain, with commas "
        "between them. Empty: everybody whom the provider knows.",
    )
    login_header: str = Field(
        "X-Forwarded-User",
        pattern=r"^[A-Za-z0-9-]+$",
        description="Header in which the proxy names the person, for CHAT_UI_LOGIN=header.",
    )
    login_proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = Field(
        (),
        description="Where that proxy is, as nginx sees it; the header is believed from there alone. Addresses or "
        "networks with commas between them.",
    )
    secret_file: Annotated[str, AfterValidator(_absolute)] = Field(
        "", description="File with the secret that signs cookies. Empty: one is made in CHAT_UI_DATA_DIR."
    )
    max_message_characters: int = Field(
        8000, ge=100, le=1_000_000, description="Longest message of a person, in characters."
    )
    max_history_turns: int = Field(
        20, ge=0, le=1000, description="Most earlier turns that are sent with a question; 0 sends the question alone."
    )
    max_tokens: int = Field(
        2048,
        ge=1,
        le=131_072,
        description="Longest answer that a person may choose, in tokens; never more than half of the model's context.",
    )
    preset: Literal["model", "precise", "balanced", "creative"] = Field(
        "model", description="How words are chosen until a person chooses in the panel; model: as its makers set it."
    )
    show_figures: Literal["on", "off"] = Field(
        "on", description="Whether speed and tokens stand under answers until a person switches them."
    )
    connect_timeout_seconds: Seconds = Field(5, description="Longest wait for a connection to the gateway.")
    idle_timeout_seconds: Seconds = Field(
        180, description="Longest silence of the gateway. Keep it above the gateway's own timeouts."
    )
    request_timeout_seconds: Seconds = Field(1800, description="Longest time for one answer as a whole.")
    disconnect_grace_seconds: float = Field(
        10,
        ge=0,
        le=600,
        allow_inf_nan=False,
        description="Time that a page may stay away before its answer is stopped.",
    )
    session_timeout_seconds: int = Field(
        3600,
        ge=1,
        le=604_800,
        description="Time for which the server keeps the conversation of a page that was closed or lost its "
        "connection.",
    )
    shutdown_seconds: int = Field(5, ge=0, le=600, description="Time that connections get to close when it stops.")

    @field_validator("trusted_proxies", "login_proxies", mode="before")
    @classmethod
    def _split_networks(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return tuple(ipaddress.ip_network(part.strip()) for part in value.split(",") if part.strip())
        except ValueError as error:
            raise ValueError(f"{error}; write networks such as 10.0.0.0/8, separated by commas") from error

    @field_validator("allowed_origins", mode="before")
    @classmethod
    def _split_origins(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        origins = tuple(part.strip().rstrip("/") for part in value.split(",") if part.strip())
        for origin in origins:
            parts = urlsplit(origin)
            if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path:
                raise ValueError("must be origins such as https://chat.example.org, separated by commas")
        return origins

    @field_validator("oauth_allowed", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @property
    def keeps_history(self) -> bool:
        """Whether conversations are kept."""
        return self.history_url != "off"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Build the settings from `CHAT_UI_*` names; an empty value means the default.

        Raises `SettingError` for an unknown name (with the nearest known one) and for a bad value.
        """
        values: dict[str, str] = {}
        for name, raw in environment.items():
            if not name.startswith(PREFIX):
                continue
            field = name.removeprefix(PREFIX).lower()
            if field not in cls.model_fields or name != name.upper():
                raise SettingError(f"{name} is not a setting. {_nearest(name, cls.names())}")
            if value := _unquoted(raw):
                values[field] = value
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = PREFIX + str(first["loc"][0]).upper()
            reason = first["msg"].removeprefix("Value error, ")
            # An address may hold a password.
            value = "" if name in SECRET_NAMES else f"={first['input']!r}"
            raise SettingError(f"{name}{value} cannot be used: {reason}.") from error

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of all variables, in the order of the reference."""
        return tuple(PREFIX + field.upper() for field in cls.model_fields)


def _unquoted(raw: str) -> str:
    """Drop what .env files leave around a value: spaces, carriage returns and quotes of the list form."""
    value = raw.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1].strip()
    return value


def _nearest(name: str, known: tuple[str, ...]) -> str:
    matches = difflib.get_close_matches(name.upper(), known, n=1)
    return f"Did you mean {matches[0]}?" if matches else f"Known settings: {', '.join(known)}."


@functools.cache
def read_settings() -> Settings:
    """Read the environment once for the process; leaves with code 2 and one line on stderr where it is wrong."""
    try:
        return Settings.from_environment(os.environ)
    except SettingError as error:
        sys.stderr.write(f"chat-ui: {error}\n")
        raise SystemExit(EXIT_BAD_SETTING) from None


def hide_foreign_settings(environment: MutableMapping[str, str] | None = None) -> None:
    """Take out of the environment what Chainlit would act on behind the back of these settings."""
    target = os.environ if environment is None else environment
    for name in list(target):
        if name.startswith(FOREIGN_PREFIXES) or name in FOREIGN_NAMES:
            del target[name]


def give_chainlit(variables: Mapping[str, str]) -> None:
    """Put into the environment what Chainlit finds nowhere else: what signs its cookies, its OAuth providers."""
    os.environ.update(variables)
