"""The stack as containers: `docker compose` starts and stops them, the Docker SDK tells how they are."""

import subprocess
from collections.abc import Sequence

import docker
from docker.errors import DockerException
from docker.models.containers import Container

from ops.errors import StackError
from ops.host import require_free_ports
from ops.settings import Settings
from ops.stage import Stage, read_stage
from ops.way import SERVICES, ServiceState, Verdict, run_check

STOP_TIMEOUT_SECONDS = 180
GIVE_UP_AFTER_RESTARTS = 3
STATUS_COMMAND = ["python3", "-m", "launcher", "status"]


class Containers:
    """Docker's way, with the card (`docker-compose.yml`) or without (`docker-compose.cpu.yml` on top)."""

    def __init__(self, settings: Settings, *, gpu: bool) -> None:
        self.name = "docker compose" if gpu else "docker compose, CPU"
        self._settings = settings
        files = ["docker-compose.yml"] if gpu else ["docker-compose.yml", "docker-compose.cpu.yml"]
        if settings.tls:
            files.append("docker-compose.tls.yml")
        self._compose = ["docker", "compose", *(word for file in files for word in ("-f", file))]
        self._environment = dict(settings.environment)
        self._project = settings.environment.get("COMPOSE_PROJECT_NAME") or "ernie-serving"
        self._starting: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Build the images, once the port is known to be free; a second time the build cache answers in seconds."""
        if not self.is_up():
            tls = {"NGINX_HTTPS_PORT": self._settings.port("NGINX_HTTPS_PORT", 8443)} if self._settings.tls else {}
            require_free_ports({"NGINX_HTTP_PORT": self._settings.http_port} | tls)
        if self._run("build") != 0:
            raise StackError("An image could not be built; the reason stands above.")

    def is_up(self) -> bool:
        """Tell whether a container of this project exists and is not stopped."""
        return any(container.status in ("running", "restarting") for container in self._containers())

    def check(self) -> Verdict:
        """Run the launcher's `check` in a container of its own, with the engine's volumes, card and network."""
        command = [*self._compose, "run", "--rm", "--no-deps", "-T", "vllm", "check"]
        return run_check(command, self._settings.root, self._environment)

    def start(self, model: str) -> None:
        """Call `docker compose up` in the background: it keeps the start order by health."""
        if model:
            self._environment["ENGINE_MODEL"] = model
        log = self._settings.run_dir / "compose.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._starting = subprocess.Popen(
                [*self._compose, "up", "--detach", "--remove-orphans"],
                cwd=self._settings.root,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def is_starting(self) -> bool:
        """Tell whether `docker compose up` still waits for a service to become healthy."""
        return self._starting is not None and self._starting.poll() is None

    def states(self) -> dict[str, ServiceState]:
        """Return each container's state and health; raises `StackError` where compose itself gave up."""
        found = {c.labels.get("com.docker.compose.service", ""): _state_of(c) for c in self._containers()}
        states = {service: found.get(service, ServiceState("waiting")) for service in SERVICES}
        starting = self._starting
        if starting is not None and starting.poll() not in (None, 0) and not any(s.failed for s in states.values()):
            log = (self._settings.run_dir / "compose.log").read_text(errors="replace").strip().splitlines()
            raise StackError(f"docker compose up ended with {starting.returncode}: {log[-1] if log else 'no output'}")
        return states

    def stage(self) -> Stage | None:
        """Ask the launcher inside the engine's container: nothing of it is published."""
        try:
            for container in self._containers():
                if container.labels.get("com.docker.compose.service") == "vllm" and container.status == "running":
                    code, output = container.exec_run(STATUS_COMMAND, stderr=False)
                    return read_stage(output) if code == 0 and isinstance(output, bytes) else None
        except (DockerException, OSError):
            # It may be gone by now; its state is told elsewhere.
            return None
        return None

    def last_words(self, service: str) -> Sequence[str]:
        """Return the last 20 lines of the container's log."""
        for container in self._containers():
            if container.labels.get("com.docker.compose.service") == service:
                return container.logs(tail=20).decode(errors="replace").splitlines()
        return []

    def stop(self) -> None:
        """Call `docker compose down`: containers and networks go, volumes stay."""
        if self._starting is not None and self._starting.poll() is None:
            self._starting.terminate()
            self._starting.wait(timeout=STOP_TIMEOUT_SECONDS)
        if self._run("down", "--remove-orphans") != 0:
            raise StackError("docker compose down failed; its reason stands above.")

    def _run(self, *arguments: str) -> int:
        done = subprocess.run([*self._compose, *arguments], cwd=self._settings.root, env=self._environment, check=False)
        return done.returncode

    def _containers(self) -> list[Container]:
        client = docker.from_env(timeout=30)
        try:
            return client.containers.list(all=True, filters={"label": f"com.docker.compose.project={self._project}"})
        finally:
            client.close()


def _state_of(container: Container) -> ServiceState:
    state = container.attrs["State"]
    health = state.get("Health", {}).get("Status", "starting")
    restarts = container.attrs.get("RestartCount", 0)
    if state["Status"] in ("restarting", "exited", "dead"):
        code = state.get("ExitCode")
        return ServiceState(f"ended with {code}, restarts: {restarts}", failed=restarts >= GIVE_UP_AFTER_RESTARTS)
    if state["Status"] != "running":
        return ServiceState("waiting" if state["Status"] == "created" else state["Status"])
    return ServiceState(health, healthy=health == "healthy")
