"""The launcher's settings, read once from ENGINE_* variables, and the environment that they came from.

This is the only module that reads the process's environment.
"""

import difflib
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from launcher.errors import BadSetting

PREFIX = "ENGINE_"
DEMO = "demo"
DEMO_SERVED_NAME = "ernie-demo"
_LAST_PORT = 65535

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_PATH_STARTS = ("/", "./", "../", "~")
_SWITCH = {"on": True, "off": False}


def _switch(value: object) -> object:
    return _SWITCH.get(value.lower(), value) if isinstance(value, str) else value


def _words(value: object) -> object:
    return tuple(shlex.split(value)) if isinstance(value, str) else value


# `docker-compose` and shells hand over nothing but text; "on" and "off" are the project's two truth values.
Switch = Annotated[bool, BeforeValidator(_switch)]
GiB = Annotated[float, Field(gt=0, le=4096, allow_inf_nan=False)]


class Settings(BaseModel):
    """Every setting of the engine service; the variable is the field's name in capitals after ENGINE_."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(
        "baidu/ERNIE-4.5-0.3B-PT",
        description="What is served: a hub id (owner/name), a folder, or `demo` for the bundled demo model.",
    )
    served_name: str = Field(
        "",
        pattern=r"^([A-Za-z0-9][\w./:@+-]*)?$",
        description="Name that clients ask for. Empty: the hub id, a folder's name, or ernie-demo.",
    )
    host: str = Field("127.0.0.1", pattern=r"^[\w.:-]+$", description="Address to listen on; 0.0.0.0 in the image.")
    port: int = Field(8000, ge=1, le=65535, description="Port to listen on.")
    status_port: int = Field(
        8090,
        ge=0,
        le=65535,
        description="Port on which the launcher tells how far the engine is (GET /status); 0 for none.",
    )
    device: Literal["auto", "cuda", "cpu"] = Field(
        "auto", description="auto takes the first NVIDIA GPU where the installed vLLM can use it, else the CPU."
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field(
        "auto", description="Number type of weights and activations. auto: what suits card and checkpoint."
    )
    max_model_len: int | None = Field(
        None,
        ge=16,
        description="Longest prompt and answer together, in tokens. Empty: the model's own as far as memory"
        " holds it; at most 8192 (small CPU) or 32768 (large CPU) without a GPU.",
    )
    kv_cache_gb: GiB | None = Field(
        None, description="Memory for one engine's KV cache, in GiB. Empty: from the budget and the model."
    )
    vram_gb: GiB | None = Field(
        None,
        description="GPU memory that all engines may take of a card, in GiB. Empty: a fair share of what is free.",
    )
    kv_cache_dtype: Literal["auto", "fp8"] = Field(
        "auto",
        description="Number type of the KV cache. fp8 holds twice the tokens, slower on a small model; not on a T4.",
    )
    replicas: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Engines, over all cards. Empty: by cards, cores and memory; one on a CPU.",
    )
    tensor_parallel: int | None = Field(
        None, ge=1, le=64, description="Cards that one engine computes on together. Empty: as few as hold the model."
    )
    front_end: Literal["auto", "python", "rust"] = Field(
        "auto",
        description="vLLM's HTTP server. auto: python; rust is faster and lacks parts of the API (docs/facts.md).",
    )
    api_servers: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Processes of one engine's python HTTP server. Empty: by the cores.",
    )
    max_sequences: int | None = Field(
        None, ge=1, le=65536, description="Streams that one engine computes at once. Empty: by the card or the CPU."
    )
    eager: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Skip compilation and CUDA graphs. auto: off on a GPU (eager is 4 to 5 times slower there),"
        " on without one (saves 90 s of start).",
    )
    quantization: str = Field(
        "",
        pattern=r"^[a-z0-9_-]*$",
        description="Quantize at load (fp8_per_tensor), or name the method of a quantized checkpoint. Empty: none.",
    )
    hub: Literal["huggingface", "modelscope"] = Field(
        "huggingface", description="Where weights come from when they are not on this machine."
    )
    hub_endpoint: str = Field(
        "",
        pattern=r"^(https?://[^\s@]+)?$",
        description="Address of a mirror of the hub, http(s)://host. Empty: the hub itself.",
    )
    revision: str = Field(
        "",
        pattern=r"^([A-Za-z0-9][\w./-]*)?$",
        description="Branch, tag or commit of the weights. Empty: the hub's default branch.",
    )
    offline: Switch = Field(False, description="on: never ask the hub, serve only what is on this machine.")
    extra_args: Annotated[tuple[str, ...], BeforeValidator(_words)] = Field(
        (), description="More flags for `vllm serve`, quoted as in a shell; checked against the installed vLLM."
    )
    start_timeout_seconds: int = Field(
        1800, ge=1, le=86400, description="Longest time from starting vLLM to its health check, in seconds."
    )
    shutdown_timeout_seconds: int = Field(
        30,
        ge=1,
        le=3600,
        description="Time from SIGTERM to the end, in seconds; running answers finish in it, then all is killed.",
    )
    stall_seconds: int | None = Field(
        None,
        ge=3,
        le=86400,
        description="An engine that has work and computes nothing for so many seconds is ended. Empty: 60 with a GPU,"
        " 300 without one.",
    )
    otlp_endpoint: str = Field(
        "",
        pattern=r"^(https?://[^\s@]+)?$",
        description="Where vLLM's own traces go: an OTLP collector, http(s)://host:4318 (HTTP, protobuf), as a rule"
        " that of GATEWAY_OTLP_ENDPOINT. Empty: no traces.",
    )
    cache_dir: str = Field(
        "",
        pattern=r"^(/.*)?$",
        description="Folder for weights, compile caches and HOME; /cache in the image. Empty: the user's own.",
    )
    demo_dir: str = Field(
        "", description="Folder of the demo model. Empty: /models/demo in the image, models/demo in a clone."
    )

    @field_validator("model")
    @classmethod
    def _known_form(cls, value: str) -> str:
        if value == DEMO or value.startswith(_PATH_STARTS) or _HUB_ID.fullmatch(value):
            return value
        raise ValueError("is neither a hub id (owner/name), nor a folder (/path or ./path), nor `demo`")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read ENGINE_* out of an environment; an empty value means the default.

        Raises BadSetting, with the variable's name, for an unknown name or a value that cannot be.
        """
        given = {name: _clean(text) for name, text in environment.items() if name.startswith(PREFIX)}
        known = {variable(field): field for field in cls.model_fields}
        for name in given:
            if name not in known:
                raise BadSetting(name, _unknown(name, list(known)))
        try:
            return cls.model_validate({known[name]: text for name, text in given.items() if text})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise BadSetting(variable(str(first["loc"][0])), _complaint(first)) from error

    @property
    def name(self) -> str:
        """The model name that clients use."""
        if self.served_name:
            return self.served_name
        if self.model == DEMO:
            return DEMO_SERVED_NAME
        return Path(self.model).expanduser().resolve().name if self.is_folder else self.model

    @property
    def is_folder(self) -> bool:
        """Whether the model is a folder of this machine rather than a repository of a hub."""
        return self.model == DEMO or self.model.startswith(_PATH_STARTS)

    @property
    def folder(self) -> Path:
        """The model's folder, for a model that is one."""
        if self.model != DEMO:
            return Path(self.model).expanduser()
        # The launcher lies three folders deep both in a clone (services/vllm/) and in the image (/opt/ernie/).
        return Path(self.demo_dir) if self.demo_dir else Path(__file__).resolve().parents[3] / "models" / "demo"

    def engine_port(self, index: int) -> int:
        """Port of an engine, counted from 0: the first has ENGINE_PORT, the others those after ENGINE_STATUS_PORT.

        Raises BadSetting if that is no port, or another's.
        """
        if index == 0:
            if self.port == self.status_port:
                raise BadSetting("ENGINE_STATUS_PORT", f"{self.port} is ENGINE_PORT too; choose another")
            return self.port
        if not self.status_port:
            raise BadSetting("ENGINE_STATUS_PORT", "several engines take the ports after it, so it cannot be 0")
        port = self.status_port + index
        if port > _LAST_PORT or port == self.port:
            raise BadSetting("ENGINE_STATUS_PORT", f"engine {index + 1} would get port {port}; choose another")
        return port


