"""The gateway's settings: read once from the environment, checked, frozen.

This is the only module that sees the environment. A wrong or unknown `GATEWAY_*` name stops the start.
"""

import difflib
import ipaddress
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from gateway.rates import OFF, Rate, parse_count, parse_rate

PREFIX = "GATEWAY_"

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
# nginx cuts a silence of 3,600 s; whoever waits for an engine and then for its answer must have ours before that.
LongestAnswer = Annotated[float, Field(gt=0, le=2_900, allow_inf_nan=False)]
LongestQueue = Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)]


class SettingsError(Exception):
    """A setting is unknown or wrong; the message is one line that names the variable and the cure."""


class Settings(BaseModel):
    """Every setting, by the name of its variable without `GATEWAY_` and in lower case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8001, ge=1, le=65_535, description="Port to listen on.")
    upstreams: tuple[str, ...] = Field(
        ("http://127.0.0.1:8000",),
        description="Engines, as base URLs with commas between them. dns://name:port takes every address "
        "of the name as an engine and looks again every few seconds. launcher://name:port asks the launcher at "
        "every address of the name, at its ENGINE_STATUS_PORT, which engines it runs and how far they are.",
    )
    warmup: Literal["on", "off"] = Field(
        "on", description="Whether an engine must have answered warm-up generations before it gets requests."
    )
    max_body_bytes: int = Field(2_097_152, ge=1024, le=67_108_864, description="Largest request body, in bytes.")
    max_tokens: int = Field(
        131_072, ge=1, le=10_000_000, description="Largest max_tokens that a request may ask for, in tokens."
    )
    trusted_proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = Field(
        (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128")),
        description="Proxies whose X-Forwarded-For (or Forwarded) is believed, as addresses or networks with commas "
        "between them. The client is the nearest hop that is none of them. Compose: private networks.",
    )
    edge_url: str = Field(
        "",
        description="Where nginx is, http://host:port: the gateway asks itself through it whether both mean the same "
        "client, and warns if not. Empty or off: it does not ask. Compose: "
        "http://nginx:8080.",
    )
    rate_limit_requests: Rate | None = Field(
        Rate(120, 60.0),
        description="Most requests of one client in any second, minute, hour or day, such as 120/minute; or off.",
    )
    rate_limit_tokens: Rate | None = Field(
        Rate(200_000, 60.0), description="Most tokens of one client, prompts and answers together, in the same way."
    )
    max_streams_per_client: int | None = Field(
        16, description="Most requests of one client that run at a time, streamed or not; or off."
    )
    api_keys_file: str = Field(
        "",
        description="File of API keys, made by `make key NAME=...`; read again when it changes. Empty: no keys are "
        "needed and none are looked at.",
    )
    anonymous: Literal["on", "off"] = Field(
        "off", description="Whether requests without a key are served when keys are on."
    )
    chat_ui_key_file: str = Field(
        "",
        description="File with the key by which the chat page's own server is known, made at the first start. With "
        "that key alone it may say whose question it passes on. Empty: it is a client as any other.",
    )
    state_url: str = Field(
        "",
        description="Valkey that several gateways keep the limits in, redis://host:port. Empty: in memory, for one "
        "gateway. Compose: --profile valkey, and redis://valkey:6379.",
    )
    workers: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Processes that serve, with one address, one set of limits and one page of metrics. More than 1 "
        "need GATEWAY_STATE_URL. Empty: 1 without it, else half the cores that the gateway may use, at most 4.",
    )
    max_choices: int = Field(8, ge=1, le=128, description="Largest n and best_of, and most prompts a request.")
    max_in_flight: int | Literal["off"] | None = Field(
        None,
        description="Most generations that engines have at a time, all engines together; or off. Empty: as many as the "
        "engines run by their launchers' word or their own figures.",
    )
    queue_size: int = Field(
        256,
        ge=0,
        le=10_000,
        description="Most requests that wait while engines are full or away, in an order that is fair between clients; "
        "0 refuses them at once.",
    )
    queue_timeout_seconds: LongestQueue = Field(
        120, description="Longest wait of such a request. Give it the time that an engine takes to start."
    )
    connect_timeout_seconds: Seconds = Field(3, description="Longest wait for a connection to an engine.")
    first_token_timeout_seconds: LongestAnswer = Field(
        120, description="Longest wait for the first token of a streamed answer. Raise it for long prompts."
    )
    answer_timeout_seconds: LongestAnswer = Field(600, description="Longest wait for an answer that is not streamed.")
    idle_timeout_seconds: LongestAnswer = Field(
        60, description="Longest silence in the middle of a streamed answer, from the engine or towards the client."
    )
    heartbeat_seconds: Seconds = Field(
        15, description="Silence after which a waiting stream gets a comment, so that no proxy cuts it."
    )
    drain_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        20, description="Time that open answers get to finish when the gateway stops."
    )
    probe_interval_seconds: Seconds = Field(2, description="Time between two looks at an engine.")
    stall_seconds: Seconds = Field(
        8,
        description="Time that an engine with work may stand still, a probe unanswered, before it gets no more "
        "requests. Raise it where one step takes longer, as with long prompts on a CPU.",
    )
    state_dir: str = Field(
        "",
        description="Folder for what the gateway learns: how long engines take to start. /state in the image. "
        "Empty: it forgets when it ends.",
    )
    otlp_endpoint: str = Field(
        "",
        description="Where traces go: an OTLP collector, http(s)://host:4318 (HTTP, protobuf). Empty: no traces.",
    )
    trace_share: float = Field(
        1.0, ge=0, le=1, allow_inf_nan=False, description="Share of the requests that are traced, 0 to 1."
    )
    trace_clients: Literal["on", "off"] = Field(
        "off",
        description="Whether a client's own trace (traceparent) is continued, its word on sampling included. Only "
        "where all clients are your own.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level logged.")

    @field_validator("upstreams", mode="before")
    @classmethod
    def _split_upstreams(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("upstreams")
    @classmethod
    def _check_upstreams(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("needs at least one base URL, such as http://127.0.0.1:8000")
        for upstream in value:
            address = _UPSTREAM.fullmatch(upstream)
            if not address or int(address["port"] or 0) > _LAST_PORT or not _is_ipv6(address["ipv6"]):
                raise ValueError(
                    f"{upstream!r} is no base URL; write http://host:port, https://host:port, dns://host:port or "
                    "launcher://host:port"
                )
        places = {upstream.partition("://")[2].rstrip("/") for upstream in value}
        if len(places) < len(value):
            raise ValueError("names the same engine twice; name each once")
        return tuple(upstream.rstrip("/") for upstream in value)

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _split_networks(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return tuple(_network(part.strip()) for part in value.split(",") if part.strip())

    @field_validator("rate_limit_requests", "rate_limit_tokens", mode="before")
    @classmethod
    def _parse_rate(cls, value: Any) -> Any:
        return parse_rate(value) if isinstance(value, str) else value

    @field_validator("max_streams_per_client", mode="before")
    @classmethod
    def _parse_count(cls, value: Any) -> Any:
        return parse_count(value) if isinstance(value, str) else value

    @field_validator("max_in_flight", mode="before")
    @classmethod
    def _parse_max_in_flight(cls, value: Any) -> Any:
        return (parse_count(value) or OFF) if isinstance(value, str) else value

    @field_validator("state_url")
    @classmethod
    def _check_state_url(cls, value: str) -> str:
        if value and not _STATE_URL.fullmatch(value):
            raise ValueError("write redis://host:port, or rediss:// for TLS")
        return value

    @field_validator("edge_url")
    @classmethod
    def _check_edge_url(cls, value: str) -> str:
        if value in {"", "off"}:
            return ""
        address = _EDGE_URL.fullmatch(value)
        if not address or int(address["port"] or 80) > _LAST_PORT or not _is_ipv6(address["ipv6"]):
            raise ValueError("write http://host:port, such as http://nginx:8080")
        return value.rstrip("/")

    @field_validator("otlp_endpoint")
    @classmethod
    def _check_otlp_endpoint(cls, value: str) -> str:
        if value and not _OTLP_ENDPOINT.fullmatch(value):
            raise ValueError("write http://host:port or https://host:port, such as http://collector:4318")
        return value.rstrip("/")

    @field_validator("workers")
    @classmethod
    def _check_workers(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value and value > 1 and not info.data.get("state_url"):
            raise ValueError(
                "more than 1 keep their limits together in GATEWAY_STATE_URL, which is not set; set it (compose: "
                "--profile valkey, and redis://valkey:6379), or GATEWAY_WORKERS=1"
            )
        return value

    @field_validator("warmup", "anonymous", "trace_clients", "log_level", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value


_LAST_PORT = 65_535
# A name as IDNA takes it; two addresses that differ in their scheme alone would be one engine with one label.
_NAME = r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?"
_UPSTREAM = re.compile(
    rf"(?:(?:https?|launcher)://(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|{_NAME})|dns://{_NAME})(?::(?P<port>[1-9][0-9]{{0,4}}))?/?"
)


_EDGE_URL = re.compile(rf"http://(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|{_NAME})(?::(?P<port>[1-9][0-9]{{0,4}}))?/?")
_OTLP_ENDPOINT = re.compile(rf"https?://(?:\[[0-9A-Fa-f:.]+\]|{_NAME})(?::[1-9][0-9]{{0,4}})?(?:/[^\s?#@]*)?")
_STATE_URL = re.compile(r"(?:redis|rediss|unix)://\S+")


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{error}; write networks such as 10.0.0.0/8 or 2001:db8::/32") from None


def _is_ipv6(text: str | None) -> bool:
    try:
        return text is None or bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of an environment, the process's own by default; an empty value is the default."""
    source = os.environ if environment is None else environment
    given = {name: _clean(value) for name, value in source.items() if name.startswith(PREFIX)}
    fields = {PREFIX + field.upper(): field for field in Settings.model_fields}
    for name in given:
        if name not in fields:
            raise SettingsError(_unknown(name, list(fields)))
    try:
        return Settings.model_validate({fields[name]: value for name, value in given.items() if value})
    except ValidationError as error:
        raise SettingsError(_wrong(error, given)) from None


def _clean(value: str) -> str:
    """Take away what shells and compose files leave around a value: spaces, CR, a pair of quotes."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1].strip()
    return value


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    cure = f"Did you mean {close[0]}?" if close else f"Known are: {', '.join(known)}."
    return f"{name} is not a setting of the gateway. {cure}"


def _wrong(error: ValidationError, given: Mapping[str, str]) -> str:
    first = error.errors(include_url=False)[0]
    name = PREFIX + str(first["loc"][0]).upper()
    reason = first["msg"].removeprefix("Value error, ")
    return f"{name}={given[name]!r} is wrong: {reason[:1].lower()}{reason[1:]}."
