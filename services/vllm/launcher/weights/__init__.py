"""Where the weights are: a folder, the hub's cache on this machine, or the hub."""

import errno
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from launcher.errors import BadSetting, InsufficientResources, LauncherError, WeightsUnreachable
from launcher.settings import Settings
from launcher.weights import hashes, huggingface, modelscope
from launcher.weights.cache import locate
from launcher.weights.progress import Channel, LogLines, Progress, Teller, read_progress

__all__ = [
    "Channel",
    "Progress",
    "Teller",
    "check_hashes",
    "download",
    "hub_environment",
    "locate",
    "may_ask_hub",
    "read_progress",
    "unreachable",
]

# No *.py: nothing of a repository is executed. No *.bin, *.pdparams: only what vLLM loads safely.
_PATTERNS = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
_OFFLINE_VALUES = frozenset({"1", "on", "true", "yes"})

log = logging.getLogger(__name__)


def may_ask_hub(settings: Settings, environment: Mapping[str, str]) -> bool:
    """Whether a hub may be asked at all."""
    offline = environment.get("HF_HUB_OFFLINE", "").lower() in _OFFLINE_VALUES
    return not (settings.is_folder or settings.offline or offline)


def hub_environment(settings: Settings) -> dict[str, str]:
    """Variables by which the hubs' own clients learn of a mirror, and draw no bars: the launcher logs the progress."""
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}
    if not settings.hub_endpoint:
        return quiet
    endpoint = settings.hub_endpoint.rstrip("/")
    if settings.hub == "modelscope":
        return {**quiet, "MODELSCOPE_DOMAIN": endpoint.partition("://")[2], "MODELSCOPE_ENDPOINT": endpoint}
    # Mirrors serve files, not the chunk service that the client prefers.
    return {**quiet, "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1"}


def download(
    settings: Settings,
    environment: Mapping[str, str],
    *,
    dry_run: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Fetch the model into the cache, going on where an earlier try stopped; or only ask what it would take.

    No limit on the whole, but on the hub's first answer and on each file's silence. What was fetched is checked by the
    hub's hashes. `on_progress` is called twice a second, from another thread. Raises WeightsUnreachable, BadSetting,
    BrokenCheckpoint or InsufficientResources.
    """
    fetch = modelscope.fetch if settings.hub == "modelscope" else huggingface.fetch
    lines = LogLines()

    def tell(progress: Progress) -> None:
        lines.tell(progress)
        if on_progress is not None:
            on_progress(progress)

    try:
        fetch(settings, environment, _PATTERNS, tell, dry_run=dry_run)
    except LauncherError:
        raise
    except Exception as error:  # noqa: BLE001  (two clients, each with errors of several libraries)
        _explain(settings, settings.hub_endpoint or settings.hub, error)


def check_hashes(folder: Path) -> int:
    """Compare every file whose hash is known, about a second a gigabyte; return how many those are.

    Raises BrokenCheckpoint, with the file's name.
    """
    known = hashes.known(folder)
    hashes.check(known)
    return len(known)


def _explain(settings: Settings, where: str, error: Exception) -> None:
    """Raise the launcher's own error for what a hub's client raised; its first cause tells the most."""
    chain = [error]
    while isinstance(cause := chain[-1].__cause__, Exception):
        chain.append(cause)
    kinds = {kind.__name__ for link in chain for kind in type(link).__mro__}
    log.debug("download failed", exc_info=error)
    if any(getattr(link, "errno", None) == errno.ENOSPC for link in chain):
        raise InsufficientResources(f"the disk is full while fetching {settings.model}; free some space") from error
    if "GatedRepoError" in kinds:
        raise BadSetting("HF_TOKEN", f"{settings.model} needs a token with access to it") from error
    if kinds & {"RepositoryNotFoundError", "NotExistError", "HFValidationError"}:
        raise BadSetting("ENGINE_MODEL", f"{where} has no {settings.model}, or it needs a token (HF_TOKEN)") from error
    if "RevisionNotFoundError" in kinds:
        raise BadSetting("ENGINE_REVISION", f"{settings.model} has no revision {settings.revision}") from error
    detail = (str(chain[-1]).strip().splitlines() or [""])[0]
    raise WeightsUnreachable(unreachable(settings, f"{type(chain[-1]).__name__}: {detail}")) from error


def unreachable(settings: Settings, detail: str) -> str:
    """One line for weights that are neither here nor to be had."""
    where = settings.hub_endpoint or settings.hub
    return (
        f"{settings.model} is not whole on this machine and {where} cannot be asked ({detail}). Check the network, set"
        " ENGINE_HUB_ENDPOINT to a mirror, ENGINE_HUB=modelscope, or ENGINE_MODEL to a folder or `demo`"
    )