def variable(field: str) -> str:
    """Name of a field's environment variable."""
    return PREFIX + field.upper()


def process_environment() -> dict[str, str]:
    """A copy of this process's environment."""
    return dict(os.environ)


def foreign(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that is not the launcher's own."""
    return {name: text for name, text in environment.items() if not name.startswith(PREFIX)}


def reference() -> str:
    """Every setting as commented `# NAME=default` lines for .env.example."""
    lines: list[str] = []
    for field, info in Settings.model_fields.items():
        default = info.default
        text = "" if default is None or default == () else str(default)
        text = {"True": "on", "False": "off"}.get(text, text)
        lines += [f"# {info.description}", f"# {variable(field)}={text}", ""]
    return "\n".join(lines)


def _clean(text: str) -> str:
    """Strip what env files and list-form `environment:` entries leave: blanks, CR, one pair of quotes."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" and text[0] not in text[1:-1]:
        text = text[1:-1].strip()
    return text


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}."
    return f"there is no such setting; {hint}"


def _complaint(error: Any) -> str:
    value = "" if error["input"] is None else f"{error['input']!r}: "
    message = str(error.get("ctx", {}).get("error", error["msg"]))
    message = message.replace("Input should be a valid boolean, unable to interpret input", "should be on or off")
    return value + message.replace("Input should", "should").replace("String should", "should")
