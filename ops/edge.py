"""nginx without Docker: the same files as the image's, rendered with the same variables (docs/adr/0003)."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ops.errors import StackError

DEFAULTS = {
    "NGINX_MAX_BODY_BYTES": "2097152",  # the gateway's own default
    "NGINX_RATE_LIMIT_REQUESTS": "100/second",
    "NGINX_STATUS_PAGE": "off",
    "NGINX_MAX_CONNECTIONS_PER_CLIENT": "512",
    "NGINX_UPSTREAM_RESOLVE": "",  # the addresses are fixed; nginx before 1.27.3 does not know the word
    "NGINX_LOCAL_RESOLVERS": "127.0.0.1",  # never asked, for the same reason
}


def render_nginx(source: Path, target: Path, variables: Mapping[str, str]) -> None:
    """Write the prefix folder `target` from `source` (the repository's nginx/).

    Raises `StackError` naming the variable if the edge's own check refuses a value.
    """
    values = _checked(source, {**DEFAULTS, **variables})
    for folder in ("snippets", "errors"):
        shutil.copytree(source / folder, target / folder, dirs_exist_ok=True)
    shutil.copy(source / "nginx.conf", target / "nginx.conf")
    for folder in ("conf.d", "run"):
        (target / folder).mkdir(parents=True, exist_ok=True)
    for template in (source / "templates").glob("*.template"):
        text = re.sub(r"\$\{(NGINX_\w+)\}", lambda found: values[found[1]], template.read_text(encoding="utf-8"))
        (target / "conf.d" / template.stem).write_text(text, encoding="utf-8")


def _checked(source: Path, values: Mapping[str, str]) -> dict[str, str]:
    """Return the values as the image's own check leaves them, with those that it derives."""
    script = source / "docker-entrypoint.d" / "05-settings.envsh"
    done = subprocess.run(
        ["/bin/sh", "-c", '. "$0" && env', script],
        env={"PATH": "/usr/bin:/bin", **values},
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    if done.returncode != 0:
        raise StackError(done.stderr.strip(), done.returncode)
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith("NGINX_"))
