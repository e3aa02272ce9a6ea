"""What the doctor looks at, what it leaves out of what it shows, and what a report holds."""

import json
import socket
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from ops.card import parse_cards
from ops.doctor import answer, configuration, probes, show
from ops.doctor.diagnosis import diagnose
from ops.doctor.examination import Examination, _card_lines, examine
from ops.doctor.redaction import Redactor
from ops.doctor.report import pack
from ops.doctor.signature import Source
from ops.doctor.signatures import ALL

EXAMPLE = Path(__file__).resolve().parents[4] / ".env.example"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that nothing runs from."""
    (tmp_path / ".env.example").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def ids(examination: Examination) -> set[str]:
    return {finding.signature.id for finding in examination.findings}


def free_ports(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def environ(**more: str) -> dict[str, str]:
    names = ("NGINX_HTTP_PORT", "ENGINE_PORT", "ENGINE_STATUS_PORT", "GATEWAY_PORT", "CHAT_UI_PORT")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    return {"PATH": "/usr/bin:/bin", "STACK_WAY": "native", "ENGINE_MODEL": "demo"} | ports | more


def test_an_unset_password_hides_nothing_else(root: Path) -> None:
    examination = examine(root, environ(STACK_MONITORING="on", STACK_WAY="native"))
    assert "grafana-password-missing" in ids(examination)
    assert "STACK_WAY=native" in examination.evidence[Source.SETTINGS]


def test_nothing_running_is_said(root: Path) -> None:
    examination = examine(root, environ())
    assert ids(examination) == {"nothing-runs"}
    assert not examination.is_well


def test_a_taken_port_is_named_with_its_setting(root: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = str(held.getsockname()[1])
        examination = examine(root, environ(GATEWAY_PORT=port))
    [finding] = examination.findings
    assert finding.signature.id == "port-taken"
    assert port in finding.cause
    assert "GATEWAY_PORT" in finding.cure


@pytest.mark.parametrize(
    ("content", "found", "word"),
    [
        (b"NGINX_HTTP_PROT=8080\n", "env-unknown-name", "NGINX_HTTP_PORT"),
        (b"NGINX_HTTP_PORT=80a\n", "env-bad-value", "80a"),
        (b"STACK_WAY=dokcer\n", "env-bad-value", "docker or native"),
        (b"HF_TOKEN=\xff\xfe\n", "env-unreadable", "UTF-8"),
        (None, "env-unreadable", "directory"),
    ],
)
def test_a_broken_env_file_is_named(root: Path, content: bytes | None, found: str, word: str) -> None:
    if content is None:
        (root / ".env").mkdir()
    else:
        (root / ".env").write_bytes(content)
    settings, lines = configuration.read_settings(root, {"PATH": "/usr/bin"})
    assert settings.http_port == 8080
    [finding] = diagnose({Source.SETTINGS: lines}, ALL, answers=False)
    assert finding.signature.id == found
    assert word in finding.cause + finding.cure


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"ENGINE_MODEL": "baidu/ERNIE-4.5-0.3B-Paddle"}, "model-is-paddle"),
        ({"ENGINE_MODEL": "./nowhere"}, "model-folder-missing"),
        ({"STACK_MONITORING": "on"}, "grafana-password-missing"),
        ({"GATEWAY_API_KEYS_FILE": "keys/api-keys"}, "keys-file-missing"),
        ({"STACK_WAY": "native", "GATEWAY_PORT": "8080"}, "env-ports-collide"),
    ],
)
def test_settings_that_cannot_work_are_named(root: Path, settings: dict[str, str], found: str) -> None:
    _, lines = configuration.read_settings(root, {"PATH": "/usr/bin"} | settings)
    assert [f.signature.id for f in diagnose({Source.SETTINGS: lines}, ALL, answers=False)] == [found]


@pytest.mark.parametrize(
    ("text", "reason", "found"),
    [
        ("你好", "stop", None),
        ("  ", "stop", "answers-empty"),
        ("你\ufffd好", "stop", "answers-broken-characters"),
        ("hi<|end_of_sentence|>", "stop", "answers-special-tokens"),
        ("哈哈" * 40, "length", "answers-endless"),
        ("你好", None, "answers-cut"),
    ],
)
def test_a_broken_engine_is_seen_in_its_answer(text: str, reason: str | None, found: str | None) -> None:
    body = json.dumps({"choices": [{"message": {"content": text}, "finish_reason": reason}]})
    lines = list(answer.read(body, 0.5))
    assert [f.signature.id for f in diagnose({Source.ANSWER: lines}, ALL, answers=True)] == ([found] if found else [])


def test_a_slow_and_a_broken_answer_are_said() -> None:
    body = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
    assert "slow" in next(answer.read(body, 33.0))
    assert "broke off" in next(answer.read('{"choices": []}', 0.1))


def test_low_memory_and_low_disk_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 16000000 kB\nMemAvailable: 600000 kB\n")
    assert any("memory is low: 0.6 GB" in line for line in probes.probe_memory(meminfo))
    monkeypatch.setattr(probes, "DISK_LOW_GB", 10**9)
    [line] = probes.probe_disk(tmp_path)
    assert [f.signature.id for f in diagnose({Source.HOST: [line]}, ALL, answers=True)] == ["disk-low"]


def test_a_hub_without_a_name_is_told_from_one_that_does_not_answer() -> None:
    assert list(probes.ask_hub("https://no-such-hub.invalid")) == ["the name no-such-hub.invalid cannot be resolved"]
    [port] = free_ports(1)
    [line] = probes.ask_hub(f"http://127.0.0.1:{port}")
    assert line.startswith(f"the hub http://127.0.0.1:{port} cannot be reached")


def test_a_cards_state_is_read_and_its_troubles_are_named() -> None:
    # As nvidia-smi 580 prints it, of a sound H200, of one in trouble, and of a card without ECC.
    sound = "0, NVIDIA H200, 580.159.04, 0, 143771, 0, 36, 80.78, Not Active, Not Active, 0, No, No\n"
    [card] = parse_cards(sound)
    assert (card.total_bytes, card.uncorrected_errors, card.row_waits) == (143771 * 1024**2, 0, False)
    assert diagnose({Source.CARD: list(_card_lines([card], "", others_bytes=0))}, ALL, answers=False) == []
    text = (
        "0, NVIDIA H200, 570.195.03, 1024, 143771, 3, 40, 120.51, Not Active, Active, 3, Yes, No\n"
        "1, NVIDIA GeForce RTX 3090, 580.65.06, 9, 24576, 0, 29, 24.10, Not Active, Not Active, [N/A], [N/A], [N/A]\n"
    )
    first, second = parse_cards(text)
    assert (first.name, first.used_bytes, first.is_slowed_by_heat) == ("NVIDIA H200", 1024 * 1024**2, True)
    assert (second.uncorrected_errors, second.row_waits, second.is_slowed_by_heat) == (None, False, False)
    lines = list(_card_lines([first, second], "", others_bytes=18_200_000_000))
    found = {f.signature.id for f in diagnose({Source.CARD: lines}, ALL, answers=False)}
    assert found == {"card-hot", "card-memory-errors", "card-row-remap", "card-used-by-others"}


@pytest.mark.parametrize(
    ("line", "gone"),
    [
        ("token is hf_abcdefgh12345678", "hf_abcdefgh12345678"),
        ("Authorization: Bearer sk-verysecretkey123", "verysecretkey123"),
        ("HTTPS_PROXY=http://bob:swordfish@proxy:3128", "swordfish"),
        ("--api-key=topsecretvalue", "topsecretvalue"),
        ('{"password": "swordfish"}', "swordfish"),
        ("my value is hunter2hunter2", "hunter2hunter2"),
        ("Received request cmpl-1: prompt: '我的身份证号', params: x", "身份证"),
        ('{"messages": [{"role": "user", "content": "private"}]}', "private"),
        ('"client":"203.0.113.7","method"', "203.0.113.7"),
        ("limiting requests, client: 203.0.113.7, server", "203.0.113.7"),
    ],
)
def test_secrets_prompts_and_addresses_are_taken_out(line: str, gone: str) -> None:
    clean = Redactor({"MY_TOKEN": "hunter2hunter2", "GATEWAY_RATE_LIMIT_TOKENS": "200000/minute"}).clean(line)
    assert gone not in clean
    assert "***" in clean


@pytest.mark.parametrize(
    "line",
    [
        "GATEWAY_RATE_LIMIT_TOKENS=200000/minute",
        '{"outcome":"ok","prompt_tokens":6,"completion_tokens":41}',
        "2026/11/30 [error] connect() failed (111: Connection refused) while connecting to upstream",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert Redactor({"GATEWAY_RATE_LIMIT_TOKENS": "200000/minute"}).clean(line) == line


def test_a_report_holds_what_was_seen_and_no_secret(root: Path) -> None:
    logs = root / ".run" / "logs"
    logs.mkdir(parents=True)
    (logs / "vllm.log").write_text("torch.OutOfMemoryError: CUDA out of memory. key hf_abcdefgh12345678\n")
    secrets = {"HF_TOKEN": "hf_abcdefgh12345678", "STACK_API_KEY": "sk-mine-mine-mine"}
    examination = examine(root, environ(**secrets))
    assert ids(examination) == {"engine-card-memory"}
    path, sizes = pack(examination, root / ".run")
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        texts = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive.getmembers()}
        whole = {name: file.read().decode() for name, file in texts.items() if file}
    assert set(whole) == set(sizes)
    assert "CUDA out of memory" in whole["logs/vllm.log"]
    assert "HF_TOKEN=***" in whole["settings.txt"]
    assert json.loads(whole["findings.json"])["findings"][0]["id"] == "engine-card-memory"
    assert not any("hf_abcdefgh" in text or "sk-mine" in text for text in whole.values())


def test_yesterdays_trouble_is_told_as_that(root: Path) -> None:
    logs = root / ".run" / "logs"
    logs.mkdir(parents=True)
    yesterday = datetime.now(UTC) - timedelta(hours=25)
    lines = f"{yesterday:%Y-%m-%d %H:%M:%S+0000} ERROR\ntorch.OutOfMemoryError: CUDA out of memory.\n"
    (logs / "vllm.log").write_text(lines)
    examination = examine(root, environ())
    now, earlier = examination.findings
    assert (now.signature.id, earlier.signature.id) == ("nothing-runs", "engine-card-memory")
    assert (now.is_past, earlier.is_past) == (False, True)
    console = Console(width=120)
    with console.capture() as captured:
        show.print_findings(examination, console)
    assert "2. engine-card-memory (earlier, 1 d ago, over by now)" in captured.get()
    told = json.loads(show.as_json(examination))["findings"]
    assert [finding["past"] for finding in told] == [False, True]
    assert 25 * 3600 <= told[1]["seconds_ago"] < 26 * 3600


def test_unknown_trouble_shows_the_right_excerpts() -> None:
    evidence = {
        Source.ENGINE: [f"line {number}" for number in range(100)],
        Source.GATEWAY: ["all is well here"],
        Source.ANSWER: ["a question failed: ReadTimeout"],
    }
    console = Console(record=True, width=120, soft_wrap=True, quiet=False, file=None)
    with console.capture() as captured:
        show.print_findings(Examination(evidence, answers=False, findings=(), unwell=("vllm",)), console)
    text = captured.get()
    assert "ReadTimeout" in text
    assert "line 99" in text
    assert "line 80" not in text
    assert "all is well here" not in text
    assert "make report" in text
