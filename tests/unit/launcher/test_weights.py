"""Where weights are found without asking anyone, how failures of the hubs' clients are told, progress and hashes."""

import hashlib
import os
from pathlib import Path

import pytest
from launcher import weights
from launcher.errors import BadSetting, BrokenCheckpoint, InsufficientResources, LauncherError, WeightsUnreachable
from launcher.settings import Settings
from launcher.weights import cache, huggingface
from launcher.weights.progress import Channel, LogLines, Meter, Progress, Teller, read_progress

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


def test_a_download_that_was_broken_off_does_not_count(tmp_path: Path) -> None:
    snapshot = _cached(tmp_path)
    environment = {"HF_HUB_CACHE": str(tmp_path)}
    with pytest.raises(KeyboardInterrupt), cache.unfinished(snapshot):
        raise KeyboardInterrupt
    assert weights.locate(Settings(), environment) is None
    assert weights.locate(Settings(revision=COMMIT), environment) is None
    with cache.unfinished(snapshot):
        assert weights.locate(Settings(), environment) is None
    assert weights.locate(Settings(), environment) == snapshot


def test_two_engines_may_fill_one_cache_at_the_same_time(tmp_path: Path) -> None:
    snapshot = _cached(tmp_path)
    with cache.unfinished(snapshot), cache.unfinished(snapshot):
        pass
    assert weights.locate(Settings(), {"HF_HUB_CACHE": str(tmp_path)}) == snapshot


def test_when_a_hub_may_be_asked(tmp_path: Path) -> None:
    assert weights.may_ask_hub(Settings(), {})
    assert not weights.may_ask_hub(Settings(offline=True), {})
    assert not weights.may_ask_hub(Settings(), {"HF_HUB_OFFLINE": "1"})
    assert not weights.may_ask_hub(Settings(model="demo"), {})
    assert not weights.may_ask_hub(Settings(model=str(tmp_path)), {})


def test_a_mirror_is_told_to_the_client() -> None:
    assert "HF_ENDPOINT" not in weights.hub_environment(Settings())
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
    monkeypatch.setattr(huggingface.importlib, "import_module", lambda _: _Hub(error))
    with pytest.raises(kind) as caught:
        weights.download(Settings(), {"HF_HUB_CACHE": str(tmp_path)})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_modelscope_without_its_package_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="ENGINE_HUB: modelscope needs the Python package modelscope"):
        weights.download(Settings(hub="modelscope"), {"MODELSCOPE_CACHE": str(tmp_path)})


class _Big:
    """huggingface_hub with a file that fits on no disk."""

    sha = COMMIT

    def HfApi(self) -> "_Big":  # noqa: N802  (the client's name)
        return self

    def model_info(self, *_: object, **__: object) -> "_Big":
        return self

    def snapshot_download(self, **_: object) -> list[object]:
        class File:
            will_download = True
            file_size = 1 << 60

        return [File()]


def test_a_disk_that_is_too_small_is_refused_before_the_download(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huggingface.importlib, "import_module", lambda _: _Big())
    with pytest.raises(InsufficientResources, match="GiB are to be fetched"):
        weights.download(Settings(), {"HF_HUB_CACHE": str(tmp_path / "new")})


class _Line:
    """A download that breaks off: each try brings so many bytes, 0 none; the last one of all succeeds."""

    def __init__(self, *tries: int, error: Exception | None = None) -> None:
        self._tries = list(tries)
        self._error = error or ConnectionError("reset")
        self.bytes = 0

    def attempt(self) -> None:
        self.bytes += self._tries.pop(0)
        if self._tries:
            raise self._error

    def measure(self) -> int:
        return self.bytes


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(huggingface.time, "sleep", found.append)
    return found


def test_a_line_that_brings_something_is_tried_for_ever(pauses: list[float]) -> None:
    huggingface._persist((line := _Line(*[5] * 20)).attempt, line.measure)
    assert pauses == [2] * 19


def test_a_line_that_brings_nothing_is_given_up(pauses: list[float]) -> None:
    line = _Line(*[0] * 20)
    with pytest.raises(ConnectionError):
        huggingface._persist(line.attempt, line.measure)
    assert pauses == [2, 4, 8, 16]


