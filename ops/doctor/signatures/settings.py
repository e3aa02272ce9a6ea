"""The operator's settings: `.env`, and what the services refuse of it."""

import re

from ops.doctor.signature import Signature, Source, Trouble, Weight

_SETTINGS = (Source.SETTINGS,)

SIGNATURES = (
    Signature(
        "env-unreadable",
        Trouble.START,
        _SETTINGS,
        re.compile(r"\.env cannot be read: (?P<why>.+)"),
        "The file .env cannot be read ({why}), so nothing of it counts.",
        "Make it a UTF-8 text file of this user: sudo chown $USER .env && chmod 600 .env.",
    ),
    Signature(
        "env-unknown-name",
        Trouble.START,
        _SETTINGS,
        re.compile(r"(?P<name>\S+) is not a setting of this stack; (?P<hint>.+)"),
        "{name} is no setting: {hint}",
        "Correct the line in .env (or the environment); .env.example lists all names.",
    ),
    Signature(
        "env-bad-value",
        Trouble.START,
        _SETTINGS,
        re.compile(r"(?P<name>[A-Z][A-Z_]+)=(?P<value>.+?)(?: is (?:not a port|unknown): |: )(?P<what>give .+|use .+)"),
        "{name}={value} cannot be.",
        "{what}",
    ),
    Signature(
        "grafana-password-missing",
        Trouble.START,
        _SETTINGS,
        re.compile(r"STACK_MONITORING=on wants a password for Grafana"),
        "STACK_MONITORING is on, and Grafana has no password: nothing starts without one.",
        "Set STACK_GRAFANA_PASSWORD in .env to a password of your own (the user is admin), then make up.",
    ),
    Signature(
        "env-ports-collide",
        Trouble.START,
        _SETTINGS,
        re.compile(r"(?P<one>\w+) and (?P<other>\w+) are both port (?P<port>\d+)"),
        "{one} and {other} ask for the same port {port}.",
        "Give each a port of its own in .env.",
    ),
    Signature(
        "keys-file-missing",
        Trouble.START,
        _SETTINGS,
        re.compile(r"GATEWAY_API_KEYS_FILE: (?P<file>\S+) (?P<why>does not exist|cannot be read)"),
        "API keys are on, and their file {file} {why}.",
        "Make a key: make key NAME=alice; or empty GATEWAY_API_KEYS_FILE to have no keys.",
    ),
    Signature(
        "model-folder-missing",
        Trouble.START,
        _SETTINGS,
        re.compile(r"ENGINE_MODEL: the folder (?P<folder>\S+) does not exist"),
        "ENGINE_MODEL names the folder {folder}, which is not there.",
        "Correct the path. In a container it must be mounted: without a volume the host's folders are not seen.",
    ),
    Signature(
        "model-is-paddle",
        Trouble.START,
        _SETTINGS,
        re.compile(r"ENGINE_MODEL: (?P<model>\S+-Paddle) holds Paddle weights"),
        "{model} is the Paddle edition, which vLLM cannot load.",
        "Take the same name with -PT at its end: that is the same model for PyTorch.",
    ),
    Signature(
        "gateway-setting",
        Trouble.START,
        (Source.GATEWAY,),
        re.compile(r"^gateway: (?P<what>GATEWAY_\w+(?:='.*' is wrong: | is not a setting ).+)"),
        "The gateway refuses a setting: {what}",
        "Correct it in .env, then make up.",
        Weight.HINT,
    ),
    Signature(
        "page-setting",
        Trouble.START,
        (Source.PAGE,),
        re.compile(r"^chat-ui: (?P<what>CHAT_UI_\w+.*(?:cannot be used|is not a setting).*)"),
        "The chat page refuses a setting: {what}",
        "Correct it in .env, then make up.",
        Weight.HINT,
    ),
    Signature(
        "edge-setting",
        Trouble.START,
        (Source.EDGE, Source.SETTINGS),
        re.compile(r"^(?P<what>NGINX_[A-Z_]+: .+)"),
        "nginx refuses a setting: {what}",
        "Correct it in .env, then make up.",
        Weight.HINT,
    ),
)
