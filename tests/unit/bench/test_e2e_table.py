"""bench/e2e: ways are compared within their rounds, and files within themselves."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.e2e import table


def window(speed: float, first_ms: float) -> dict[str, Any]:
    return {
        "tokens_per_second": speed,
        "first_token_ms": {"p50": first_ms, "p99": 2 * first_ms},
        "failures": 0,
        "cores": {"engines": 2.0, "nginx": 0.5},
        "busiest_thread": {"nginx": 0.25},
    }


def test_a_machine_that_slows_down_does_not_change_the_ratio() -> None:
    direct = [window(1000, 20), window(500, 40), window(800, 30)]
    edge = [window(980, 21), window(490, 41), window(784, 31)]
    rows = table.rows(64, {"direct": direct, "edge:1": edge})
    assert "| 0.980 (0.980 to 0.980) |" in rows[1]
    assert "| +1.0 |" in rows[1]
    assert "engines 2.00, nginx 0.50 (25%)" in rows[1]


def test_rounds_of_several_files_keep_their_own_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for number, speed in enumerate((1000, 100)):
        windows = {"direct": [window(speed, 20)], "edge:1": [window(speed * 0.9, 20)]}
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps({"results": [{"streams": 16, "windows": windows}]}))
    assert table.main([str(file) for file in files]) == 0
    assert "| 16 | edge:1 | 2 | 495 (90 to 900) | 0.900 (0.900 to 0.900) |" in capsys.readouterr().out
