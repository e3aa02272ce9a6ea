"""Where the weights are: a folder, the hub's cache on this machine, or the hub."""

import errno
import importlib
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.errors import BadSetting, InsufficientResources, LauncherError, WeightsUnreachable
from launcher.hardware import GIB
from launcher.settings import Settings

# No *.py: nothing of a repository is executed. No *.bin, *.pdparams: only what vLLM loads safely.
_PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
_DISK_RESERVE_BYTES = GIB
_ANSWER_TIMEOUT_SECONDS = 10
_OFFLINE_VALUES = frozenset({"1", "on", "true", "yes"})

log = logging.getLogger(__name__)


def locate(settings: Settings, environment: Mapping[str, str]) -> Path | None:
    """The model's folder on this machine; None if the hub has to be asked.

    A cached revision is taken as it is: only `fetch` looks for a newer one.
    """
    if settings.is_folder:
        return settings.folder
    if settings.hub == "modelscope":
        folder = _modelscope_folder(settings, environment)
        return folder if folder.is_dir() else None
    repository = _hub_cache(environment) / f"models--{settings.model.replace('/', '--')}"
    revision = settings.revision or "main"
    for commit in (_text(repository / "refs" / revision), revision):
        if commit and (repository / "snapshots" / commit).is_dir():
            return repository / "snapshots" / commit
    return None


def may_ask_hub(settings: Settings, environment: Mapping[str, str]) -> bool:
    """Whether a hub may be asked at all."""
    offline = environment.get("HF_HUB_OFFLINE", "").lower() in _OFFLINE_VALUES
    return not (settings.is_folder or settings.offline or offline)


def hub_environment(settings: Settings) -> dict[str, str]:
    """Variables by which the hubs' own clients learn of a mirror."""
    if not settings.hub_endpoint:
        return {}
    endpoint = settings.hub_endpoint.rstrip("/")
    if settings.hub == "modelscope":
        return {"MODELSCOPE_DOMAIN": endpoint.partition("://")[2], "MODELSCOPE_ENDPOINT": endpoint}
    # Mirrors serve files, not the chunk service that the client prefers.
    return {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1"}


def download(settings: Settings, environment: Mapping[str, str], *, dry_run: bool = False) -> None:
    """Fetch the model into the cache, going on where an earlier try stopped; or only ask what it would take.

    No limit on the whole, but on the hub's first answer and on each file's silence. Raises WeightsUnreachable,
    BadSetting or InsufficientResources.
    """
    fetch = _from_modelscope if settings.hub == "modelscope" else _from_huggingface
    where = settings.hub_endpoint or settings.hub
    try:
        fetch(settings, environment, dry_run)
    except LauncherError:
        raise
    except Exception as error:  # noqa: BLE001  (two clients, each with errors of several libraries)
        _explain(settings, where, error)


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


def _from_huggingface(settings: Settings, environment: Mapping[str, str], dry_run: bool) -> None:
    hub: Any = importlib.import_module("huggingface_hub")
    cache = _hub_cache(environment)
    arguments = {
        "repo_id": settings.model,
        "revision": settings.revision or None,
        "cache_dir": cache,
        "allow_patterns": _PATTERNS,
    }
    # The download itself waits for ever for a hub that accepts a connection and says nothing.
    hub.HfApi().model_info(settings.model, revision=settings.revision or None, timeout=_ANSWER_TIMEOUT_SECONDS)
    files = hub.snapshot_download(**arguments, dry_run=True)
    missing_bytes = sum(file.file_size for file in files if file.will_download)
    _check_disk(cache, missing_bytes)
    log.info("%s has %d files, %.2f GiB to fetch", settings.model, len(files), missing_bytes / GIB)
    if not dry_run:
        hub.snapshot_download(**arguments)


def _from_modelscope(settings: Settings, environment: Mapping[str, str], dry_run: bool) -> None:
    try:
        hub: Any = importlib.import_module("modelscope")
    except ModuleNotFoundError as error:
        raise BadSetting(
            "ENGINE_HUB", "modelscope needs the Python package modelscope, which is not installed beside vLLM"
        ) from error
    folder = _modelscope_folder(settings, environment)
    _check_disk(folder, 0)
    if dry_run:
        files = hub.HubApi().get_model_files(settings.model, revision=settings.revision or None)
        log.info("%s has %d files", settings.model, len(files))
        return
    hub.snapshot_download(
        settings.model,
        revision=settings.revision or None,
        local_dir=str(folder),
        allow_patterns=_PATTERNS,
    )


def _check_disk(folder: Path, missing_bytes: int) -> None:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if missing_bytes and missing_bytes + _DISK_RESERVE_BYTES > free:
        raise InsufficientResources(
            f"{missing_bytes / GIB:.1f} GiB are to be fetched and {existing} has {free / GIB:.1f} GiB free (1 GiB stays"
            " in reserve); free some space or set ENGINE_CACHE_DIR"
        )


def _hub_cache(environment: Mapping[str, str]) -> Path:
    """The folder that huggingface_hub uses, by its own variables."""
    if environment.get("HF_HUB_CACHE"):
        return Path(environment["HF_HUB_CACHE"]).expanduser()
    if environment.get("HF_HOME"):
        return Path(environment["HF_HOME"]).expanduser() / "hub"
    return _user_cache(environment) / "huggingface" / "hub"


def _modelscope_folder(settings: Settings, environment: Mapping[str, str]) -> Path:
    """A folder of our own for each revision: the client's layout changed between its releases."""
    if environment.get("MODELSCOPE_CACHE"):
        root = Path(environment["MODELSCOPE_CACHE"]).expanduser()
    else:
        root = _user_cache(environment) / "modelscope"
    return root / "engine" / settings.model.replace("/", "--") / (settings.revision or "default")


def _user_cache(environment: Mapping[str, str]) -> Path:
    if environment.get("XDG_CACHE_HOME"):
        return Path(environment["XDG_CACHE_HOME"]).expanduser()
    return Path(environment.get("HOME") or Path.home()) / ".cache"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
