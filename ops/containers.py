"""The stack as containers: `docker compose` starts and stops them, the Docker SDK tells how they are."""

import subprocess
from collections.abc import Sequence

from docker.errors import DockerException
from docker.models.containers import Container

from ops.container import FETCH, KILL_CHILDREN, merge, note_of, run_inside, state_of, total, usage_of
from ops.docker_engine import docker_engine
from ops.errors import StackError
from ops.host import require_free_ports
from ops.settings import Settings
from ops.stage import Stage, furthest_behind, read_stage
from ops.way import LAST_LINES, SERVICES, ServiceState, Usage, Verdict, run_check

STOP_TIMEOUT_SECONDS = 180
ASK_TIMEOUT_SECONDS = 30
LAUNCHER_TIMEOUT_SECONDS = 60
INNER_PORTS = {"vllm": 8000, "gateway": 8001}  # fixed in docker-compose.yml
STATUS_COMMAND = ["python3", "-m", "launcher", "status"]


class Containers:
    """Docker's way, with the card (`docker-compose.yml`) or without (`docker-compose.cpu.yml` on top)."""

    is_docker = True

    def __init__(self, settings: Settings, *, gpu: bool) -> None:
        self.name = "docker compose" if gpu else "docker compose, CPU"
        self._settings = settings
        files = ["docker-compose.yml"] if gpu else ["docker-compose.yml", "docker-compose.cpu.yml"]
        if settings.tls:
            files.append("docker-compose.tls.yml")
        if settings.monitoring:
            files.append("docker-compose.monitoring.yml")
        profile = ["--profile", "gpu"] if settings.monitoring and gpu else []
        self._compose = ["docker", "compose", *(word for file in files for word in ("-f", file)), *profile]
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
        """Return each service's state and health; raises `StackError` where compose itself gave up."""
        states = {service: merge([state_of(c) for c in self._of(service)]) for service in SERVICES}
        starting = self._starting
        if starting is not None and starting.poll() not in (None, 0) and not any(s.failed for s in states.values()):
            log = self.said()
            raise StackError(f"docker compose up ended with {starting.returncode}: {log[-1] if log else 'no output'}")
        return states

    def said(self) -> list[str]:
        """Return what `docker compose up` wrote the last time."""
        log = self._settings.run_dir / "compose.log"
        return log.read_text(errors="replace").strip().splitlines() if log.exists() else []

    def stage(self) -> Stage | None:
        """Ask the launcher inside each engine's container; the one furthest behind counts."""
        told = [run_inside(container, STATUS_COMMAND) for container in self._running("vllm")]
        return furthest_behind([stage for text in told if (stage := read_stage(text or ""))])

    def last_words(self, service: str, lines: int = LAST_LINES) -> Sequence[str]:
        """Return the last lines of the service's containers, one after the other."""
        logs = [container.logs(tail=lines).decode(errors="replace") for container in self._of(service)]
        return "\n".join(logs).splitlines()

    def notes(self) -> Sequence[str]:
        """Return a line for each container: its state, exit code, restarts, and what its health check said."""
        return [note_of(container) for container in self._containers()]

    def fetch(self, service: str, path: str) -> str | None:
        """Ask from inside the service's first container."""
        address = f"http://127.0.0.1:{INNER_PORTS[service]}{path}"
        return next((run_inside(c, ["python3", "-c", FETCH, address]) for c in self._running(service)), None)

    def launcher(self, command: str) -> Sequence[str]:
        """Run it in the engine's container, or in one of its own while that one is down."""
        words = ["python3", "-m", "launcher", command]
        running = [run_inside(container, words) for container in self._running("vllm")]
        if running:
            return (running[0] or "").splitlines()
        whole = [*self._compose, "run", "--rm", "--no-deps", "-T", "--entrypoint", "python3", "vllm", *words[1:]]
        try:
            done = subprocess.run(
                whole,
                cwd=self._settings.root,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=LAUNCHER_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return []
        return done.stdout.splitlines()

    def usage(self) -> dict[str, Usage]:
        """Count inside each running container; several of one service are one sum."""
        found = {service: [usage_of(container) for container in self._running(service)] for service in SERVICES}
        return {service: total(parts) for service, parts in found.items() if parts}

    def uses_card(self) -> bool:
        """Look at what the engine's containers were given."""
        return any(c.attrs["HostConfig"].get("DeviceRequests") for c in self._running("vllm"))

    def kill_engine(self) -> None:
        """Kill all but the main process of the first container: `docker kill` would count as a stop by hand."""
        for container in self._running("vllm")[:1]:
            run_inside(container, ["sh", "-c", KILL_CHILDREN])

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

    def _of(self, service: str) -> list[Container]:
        return [c for c in self._containers() if c.labels.get("com.docker.compose.service") == service]

    def _running(self, service: str) -> list[Container]:
        try:
            return [container for container in self._of(service) if container.status == "running"]
        except (DockerException, OSError):
            return []

    def _containers(self) -> list[Container]:
        with docker_engine(ASK_TIMEOUT_SECONDS) as engine:
            return engine.containers.list(all=True, filters={"label": f"com.docker.compose.project={self._project}"})
