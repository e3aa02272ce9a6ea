"""supervisord's configuration: the four programs, each with its own variables and no other's."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from ops.edge import render_nginx
from ops.errors import StackError
from ops.keys import SETTING, keys_file
from ops.settings import Settings

PORTS = {
    "NGINX_HTTP_PORT": 8080,
    "NGINX_HTTPS_PORT": 8443,
    "ENGINE_PORT": 8000,
    "ENGINE_STATUS_PORT": 8090,
    "GATEWAY_PORT": 8001,
    "CHAT_UI_PORT": 8002,
}
CERTIFICATE_FILES = {"NGINX_TLS_CERTIFICATE": "tls/fullchain.pem", "NGINX_TLS_KEY": "tls/privkey.pem"}
WATCH_CERTIFICATE_SECONDS = 10
NO_STATUS = ("ENGINE_STATUS_PORT", "0")  # the launcher's own word for saying nothing

# All programs start in the run directory; these paths start at the project's folder, as in the containers.
FILES_OF_CHAT_UI = {"CHAT_UI_ACCOUNTS_FILE", "CHAT_UI_OAUTH_FILE", "CHAT_UI_SECRET_FILE"}


@dataclass(frozen=True)
class Layout:
    """Where things lie and listen when the stack runs as plain processes; all but nginx listen on 127.0.0.1."""

    settings: Settings
    ports: Mapping[str, int]

    @classmethod
    def of(cls, settings: Settings) -> "Layout":
        """Take the ports from the settings; raises `StackError` for one that is no port."""
        unused = {NO_STATUS[0]} if settings.environment.get(NO_STATUS[0]) == NO_STATUS[1] else set()
        unused |= set() if settings.tls else {"NGINX_HTTPS_PORT"}
        names = [name for name in PORTS if name not in unused]
        return cls(settings, {name: settings.port(name, PORTS[name]) for name in names})

    @property
    def run_dir(self) -> Path:
        """Everything that is written at run time."""
        return self.settings.run_dir.resolve()

    @property
    def configuration(self) -> Path:
        """The file that supervisord reads."""
        return self.run_dir / "supervisord.conf"

    def python(self, environment: str) -> str:
        """The interpreter of `.venv` or `.venv-vllm`."""
        return str(self.settings.root / environment / "bin" / "python")

    def engine(self, model: str = "") -> dict[str, str]:
        """The launcher's variables; `model` overrides the setting."""
        chosen = {"ENGINE_MODEL": model} if model else {}
        status = self.ports.get("ENGINE_STATUS_PORT", 0)
        listen = self._listen("ENGINE") | {"ENGINE_STATUS_PORT": str(status)}
        return self.settings.of_service("ENGINE_") | chosen | listen

    def gateway(self) -> dict[str, str]:
        """The gateway's variables."""
        own = {
            "GATEWAY_UPSTREAMS": self._upstream,
            "GATEWAY_EDGE_URL": self.settings.url,
            "GATEWAY_STATE_DIR": str(self.run_dir / "gateway"),
            "GATEWAY_CHAT_UI_KEY_FILE": str(self.run_dir / "chat-ui-key"),
        }
        given = self.settings.of_service("GATEWAY_")
        if SETTING in given:
            given[SETTING] = str(keys_file(self.settings))
        return own | given | self._listen("GATEWAY")

    def chat_ui(self) -> dict[str, str]:
        """The chat page's variables."""
        gateway = {
            "CHAT_UI_GATEWAY_URL": f"http://127.0.0.1:{self.ports['GATEWAY_PORT']}",
            # The gateway takes a relative path from the run directory, as all programs start there.
            "CHAT_UI_GATEWAY_KEY_FILE": str(self.run_dir / self.gateway()["GATEWAY_CHAT_UI_KEY_FILE"]),
        }
        own = {"CHAT_UI_DATA_DIR": str(self.run_dir / "chat-ui")}
        below = {"CHAT_UI_BASE_PATH": self.settings.environment.get("NGINX_BASE_PATH", "")}
        given = self.settings.of_service("CHAT_UI_")
        for name in FILES_OF_CHAT_UI & given.keys():
            given[name] = str(self.settings.root / given[name])
        return gateway | own | given | below | self._listen("CHAT_UI")

    def nginx(self) -> dict[str, str]:
        """The edge's variables."""
        limit = self.settings.environment.get("GATEWAY_MAX_BODY_BYTES")
        files = {name: self.settings.environment.get(name, file) for name, file in CERTIFICATE_FILES.items()}
        return (
            self.settings.of_service("NGINX_")
            | {name: str(self.settings.root / file) for name, file in files.items()}
            | ({"NGINX_HTTPS_PORT": str(self.ports["NGINX_HTTPS_PORT"])} if self.settings.tls else {})
            | ({"NGINX_MAX_BODY_BYTES": limit} if limit else {})
            | {
                "NGINX_HTTP_PORT": str(self.ports["NGINX_HTTP_PORT"]),
                "NGINX_GATEWAY_ADDRESS": f"127.0.0.1:{self.ports['GATEWAY_PORT']}",
                "NGINX_CHAT_UI_ADDRESS": f"127.0.0.1:{self.ports['CHAT_UI_PORT']}",
            }
        )

    @property
    def _upstream(self) -> str:
        if "ENGINE_STATUS_PORT" in self.ports:
            return f"launcher://127.0.0.1:{self.ports['ENGINE_STATUS_PORT']}"
        return f"http://127.0.0.1:{self.ports['ENGINE_PORT']}"

    def _listen(self, prefix: str) -> dict[str, str]:
        return {f"{prefix}_HOST": "127.0.0.1", f"{prefix}_PORT": str(self.ports[f"{prefix}_PORT"])}


