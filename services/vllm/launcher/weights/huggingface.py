"""Weights from Hugging Face or a mirror of it, by huggingface_hub.

Its client keeps nothing of a file whose download was broken off, so large files are fetched here, into the place where
the client looks for them, and go on where they stopped; the client does the rest.
"""

import fcntl
import importlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from launcher.errors import WeightsUnreachable
from launcher.hardware import GIB
from launcher.settings import Settings
from launcher.weights import disk, hashes
from launcher.weights.cache import hub_cache, repository, unfinished
from launcher.weights.progress import Progress, watching

_ANSWER_TIMEOUT_SECONDS = 10
_LARGE_BYTES = 4_000_000
# Hugging Face serves larger ones by its chunk service alone.
_LARGEST_BYTES = 50_000_000_000
_AT_ONCE = 4
_CHUNK_BYTES = 1 << 20
# Tries of a line that brings nothing, with pauses of 2, 4, 8 and 16 s between them.
_TRIES = 5
_TRANSIENT = frozenset({"TransportError", "ConnectionError", "TimeoutError"})
_TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})

log = logging.getLogger(__name__)


def fetch(
    settings: Settings,
    environment: Mapping[str, str],
    patterns: Sequence[str],
    tell: Callable[[Progress], None],
    *,
    dry_run: bool,
) -> None:
    """Fetch what is missing; or only ask what it is."""
    hub: Any = importlib.import_module("huggingface_hub")
    # What came of a chunk is lost when the line breaks, and the progress goes by chunks: the client's own are 10 MB.
    importlib.import_module("huggingface_hub.constants").DOWNLOAD_CHUNK_SIZE = _CHUNK_BYTES  # type: ignore[attr-defined]
    cache, home = hub_cache(environment), repository(settings, environment)
    revision = settings.revision or None
    # The download itself waits for ever for a hub that accepts a connection and says nothing.
    commit = hub.HfApi().model_info(settings.model, revision=revision, timeout=_ANSWER_TIMEOUT_SECONDS).sha
    arguments = {
        "repo_id": settings.model,
        "revision": revision,
        "cache_dir": cache,
        "allow_patterns": patterns,
    }
    files = hub.snapshot_download(**arguments, dry_run=True)
    missing = [file for file in files if file.will_download]
    total, missing_bytes = (sum(file.file_size for file in some) for some in (files, missing))
    begun = disk.bytes_in(home / "blobs", "*.part")
    disk.require_room(cache, missing_bytes - begun)
    log.info("%s at commit %s has %d files, %.2f GiB to fetch", settings.model, commit, len(files), missing_bytes / GIB)
    if dry_run:
        return
    before: int = total - missing_bytes + begun - disk.bytes_in(home / "blobs")
    large = [file for file in missing if _LARGE_BYTES <= file.file_size < _LARGEST_BYTES]

    def measure() -> int:
        return before + disk.bytes_in(home / "blobs")

    def attempt() -> None:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda file: _fetch_large(hub, settings.model, home / "blobs", file), large))
        hub.snapshot_download(**arguments)

    snapshot = home / "snapshots" / str(commit)
    with unfinished(snapshot), watching(measure, total, tell):
        _persist(attempt, measure)
        # The large ones were checked as they came.
        names = {file.filename for file in missing} - {file.filename for file in large}
        known = hashes.known(snapshot)
        hashes.check({path: value for path, value in known.items() if str(path.relative_to(snapshot)) in names})


def _fetch_large(hub: Any, model: str, blobs: Path, file: Any) -> None:
    """Fetch one file into the cache's place for it, from the byte where an earlier try stopped.

    One without a hash, as some mirrors have them, is left to the client.
    """
    url = hub.hf_hub_url(model, file.filename, revision=file.commit_hash)
    metadata = hub.get_hf_file_metadata(url, timeout=_ANSWER_TIMEOUT_SECONDS)
    if not hashes.is_hash(metadata.etag):
        log.warning("%s has no hash at this hub: its size alone is checked, and it cannot go on", file.filename)
        return
    blob, part = blobs / metadata.etag, blobs / f"{metadata.etag}.part"
    headers = hub.utils.build_hf_headers()
    if urlsplit(metadata.location).netloc != urlsplit(url).netloc:
        # A token is for the hub, not for the store that it refers to.
        headers.pop("authorization", None)
    blobs.mkdir(parents=True, exist_ok=True)
    with part.open("ab") as target:
        # Another engine may fill the same cache.
        fcntl.flock(target, fcntl.LOCK_EX)
        if blob.exists():
            part.unlink(missing_ok=True)
            return
        begun = target.tell()
        if begun > file.file_size:
            begun = target.truncate(0)
        if begun:
            log.info("%s goes on at %.0f %%", file.filename, 100 * begun / file.file_size)
        get: Any = importlib.import_module("huggingface_hub.file_download").http_get
        get(metadata.location, target, resume_size=begun, headers=headers, expected_size=file.file_size)
        target.flush()
        if not hashes.matches(part, metadata.etag):
            part.unlink()
            raise WeightsUnreachable(
                f"{file.filename} came otherwise than the hub promised (its hash is not {metadata.etag}) and was thrown"
                " away; start again, or set ENGINE_HUB_ENDPOINT to another mirror"
            )
        part.rename(blob)


def _persist(attempt: Callable[[], None], measure: Callable[[], int]) -> None:
    """Try again after a failure of the line, with growing pauses; as long as bytes come, for ever."""
    tries, before = 0, measure()
    while True:
        try:
            attempt()
        except Exception as error:
            now = measure()
            tries, before = (1, now) if now > before else (tries + 1, before)
            if tries >= _TRIES or not _is_transient(error):
                raise
            log.warning("the line broke (%s); going on in %d s", _first_line(error), 2**tries)
            time.sleep(2**tries)
        else:
            return


def _is_transient(error: Exception) -> bool:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return status in _TRANSIENT_STATUS
    kinds = {kind.__name__ for kind in type(error).__mro__}
    # The client's own word for a body that ended early.
    return bool(kinds & _TRANSIENT) or "Consistency check failed" in str(error)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
