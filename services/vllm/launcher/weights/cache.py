"""Where the hubs' weights lie on this machine, and whether they are whole there."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from launcher.settings import Settings


def locate(settings: Settings, environment: Mapping[str, str]) -> Path | None:
    """The model's folder on this machine; None if the hub has to be asked.

    A cached revision is taken as it is: only `fetch` looks for a newer one. One whose download was broken off is not.
    """
    if settings.is_folder:
        return settings.folder
    if settings.hub == "modelscope":
        folder = modelscope_folder(settings, environment)
        return folder if folder.is_dir() and not _mark(folder).exists() else None
    snapshots = repository(settings, environment) / "snapshots"
    revision = settings.revision or "main"
    for commit in (_text(snapshots.parent / "refs" / revision), revision):
        if commit and (snapshots / commit).is_dir() and not _mark(snapshots / commit).exists():
            return snapshots / commit
    return None


@contextmanager
def unfinished(folder: Path) -> Iterator[None]:
    """A download into a folder: however it ends, the folder counts only if it ended well."""
    mark = _mark(folder)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    yield
    # Another engine may have filled the same cache meanwhile, and was first to say so.
    mark.unlink(missing_ok=True)


def _mark(folder: Path) -> Path:
    # Hugging Face's own tools take everything in snapshots/ for one.
    home = folder.parent.parent if folder.parent.name == "snapshots" else folder.parent
    return home / f".{folder.name}.unfinished"


def repository(settings: Settings, environment: Mapping[str, str]) -> Path:
    """The repository's folder in huggingface_hub's cache."""
    return hub_cache(environment) / f"models--{settings.model.replace('/', '--')}"


def hub_cache(environment: Mapping[str, str]) -> Path:
    """The folder that huggingface_hub uses, by its own variables."""
    if environment.get("HF_HUB_CACHE"):
        return Path(environment["HF_HUB_CACHE"]).expanduser()
    if environment.get("HF_HOME"):
        return Path(environment["HF_HOME"]).expanduser() / "hub"
    return _user_cache(environment) / "huggingface" / "hub"


def modelscope_folder(settings: Settings, environment: Mapping[str, str]) -> Path:
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
