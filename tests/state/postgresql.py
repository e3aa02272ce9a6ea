"""A real PostgreSQL of the test's own; it does not run as root, so root starts it as the user of its package."""

import os
import shutil
import subprocess
from pathlib import Path

START_SECONDS = 60
USER = "postgres"


def programs() -> Path:
    """Return where the newest PostgreSQL has its programs; Debian has them in no PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    assert found or on_path, "PostgreSQL is not installed: ops/setup.sh tests"
    return found[-1].parent if found else Path(str(on_path)).parent


class PostgreSQL:
    """One server on a port of 127.0.0.1, with a database `chat` and a password."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder / "postgresql"
        self.port = port

    @property
    def url(self) -> str:
        """What CHAT_UI_HISTORY_URL is to be."""
        return f"postgresql://{USER}:hush@127.0.0.1:{self.port}/{USER}"

    def start(self) -> None:
        """Make the cluster the first time, start the server and wait until it answers."""
        if not (self._folder / "PG_VERSION").exists():
            self._folder.mkdir(exist_ok=True)
            password = self._folder.with_name("password")
            password.write_text("hush")
            if os.geteuid() == 0:
                for path in (self._folder, password):
                    shutil.chown(path, USER)
                self._folder.parent.chmod(0o711)
            self._run("initdb", "-D", self._folder, "-U", USER, "-A", "scram-sha-256", f"--pwfile={password}", "-N")
        options = f"-h 127.0.0.1 -p {self.port} -k {self._folder} -F"
        log = self._folder / "log"
        self._run("pg_ctl", "-D", self._folder, "-o", options, "-l", log, "-w", "-t", START_SECONDS, "start")

    def stop(self) -> None:
        """Stop it at once, connections or not."""
        self._run("pg_ctl", "-D", self._folder, "-m", "fast", "-w", "stop")

    def _run(self, program: str, *arguments: object) -> None:
        as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 else []
        command = [*as_user, programs() / program, *(str(argument) for argument in arguments)]
        subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL, timeout=2 * START_SECONDS)
