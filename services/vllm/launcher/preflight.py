"""Everything that must hold before vLLM is started, in the order in which it is cheap to find out."""

import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from launcher import checkpoint as checkpoints
from launcher import errors, hardware, ports, weights
from launcher.checkpoint import Checkpoint
from launcher.command import Command, build, server_environment, with_caches
from launcher.hardware import Hardware
from launcher.installation import Installation, arguments, flags, variables
from launcher.planning import plan as plans
from launcher.planning import shapes, support
from launcher.planning.plan import Plan
from launcher.settings import Settings

_DISK_RESERVE_BYTES = 64 * hardware.MIB

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """All that a start needs: one command for each engine."""

    plan: Plan
    checkpoint: Checkpoint
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Site:
    """Where engines run: the machine, what of it computes, and the vLLM that is installed there."""

    machine: Hardware
    device: str
    installation: Installation

    @classmethod
    def find(cls, settings: Settings, environment: Mapping[str, str], described: Hardware | None = None) -> Self:
        """This machine, or a described one with this vLLM in the build that it needs. Raises UnsupportedHardware."""
        installation = Installation.find()
        machine = described or hardware.detect(environment)
        if installation is None:
            raise errors.UnsupportedHardware("vLLM is not installed for this Python; run `make setup` or use the image")
        if described is not None:
            installation = installation.of_build("cuda" if described.gpus else "cpu")
        return cls(machine, support.choose_device(settings, machine, installation), installation)


def prepare(settings: Settings, environment: Mapping[str, str], obtain: Callable[[], bool] | None) -> Prepared | None:
    """Everything before the start; `obtain` fetches weights that are not whole here and says whether to go on.

    None if it says no. Raises the LauncherError that explains what is in the way.
    """
    site = Site.find(settings, environment)
    require_cache(settings)
    checkpoint = _find_checkpoint(settings, with_caches(settings, environment), obtain)
    return None if checkpoint is None else _assemble(settings, environment, site, checkpoint)


def foresee(settings: Settings, environment: Mapping[str, str], described: Hardware | None = None) -> Prepared | None:
    """What a start would be, without one and without a download, on this machine or on a described one.

    A model whose weights are not here is planned for by its published shape, if that is known. Raises as `prepare`
    does.
    """
    site = Site.find(settings, environment, described)
    caches = with_caches(settings, environment)
    shape = shapes.known(settings.model) if weights.locate(settings, caches) is None else None
    if shape is None:
        checkpoint = _find_checkpoint(settings, caches, None)
        return None if checkpoint is None else _assemble(settings, environment, site, checkpoint)
    prepared = _assemble(settings, environment, site, shape)
    note = f"the weights of {settings.model} are not on this machine: planned for their published shape"
    return replace(prepared, plan=replace(prepared.plan, reasons=(note, *prepared.plan.reasons)))


def _assemble(settings: Settings, environment: Mapping[str, str], site: Site, checkpoint: Checkpoint) -> Prepared:
    """Plan and commands for a checkpoint. Raises BadSetting, BrokenCheckpoint and what the plan does."""
    installation = site.installation
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
    plan = plans.make(settings, site.machine, checkpoint, site.device)
    commands = tuple(
        Command(
            build(settings, plan, checkpoint, installation, index),
            server_environment(settings, plan, environment, index),
        )
        for index in range(plan.engines)
    )
    if settings.extra_args:
        arguments.check(commands[0].argv[len(installation.start) :], commands[0].environment, installation.version)
    return Prepared(plan, checkpoint, commands)


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


def require_port(settings: Settings, index: int = 0) -> None:
    """Raise PortTaken or BadSetting unless an engine, counted from 0, could listen where it should."""
    port, variable = settings.engine_port(index), "ENGINE_STATUS_PORT" if index else "ENGINE_PORT"
    ports.listen(settings.host, port, variable, _named(variable, port, index)).close()


def _named(variable: str, port: int, index: int) -> str:
    return f"port {port} of engine {index + 1}" if index else f"{variable}={port}"


def require_cache(settings: Settings) -> None:
    """The cache folder can be written to and has room for what compilation leaves there."""
    if not settings.cache_dir:
        return
    folder = Path(settings.cache_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Nameless, since engines that share the folder may look at the same time.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise errors.BadSetting(
            "ENGINE_CACHE_DIR", f"{folder} cannot be written to ({error.strerror}); mount a volume that this user owns"
        ) from error
    free = shutil.disk_usage(folder).free
    if free < _DISK_RESERVE_BYTES:
        raise errors.InsufficientResources(
            f"{folder} has {free // hardware.MIB} MiB free, {_DISK_RESERVE_BYTES // hardware.MIB} are needed; free some"
        )
