"""Nothing that an engine prints is changed, lost or waited for."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher.supervision.output import Outlet, Output

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Where the launcher's own output would go: read end, write end."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def feed(output: Output, outlet: Outlet, *chunks: bytes) -> None:
    """Let an engine write these and end."""
    reader, writer = os.pipe()
    output.take(os.fdopen(reader, "rb", buffering=0), outlet)
    for chunk in chunks:
        os.write(writer, chunk)
    os.close(writer)


def test_bytes_go_on_unchanged_and_lines_are_kept(pipe: Pipe) -> None:
    heard: list[str] = []
    output = Output(heard.append)
    data = "Loading:  0%\rLoading: 50%\rLoading: 100%\r\n加载\nno end".encode()
    with Outlet(pipe[1]) as outlet:
        feed(output, outlet, data[:20], data[20:])
        output.close()
    assert os.read(pipe[0], 1000) == data
    assert heard == ["Loading:  0%", "Loading: 50%", "Loading: 100%", "加载", "no end"]
    assert output.last_lines(2) == ["加载", "no end"]


def test_a_line_is_seen_before_the_next_one_comes(pipe: Pipe) -> None:
    seen = threading.Event()
    output = Output(lambda _line: seen.set())
    reader, writer = os.pipe()
    with Outlet(pipe[1]) as outlet:
        output.take(os.fdopen(reader, "rb", buffering=0), outlet)
        os.write(writer, b"50%\r")
        assert seen.wait(5)
        assert os.read(pipe[0], 100) == b"50%\r"
        os.close(writer)
        output.close()


def test_lines_of_several_engines_stay_whole(pipe: Pipe) -> None:
    first, second = Output(str, "engine 1: "), Output(str, "engine 2: ")
    with Outlet(pipe[1]) as outlet:
        feed(first, outlet, b"o", b"ne\ntw", b"o")
        feed(second, outlet, b"eins\nzw", b"ei\n")
        first.close()
        second.close()
    lines = os.read(pipe[0], 1000).decode().splitlines()
    assert sorted(lines) == ["engine 1: one", "engine 1: two", "engine 2: eins", "engine 2: zwei"]


def test_a_reader_that_stopped_holds_no_engine_up(pipe: Pipe) -> None:
    output = Output(str)
    lines = 20_000
    with Outlet(pipe[1], waiting_bytes=200_000) as outlet:
        begin = time.monotonic()
        feed(output, outlet, *(b"%05d %s\n" % (number, b"x" * 90) for number in range(lines)))
        output.close()
        assert time.monotonic() - begin < 5
        assert output.last_lines(1)[0].startswith(f"{lines - 1:05}")
        assert len(output.last_lines()) == 400
        # Somebody reads again: what waited comes, and it is told that more is missing.
        read = os.read(pipe[0], 100_000)
        while len(read) < 200_000:
            read += os.read(pipe[0], 100_000)
        outlet.put(b"later\n")
        while not read.endswith(b"later\n"):
            read += os.read(pipe[0], 100_000)
    assert b"bytes of output were dropped" in read


def test_a_broken_output_is_no_fault_of_the_engine() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    output = Output(str)
    with Outlet(writer) as outlet:
        feed(output, outlet, b"one\n", b"two\n")
        output.close()
    os.close(writer)
    assert output.last_lines() == ["one", "two"]


def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    output = Output(str)
    with (tmp_path / "log").open("wb") as log, Outlet(log.fileno()) as outlet:
        feed(output, outlet, *(b"y" * 10_000 for _ in range(15)), b"\nend\n")
        output.close()
    assert (tmp_path / "log").stat().st_size == 150_005
    assert output.last_lines(1) == ["end"]
    assert all(len(line) <= 2_000 for line in output.last_lines())
