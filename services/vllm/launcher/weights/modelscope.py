"""Weights from ModelScope, by its own client, which goes on where it stopped, tries again, and checks SHA-256."""

import fnmatch
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.errors import BadSetting
from launcher.hardware import GIB
from launcher.settings import Settings
from launcher.weights import disk, hashes
from launcher.weights.cache import modelscope_folder, unfinished
from launcher.weights.progress import Progress, watching

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _File:
    path: str
    size: int
    sha256: str


def fetch(
    settings: Settings,
    environment: Mapping[str, str],
    patterns: Sequence[str],
    tell: Callable[[Progress], None],
    *,
    dry_run: bool,
) -> None:
    """Fetch what is missing; or only ask what it is. Raises BadSetting where the client is not installed."""
    try:
        hub: Any = importlib.import_module("modelscope")
    except ModuleNotFoundError as error:
        raise BadSetting(
            "ENGINE_HUB", "modelscope needs the Python package modelscope, which is not installed beside vLLM"
        ) from error
    folder = modelscope_folder(settings, environment)
    revision = settings.revision or None
    files = [file for file in _list(hub, settings.model, revision) if _is_wanted(file.path, patterns)]
    total = sum(file.size for file in files)
    missing_bytes = max(0, total - disk.bytes_in(folder))
    disk.require_room(folder, missing_bytes)
    log.info(
        "%s at %s has %d files, %.2f GiB to fetch",
        settings.model,
        revision or "its default branch",
        len(files),
        missing_bytes / GIB,
    )
    if dry_run:
        return
    with unfinished(folder), watching(lambda: disk.bytes_in(folder), total, tell):
        hub.snapshot_download(settings.model, revision=revision, local_dir=str(folder), allow_patterns=list(patterns))
        hashes.write_manifest(folder, {file.path: file.sha256 for file in files if file.sha256})


def _list(hub: Any, model: str, revision: str | None) -> list[_File]:
    """The repository's files; the older client gives dictionaries, the newer one leaves the hashes out of them."""
    rows = [row for row in hub.HubApi().get_model_files(model, revision=revision) if row.get("Type") != "tree"]
    known: dict[str, str] = {row["Path"]: str(row.get("Sha256") or "") for row in rows}
    if not any(known.values()):
        try:
            newer: Any = importlib.import_module("modelscope_hub")
        except ModuleNotFoundError:
            log.warning("this modelscope client tells no hashes: `check --hashes` will have none")
        else:
            listed = newer.HubApi().list_repo_files(model, "model", revision=revision)
            known = {file.path: file.sha256 or "" for file in listed if file.type != "tree"}
    return [_File(row["Path"], int(row.get("Size") or 0), known.get(row["Path"], "")) for row in rows]


def _is_wanted(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)
