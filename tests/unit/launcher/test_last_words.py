"""What is left after an abnormal end: enough to understand it, nothing that is secret."""

import os
from pathlib import Path

import pytest
from launcher.supervision import last_words
from launcher.supervision.census import describe_memory, describe_processes, oom_kills

WORDS = {
    "time": "2026-11-30T11:00:00Z",
    "reason": "engine 1 ended by itself",
    "exit_code": 8,
    "stage": "serving",
    "commands": ["vllm serve --api-key sk-0123456789"],
    "log": {"engine 1": ["one", "token hf_abcdefgh was used", "last"]},
}


def test_the_newest_five_are_kept_and_the_newest_is_read(tmp_path: Path) -> None:
    for number in range(7):
        assert last_words.write(tmp_path, {**WORDS, "number": number}, [])
    assert len(list((tmp_path / "last-words").iterdir())) == 5
    newest = last_words.newest(tmp_path)
    assert newest is not None
    assert newest["number"] == 6


def test_people_can_read_it() -> None:
    processes = describe_processes([os.getpgid(0)])
    text = last_words.as_text({**WORDS, "processes": processes, "memory": describe_memory()})
    assert text.startswith("2026-11-30T11:00:00Z: engine 1 ended by itself\n")
    assert f"process {os.getpid()} " in text
    assert "MemAvailable" in text
    assert text.endswith("last\n")


def test_no_secret_is_written(tmp_path: Path) -> None:
    environment = {"HF_TOKEN": "hf_abcdefgh", "AWS_SECRET_ACCESS_KEY": "wJalrXUt", "PATH": "/bin", "MY_TOKEN": "on"}
    secrets = last_words.find_secrets(environment, ["vllm", "--api-key", "sk-0123456789", "--hf-token=hf_zzzzzzzz"])
    assert set(secrets) == {"hf_abcdefgh", "wJalrXUt", "sk-0123456789", "hf_zzzzzzzz"}
    path = last_words.write(tmp_path, WORDS, secrets)
    assert path is not None
    text = path.read_text()
    assert "--api-key ***" in text
    assert "token *** was used" in text
    assert "hf_abcdefgh" not in text


def test_passwords_in_addresses_are_secret() -> None:
    environment = {
        "HTTPS_PROXY": "http://us:pr0xypass@proxy:3128",
        "SSH_PRIVATE_KEY": "0123456789",
        "HF_ENDPOINT": "x://y:80/",
    }
    assert last_words.find_secrets(environment, ["--x=https://a:longpass@h/"]) == [
        "0123456789",
        "pr0xypass",
        "longpass",
    ]


def test_a_command_line_that_is_no_utf8_is_written(tmp_path: Path) -> None:
    assert last_words.write(tmp_path, {**WORDS, "commands": [os.fsdecode(b"vllm --x \xff")]}, [])
    assert (last_words.newest(tmp_path) or {})["exit_code"] == 8


def test_a_damaged_file_hides_no_older_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    last_words.write(tmp_path, WORDS, [])
    (tmp_path / "last-words" / "99999999-000000-000000.json").write_text("{")
    assert last_words.newest(tmp_path) == WORDS
    assert "cannot be read" in caplog.text


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "last-words").touch()
    assert last_words.write(tmp_path, WORDS, []) is None
    assert "could not be written" in caplog.text


def test_the_place_is_the_cache_or_the_users(tmp_path: Path) -> None:
    assert last_words.place("/cache", {}) == Path("/cache")
    assert last_words.place("", {"XDG_CACHE_HOME": "/x"}) == Path("/x/ernie-engine")
    assert last_words.place("", {"HOME": "/home/a"}) == Path("/home/a/.cache/ernie-engine")


def test_the_kernels_count_of_memory_kills_is_read() -> None:
    assert oom_kills() >= 0
