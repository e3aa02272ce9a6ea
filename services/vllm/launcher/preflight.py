"""Everything that must hold before vLLM is started, in the order in which it is cheap to find out."""

import errno
import logging
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher import arguments, errors, flags, hardware, variables, weights
from launcher import checkpoint as checkpoints
from launcher import plan as plans
from launcher.checkpoint import Checkpoint
from launcher.command import Command, build, server_environment, with_caches
from launcher.installation import Installation
from launcher.plan import Plan
from launcher.settings import Settings

_DISK_RESERVE_BYTES = 64 * hardware.MIB

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """All that a start needs."""

    plan: Plan
    checkpoint: Checkpoint
    command: Command


def prepare(settings: Settings, environment: Mapping[str, str], obtain: Callable[[], bool] | None) -> Prepared | None:
    """Everything before the start; `obtain` fetches weights that are not whole here and says whether to go on.

    None if it says no. Raises the LauncherError that explains what is in the way.
    """
    installation = Installation.find()
    machine = hardware.detect(environment)
    device = plans.choose_device(settings, machine, installation)
    caches = with_caches(settings, environment)
    require_cache(settings)
    checkpoint = _find_checkpoint(settings, caches, obtain)
    if checkpoint is None or installation is None:
        return None
    if not installation.knows_architecture(checkpoint.architecture):
        raise errors.BrokenCheckpoint(
            f"vLLM {installation.version} does not know the architecture {checkpoint.architecture}",
            "Use a model that it supports, or a newer image (ENGINE_BASE_IMAGE)",
        )
    if checkpoint.quantization and not installation.knows_quantization(checkpoint.quantization):
        raise errors.BrokenCheckpoint(
            f"vLLM {installation.version} does not know the quantization {checkpoint.quantization}",
            "Use a checkpoint that is not quantized, or quantized by awq, gptq, fp8 or compressed-tensors",
        )
    for warning in (*checkpoint.warnings, *variables.check(environment, installation.variables)):
        log.warning("%s", warning)
    if not checkpoint.has_chat_template:
        log.warning("the model has no chat template: /v1/chat/completions will refuse; /v1/completions works")
    flags.check(settings.extra_args, installation.flags, is_moe=checkpoint.is_moe)
    plan = plans.make(settings, machine, checkpoint, device)
    argv = build(settings, plan, checkpoint, installation)
    command = Command(argv, server_environment(settings, plan, environment))
    if settings.extra_args:
        arguments.check(argv[len(installation.start) :], command.environment, installation.version)
    return Prepared(plan, checkpoint, command)


def _find_checkpoint(
    settings: Settings, caches: Mapping[str, str], obtain: Callable[[], bool] | None
) -> Checkpoint | None:
    """The checkpoint on this machine; one that is absent or broken here is obtained once, if the hub may be asked."""
    may_obtain = weights.may_ask_hub(settings, caches)
    folder = weights.locate(settings, caches)
    if folder is not None:
        try:
            return checkpoints.inspect(folder)
        except errors.BrokenCheckpoint as error:
            if not may_obtain:
                raise
            log.info("%s", error.fault)
    if not may_obtain or obtain is None:
        raise errors.WeightsUnreachable(weights.unreachable(settings, "fetching is off here"))
    if not obtain():
        return None
    folder = weights.locate(settings, caches)
    if folder is None:
        raise errors.WeightsUnreachable(weights.unreachable(settings, "the download left nothing"))
    return checkpoints.inspect(folder)


def require_port(settings: Settings) -> None:
    """Raise PortTaken or BadSetting unless the server could listen where it should."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise errors.BadSetting("ENGINE_HOST", f"{settings.host} is no address of this machine") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except PermissionError as error:
            raise errors.BadSetting("ENGINE_PORT", f"{settings.port} needs root; use one above 1023") from error
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise errors.BadSetting("ENGINE_HOST", f"{settings.host} is no address of this machine") from error
            raise errors.PortTaken(
                f"ENGINE_PORT={settings.port} on {settings.host} is taken by another process; stop it or set another"
                " ENGINE_PORT"
            ) from error


def require_cache(settings: Settings) -> None:
    """The cache folder can be written to and has room for what compilation leaves there."""
    if not settings.cache_dir:
        return
    folder = Path(settings.cache_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".launcher-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise errors.BadSetting(
            "ENGINE_CACHE_DIR", f"{folder} cannot be written to ({error.strerror}); mount a volume that this user owns"
        ) from error
    free = shutil.disk_usage(folder).free
    if free < _DISK_RESERVE_BYTES:
        raise errors.InsufficientResources(
            f"{folder} has {free // hardware.MIB} MiB free, {_DISK_RESERVE_BYTES // hardware.MIB} are needed; free some"
        )