def test_what_is_no_fault_of_the_line_is_not_tried_again(pauses: list[float]) -> None:
    line = _Line(5, 5, error=PermissionError("no"))
    with pytest.raises(PermissionError):
        huggingface._persist(line.attempt, line.measure)
    assert pauses == []


def test_progress_is_read_as_it_was_written() -> None:
    progress = Progress(310_000_000, 721_000_000, 12_100_000.0)
    assert read_progress(progress.line()) == progress
    assert progress.detail == "310 of 721 MB, 12.1 MB/s, 34 s left"
    assert round(progress.fraction, 2) == 0.43
    for other in ("", "{}", "[1]", '{"done": "x", "total": 1, "rate": 1}'):
        assert read_progress(other) is None


def test_the_rate_is_that_of_late() -> None:
    told: list[Progress] = []
    meter = Meter(1000, told.append)
    for now, done in ((0.0, 100), (5.0, 200), (10.0, 300), (30.0, 300), (32.0, 5000)):
        meter.update(done, now)
    assert [round(step.rate) for step in told] == [0, 20, 20, 0, 350]
    assert told[0].detail == "0 of 0 MB"
    assert told[-1].done == 1000


def test_the_log_has_a_line_every_five_percent(caplog: pytest.LogCaptureFixture) -> None:
    lines = LogLines()
    with caplog.at_level("INFO"):
        # 1 % a second; a step of 5 % every 5 s.
        for second in range(101):
            lines.tell(Progress(second, 100, 1.0), float(second))
        fast = len(caplog.messages)
        # All in one second: the first and the last.
        lines = LogLines()
        for step in range(101):
            lines.tell(Progress(step, 100, 100.0), step / 100)
        slow_start = len(caplog.messages)
        # 0.1 % a second: one line every 30 s.
        lines = LogLines()
        for second in range(61):
            lines.tell(Progress(second, 1000, 1.0), float(second))
    assert fast == 21
    assert slow_start - fast == 2
    assert len(caplog.messages) - slow_start == 3
    assert caplog.messages[20] == "100 %: 0 of 0 MB, 0.0 MB/s, 0 s left"


def test_a_child_tells_its_progress_through_a_pipe() -> None:
    told: list[Progress] = []
    steps = [Progress(1, 3, 0.5), Progress(3, 3, 1.0)]
    with Channel(told.append) as channel, Teller(channel.path) as child, channel.path.open("a") as other:
        for step in steps:
            child.tell(step)
        print("something else", file=other)
    assert told == steps
    with Channel(told.append) as channel:
        assert channel.path.is_fifo()
    assert not channel.path.exists()


def test_a_download_outlives_who_reads_its_progress(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with Teller(tmp_path / "pipe") as teller:
        os.close(reader)
        for _ in range(3):
            teller.tell(Progress(1, 3, 0.5))
    assert caplog.messages == ["nobody reads the progress any more; the download goes on"]


def test_hashes_are_known_from_links_notes_and_the_manifest(tmp_path: Path) -> None:
    data = b"some weights"
    sha256, git = hashlib.sha256(data).hexdigest(), hashlib.sha1(b"blob 12\0" + data).hexdigest()  # noqa: S324
    linked, noted = tmp_path / "linked", tmp_path / "noted"
    for folder in (linked, noted / ".cache/huggingface/download"):
        folder.mkdir(parents=True)
    for name, value in (("a.safetensors", sha256), ("b.json", git), ("c.txt", "strange")):
        (tmp_path / value).write_bytes(data)
        (linked / name).symlink_to(tmp_path / value)
    (noted / "a.safetensors").write_bytes(data)
    (noted / ".cache/huggingface/download/a.safetensors.metadata").write_text(f"{COMMIT}\n{sha256}\n1.0\n")
    assert weights.check_hashes(linked) == 2
    assert weights.check_hashes(noted) == 1
    (own := tmp_path / "own").mkdir()
    (own / "b.json").write_bytes(data)
    weights.hashes.write_manifest(own, {"b.json": git})
    assert weights.check_hashes(own) == 1

    os.truncate(noted / "a.safetensors", 3)
    with pytest.raises(BrokenCheckpoint, match=r"a\.safetensors is not what the hub has.*Delete .*launcher fetch"):
        weights.check_hashes(noted)
    (tmp_path / sha256).unlink()
    with pytest.raises(BrokenCheckpoint, match=r"a\.safetensors is missing"):
        weights.check_hashes(linked)
