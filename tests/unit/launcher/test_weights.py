"""Where weights are found without asking anyone, and how failures of the hubs' clients are told."""

from pathlib import Path

import pytest
from launcher import weights
from launcher.errors import BadSetting, InsufficientResources, LauncherError, WeightsUnreachable
from launcher.settings import Settings

COMMIT = "a" * 40


def _cached(hub: Path, *, refs: str = "main") -> Path:
    repository = hub / "models--baidu--ERNIE-4.5-0.3B-PT"
    (repository / "snapshots" / COMMIT).mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / refs).write_text(COMMIT)
    return repository / "snapshots" / COMMIT


@pytest.mark.parametrize(
    ("variable", "hub"),
    [
        ("HF_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ],
)
def test_the_hubs_cache_is_found_by_its_own_variables(tmp_path: Path, variable: str, hub: str) -> None:
    environment = {"HOME": "/nowhere", variable: str(tmp_path)}
    assert weights.locate(Settings(), environment) is None
    snapshot = _cached(tmp_path / hub)
    assert weights.locate(Settings(), environment) == snapshot


def test_a_revision_is_a_branch_or_a_commit(tmp_path: Path) -> None:
    snapshot = _cached(tmp_path, refs="v1")
    environment = {"HF_HUB_CACHE": str(tmp_path)}
    assert weights.locate(Settings(), environment) is None
    assert weights.locate(Settings(revision="v1"), environment) == snapshot
    assert weights.locate(Settings(revision=COMMIT), environment) == snapshot
    assert weights.locate(Settings(revision="v2"), environment) is None


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert weights.locate(Settings(model=str(tmp_path)), {}) == tmp_path


def test_modelscope_has_a_folder_for_each_revision(tmp_path: Path) -> None:
    environment = {"MODELSCOPE_CACHE": str(tmp_path)}
    settings = Settings(hub="modelscope", revision="v1")
    assert weights.locate(settings, environment) is None
    folder = tmp_path / "engine/baidu--ERNIE-4.5-0.3B-PT/v1"
    folder.mkdir(parents=True)
    assert weights.locate(settings, environment) == folder


def test_when_a_hub_may_be_asked(tmp_path: Path) -> None:
    assert weights.may_ask_hub(Settings(), {})
    assert not weights.may_ask_hub(Settings(offline=True), {})
    assert not weights.may_ask_hub(Settings(), {"HF_HUB_OFFLINE": "1"})
    assert not weights.may_ask_hub(Settings(model="demo"), {})
    assert not weights.may_ask_hub(Settings(model=str(tmp_path)), {})


def test_a_mirror_is_told_to_the_client() -> None:
    assert weights.hub_environment(Settings()) == {}
    told = weights.hub_environment(Settings(hub_endpoint="https://mirror.example/"))
    assert told["HF_ENDPOINT"] == "https://mirror.example"
    told = weights.hub_environment(Settings(hub="modelscope", hub_endpoint="https://mirror.example"))
    assert told["MODELSCOPE_DOMAIN"] == "mirror.example"


def _error(name: str, base: type[Exception] = Exception) -> Exception:
    return type(name, (base,), {})("what the client said\nand more")


class _Hub:
    """huggingface_hub, failing."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def HfApi(self) -> "_Hub":  # noqa: N802  (the client's name)
        return self

    def model_info(self, *_: object, **__: object) -> None:
        raise RuntimeError("wrapped") from self._error


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (_error("GatedRepoError"), BadSetting, "HF_TOKEN: "),
        (_error("RepositoryNotFoundError"), BadSetting, "ENGINE_MODEL: "),
        (_error("RevisionNotFoundError"), BadSetting, "ENGINE_REVISION: "),
        (OSError(28, "No space left on device"), InsufficientResources, "disk is full"),
        (_error("ConnectError"), WeightsUnreachable, "ConnectError: what the client said"),
    ],
)
def test_the_clients_errors_are_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, kind: type[LauncherError], says: str
) -> None:
    monkeypatch.setattr(weights.importlib, "import_module", lambda _: _Hub(error))
    with pytest.raises(kind) as caught:
        weights.download(Settings(), {"HF_HUB_CACHE": str(tmp_path)})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_modelscope_without_its_package_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="ENGINE_HUB: modelscope needs the Python package modelscope"):
        weights.download(Settings(hub="modelscope"), {"MODELSCOPE_CACHE": str(tmp_path)})


class _Big:
    """huggingface_hub with a file that fits on no disk."""

    def HfApi(self) -> "_Big":  # noqa: N802  (the client's name)
        return self

    def model_info(self, *_: object, **__: object) -> None:
        pass

    def snapshot_download(self, **_: object) -> list[object]:
        class File:
            will_download = True
            file_size = 1 << 60

        return [File()]


def test_a_disk_that_is_too_small_is_refused_before_the_download(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(weights.importlib, "import_module", lambda _: _Big())
    with pytest.raises(InsufficientResources, match="GiB are to be fetched"):
        weights.download(Settings(), {"HF_HUB_CACHE": str(tmp_path / "new")})
