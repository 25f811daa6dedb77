"""The wire as its neighbours see it: a process with pipes, sockets, files and terminals for stdio."""

import contextlib
import json
import os
import pty
import select
import socket
import subprocess
import sys
import time
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHILD = [sys.executable, str(Path(__file__).with_name("stdio_child.py"))]
PATIENCE_S = 20.0


class Child:
    """A running child with its stderr on a pipe; stdin and stdout are what the test makes them."""

    def __init__(self, *words: str, stdin: Any = subprocess.PIPE, stdout: Any = subprocess.PIPE, stderr: Any = None):
        self.process = subprocess.Popen(
            [*CHILD, *words],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE if stderr is None else stderr,
            bufsize=0,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )

    def tell(self, *lines: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())

    def says(self) -> str:
        """Return the next line of stderr."""
        assert self.process.stderr is not None
        return read_line(self.process.stderr.fileno())

    def frame(self) -> dict[str, Any]:
        """Return the next line of stdout."""
        assert self.process.stdout is not None
        value = json.loads(read_line(self.process.stdout.fileno()))
        assert isinstance(value, dict)
        return value

    def end(self) -> tuple[int, str, str]:
        """Close stdin; return the exit code and what is left on stdout and stderr."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, (out or b"").decode(), (err or b"").decode()


def read_line(descriptor: int) -> str:
    line = b""
    while not line.endswith(b"\n"):
        assert select.select([descriptor], [], [], PATIENCE_S)[0], f"nothing more after {line!r}"
        byte = os.read(descriptor, 1)
        assert byte, f"ended after {line!r}"
        line += byte
    return line[:-1].decode()


@contextlib.contextmanager
def running(*words: str, **descriptors: Any) -> Iterator[Child]:
    child = Child(*words, **descriptors)
    try:
        yield child
    finally:
        child.process.kill()
        child.process.wait()
        for stream in (child.process.stdin, child.process.stdout, child.process.stderr):
            if stream is not None:
                stream.close()


both_ways = pytest.mark.parametrize("way", ["ready", "threads"])


# -- stdout is sacred -----------------------------------------------------------------------------


def test_nothing_else_reaches_stdout() -> None:
    with running("early") as child:
        child.tell("put one", "stray lost", "put two")
        code, out, err = child.end()
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["one", "two"]
    for way in ("print", "dunder", "descriptor", "child"):
        assert f"lost {way}\n" in err
    assert "early print, never flushed\n" in err
    assert code == 0


def test_nobody_else_reads_stdin() -> None:
    with running() as child:
        child.tell("input", "put after")
        assert child.says() == "stdin has 0"
        assert child.frame()["id"] == "after"


def test_a_shared_stderr_stays_blocking() -> None:
    """With `2>&1` both lead to one pipe; making ours non-blocking would break prints of everybody."""
    with running(stderr=subprocess.STDOUT) as child:
        child.tell("put one", "flags")
        assert child.process.stdout is not None
        lines = {read_line(child.process.stdout.fileno()) for _ in range(2)}
    assert "nonblocking False" in lines


# -- every kind of descriptor ---------------------------------------------------------------------


@both_ways
def test_pipes(way: str) -> None:
    with running(way) as child:
        child.tell("put one")
        assert child.frame()["id"] == "one"
        child.tell("put two", "put three")
        assert [child.frame()["id"], child.frame()["id"]] == ["two", "three"]
        assert child.end()[0] == 0


@both_ways
def test_a_last_line_without_newline_and_split_characters(way: str) -> None:
    with running(way) as child:
        stdin = child.process.stdin
        assert stdin is not None
        euro = "€".encode()
        stdin.write(b"put " + euro[:1])
        time.sleep(0.02)
        stdin.write(euro[1:] + b"\r\nunfinished")
        code, out, _ = child.end()
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["€", "unfinished"]
    assert code == 0


@both_ways
def test_sockets(way: str) -> None:
    """Some parents (node) give sockets where others give pipes."""
    ours, theirs = socket.socketpair()
    with ours, running(way, stdin=theirs, stdout=theirs) as child:
        theirs.close()
        ours.sendall(b"put one\n")
        assert json.loads(read_line(ours.fileno()))["id"] == "one"
        ours.shutdown(socket.SHUT_WR)
        assert child.process.wait(PATIENCE_S) == 0


@both_ways
def test_files(way: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("put one\nput two\n")
    (tmp_path / "out").write_text("before\n")
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("ab") as stdout:
        child = Child(way, stdin=stdin, stdout=stdout)
        assert child.end()[0] == 0
    first, *rest = (tmp_path / "out").read_text().splitlines()
    assert first == "before"
    assert [json.loads(line)["id"] for line in rest] == ["one", "two"]


@both_ways
def test_the_null_device(way: str) -> None:
    child = Child(way, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert child.end()[0] == 0


@both_ways
def test_a_terminal(way: str) -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    try:
        with running(way, stdin=theirs, stdout=theirs) as child:
            os.write(ours, b"put one\n")
            assert json.loads(read_line(ours))["id"] == "one"
            child.process.kill()
    finally:
        os.close(ours)
        os.close(theirs)


def test_descriptors_that_are_closed_from_the_start() -> None:
    command = " ".join(f'"{word}"' for word in CHILD)
    no_stdin = subprocess.run(["sh", "-c", f"exec {command} <&-"], capture_output=True, timeout=PATIENCE_S)
    assert no_stdin.returncode == 0
    no_stdout = subprocess.run(
        ["sh", "-c", f"exec {command} >&-"], stdin=subprocess.PIPE, capture_output=True, timeout=PATIENCE_S
    )
    assert no_stdout.returncode == 7
    assert no_stdout.stderr == b"broken\ndrained True\n"
    nothing = subprocess.run(["sh", "-c", f"exec {command} <&- >&- 2>&-"], timeout=PATIENCE_S)
    assert nothing.returncode == 7


@both_ways
def test_a_command_of_many_megabytes(way: str) -> None:
    with running(way) as child:
        child.tell("size " + "x" * 20_000_000)
        assert child.frame()["data"] == 20_000_000


# -- readers that are slow, stop, or go away ------------------------------------------------------


def updates(data: str) -> list[dict[str, Any]]:
    return [frame for frame in map(json.loads, data.splitlines()) if frame["type"] == "message_update"]


@both_ways
def test_a_reader_that_stops_costs_neither_memory_nor_answers(way: str) -> None:
    """20,000 full updates would be 2 GB. While nobody reads, the run stalls and commands are still heard."""
    with running(way) as child:
        child.tell("stream 20000", "ping")
        assert child.says() == "pong"
        time.sleep(0.3)
        child.tell("ping")
        assert child.says() == "pong", "the run must not have gone on to its end"
        child.tell("put heard")
        stdout = child.process.stdout
        assert stdout is not None
        text, seen = "", 0
        pending = b""
        while True:
            *lines, pending = (pending + os.read(stdout.fileno(), 1 << 20)).split(b"\n")
            for frame in map(json.loads, lines):
                if frame["type"] == "message_update":
                    seen += 1
                    text += frame["assistantMessageEvent"]["delta"]
                    assert frame["message"]["content"][0]["text"].startswith(text[-500:], max(0, len(text) - 500))
            if lines and b'"streamed"' in lines[-1]:
                break
        assert text == "".join(f"{number % 10000:04d} " for number in range(20000))
        assert seen < 20000, "a reader that is behind gets joined deltas"
        assert child.says() == "streamed"
        if sys.platform == "linux":
            child.tell("peak")
            assert int(child.says().removeprefix("peak ")) < 100_000


def test_a_reader_that_keeps_up_gets_every_delta() -> None:
    with running() as child:
        child.tell("stream 50")
        deltas = []
        while (frame := child.frame())["type"] == "message_update":
            deltas.append(frame["assistantMessageEvent"]["delta"])
        assert deltas == [f"{number:04d} " for number in range(50)]


@both_ways
def test_a_reader_that_goes_away_is_reported_once(way: str) -> None:
    with running(way) as child:
        child.tell("put one")
        child.frame()
        assert child.process.stdout is not None
        child.process.stdout.close()
        if way == "threads":  # these see it only when they write
            child.tell("put two")
        assert child.says() == "broken"
        assert child.process.wait(PATIENCE_S) == 7
        assert child.process.stderr is not None
        assert child.process.stderr.read() == b"drained True\n"


def test_a_socket_that_only_stops_writing_still_reads() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, running(stdout=theirs) as child:
        theirs.close()
        ours.shutdown(socket.SHUT_WR)
        child.tell("put one")
        assert json.loads(read_line(ours.fileno()))["id"] == "one"
        ours.close()
        assert child.says() == "broken"
        assert child.process.wait(PATIENCE_S) == 7


def test_a_reader_that_goes_away_while_it_is_behind() -> None:
    with running() as child:
        child.tell("stream 20000", "ping")
        assert child.says() == "pong"
        time.sleep(0.2)
        assert child.process.stdout is not None
        child.process.stdout.close()
        assert child.says() == "broken"
        assert child.process.wait(PATIENCE_S) == 7


@both_ways
def test_the_end_does_not_wait_for_a_reader_for_ever(way: str) -> None:
    with running(way) as child:
        child.tell("stream 20000", "ping")
        assert child.says() == "pong"
        assert child.process.stdin is not None
        child.process.stdin.close()
        assert child.says() == "drained False"
        assert child.process.wait(PATIENCE_S) == 0


def test_everything_is_written_before_the_end() -> None:
    with running() as child:
        child.tell(*(f"put {number}" for number in range(2000)))
        code, out, err = child.end()
    assert [json.loads(line)["id"] for line in out.splitlines()] == [str(number) for number in range(2000)]
    assert (code, err) == (0, "drained True\n")
