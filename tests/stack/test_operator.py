"""What an operator sees of the real stack: status, doctor, report, acceptance, and a soak that is ended early."""

import json
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.conftest import ROOT, Stack, run_ops

pytestmark = pytest.mark.stack


def test_status_tells_services_model_versions_and_rate(stack: Stack) -> None:
    done = run_ops("status", "--json", environment=stack.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads(done.stdout)
    assert status["is_ready"] is True
    assert status["models"] == ["ernie-demo"]
    assert set(status["versions"]) == {"stack", "vLLM"}
    assert status["tokens_per_second"] is not None
    assert set(status["usage"]) == {"vllm", "gateway", "chat-ui", "nginx"}
    assert all(usage["memory_bytes"] > 10**6 and usage["handles"] > 3 for usage in status["usage"].values())


def test_the_doctor_finds_nothing_on_a_healthy_stack(stack: Stack) -> None:
    done = run_ops("doctor", "--json", environment=stack.environment)
    told = json.loads(done.stdout)
    # What other tests broke may still stand in the logs: that is past.
    assert [finding for finding in told["findings"] if not finding["past"]] == [], done.stdout
    assert (told["well"], told["answers"], done.returncode) == (True, True, 0)


def test_a_report_of_the_real_stack_holds_its_logs(stack: Stack) -> None:
    done = run_ops("report", environment=stack.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    path = next(Path(word) for word in done.stdout.split() if word.endswith(".tar.gz"))
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"logs/vllm.log", "logs/gateway.log", "logs/chat-ui.log", "logs/nginx.log", "findings.json"}


def test_the_real_stack_is_accepted(stack: Stack) -> None:
    done = run_ops("accept", "--json", environment=stack.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["accepted"] is True
    checks = {check["name"]: check for check in told["checks"]}
    assert checks["20 questions, 5 at a time"]["measured"] == "20 of 20"
    assert checks["16 at once"]["verdict"] == "pass"
    assert checks["leaving a stream frees the engine"]["verdict"] == "pass"
    assert checks["Chinese text"]["verdict"] == "pass"
    # The tests' stack has no limits, so that 64 at once are let in, and nothing can be refused.
    assert checks["throughput, 64 streams"]["verdict"] == "pass"
    assert checks["one stream too many is refused"]["verdict"] == "skipped"
    assert len(list((stack.run_dir / "acceptance").glob("*/report.html"))) == 1


def test_a_soak_that_is_interrupted_still_writes_its_result(stack: Stack) -> None:
    command = [sys.executable, "-m", "ops", "soak", "--hours", "1"]
    with subprocess.Popen(
        command, cwd=ROOT, env=stack.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as soak:
        try:
            assert soak.stderr is not None
            assert "asked" in soak.stderr.readline()
            soak.send_signal(signal.SIGINT)
            _, errors = soak.communicate(timeout=60)
        finally:
            soak.kill()
    [folder] = (stack.run_dir / "soak").iterdir()
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert result["interrupted"] is True, errors
    assert result["samples"] >= 1
    assert (folder / "report.html").exists()
    first = json.loads((folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["usage"]["vllm"]["memory_bytes"] > 10**8