def write_configuration(layout: Layout, model: str) -> None:
    """Write supervisord's file and nginx's folder into the run directory; raises `StackError` by the setting's name."""
    (layout.run_dir / "logs").mkdir(parents=True, exist_ok=True)
    render_nginx(layout.settings.root / "nginx", layout.run_dir / "nginx", layout.nginx())
    nginx = shutil.which("nginx", path=os.defpath + ":/usr/sbin:/usr/local/sbin")
    if nginx is None:
        raise StackError("nginx is not installed: apt-get install nginx, then call this again.")
    services = layout.settings.root / "services"
    template = Template((Path(__file__).parent / "templates" / "supervisord.conf").read_text(encoding="utf-8"))
    text = template.substitute(
        run_dir=layout.run_dir,
        python=layout.python(".venv"),
        engine_python=layout.python(".venv-vllm"),
        nginx=nginx,
        # Started by root, nginx would make its workers "nobody", who may not read a folder of root's.
        nginx_user="user root;" if os.geteuid() == 0 else "",
        certificate_program=_certificate_program(layout) if layout.settings.tls else "",
        engine_environment=pairs(layout.engine(model) | _code(services / "vllm")),
        gateway_environment=pairs(layout.gateway() | _code(services / "gateway")),
        chat_ui_environment=pairs(layout.chat_ui() | _code(services / "chat-ui")),
    )
    layout.configuration.touch(mode=0o600)
    layout.configuration.write_text(text, encoding="utf-8")


def _certificate_program(layout: Layout) -> str:
    """Return the program that looks for renewed certificates; where there is no TLS, there is none."""
    script = layout.run_dir / "nginx" / "certificate.sh"
    names = ("NGINX_TLS", *CERTIFICATE_FILES, "NGINX_SERVER_NAMES")
    variables = {name: value for name, value in layout.nginx().items() if name in names}
    return "\n".join(
        (
            "[program:certificate]",
            "priority=50",
            f"command=/bin/sh {script} watch {WATCH_CERTIFICATE_SECONDS}",
            f"environment={pairs(variables)}",
            "stopasgroup=true",
            f"stdout_logfile={layout.run_dir}/logs/certificate.log",
            "redirect_stderr=true",
        )
    )


def _code(folder: Path) -> dict[str, str]:
    """A service whose files changed has a changed configuration, so that supervisord restarts it and no other."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(file.read_bytes())
    return {"STACK_CODE": digest.hexdigest()[:16]}


def pairs(variables: Mapping[str, str]) -> str:
    """Write variables as supervisord's `environment=` wants them; it knows quotes, but no escapes inside them."""
    written = []
    for name, value in sorted(variables.items()):
        quote = "'" if '"' in value else '"'
        if quote in value or "\n" in value:
            raise StackError(f"{name} holds both kinds of quotes or a line break, which supervisord cannot pass on.")
        written.append(f"{name}={quote}{value.replace('%', '%%')}{quote}")
    return ",".join(written)
