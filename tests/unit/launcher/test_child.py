"""A child process that does not even end when it is killed, as one that waits for a lost card inside the driver."""

import os
import signal
import sys
import time

import pytest
from launcher.command import Command
from launcher.supervision import child, guard


def test_one_that_cannot_be_killed_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started = child.Child(Command((sys.executable, "-c", "import time; time.sleep(60)"), dict(os.environ)))
    with monkeypatch.context() as patch:
        # The only way to have such a process without a broken driver.
        patch.setattr(guard, "signal_group", lambda *_: None)
        patch.setattr(child, "_KILL_SECONDS", 0.1)
        began = time.monotonic()
        assert started.kill() == -signal.SIGKILL
        assert time.monotonic() - began < 5
    assert "the driver holds it" in caplog.text
    assert started.kill() == -signal.SIGKILL
    started.end_group()
