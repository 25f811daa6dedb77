"""The read tool on text: stretches, limits, notices, and files that want to do harm."""

import asyncio
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.tools.truncate import measure
from spindle.workspace.texts import LineWindow

from .helpers import Run, call, details_of, refusal, run, text_of


@pytest.fixture
def three(tmp_path: Path) -> Path:
    (tmp_path / "f.txt").write_text("a\nb\nc\n")
    return tmp_path


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({}, "a\nb\nc\n"),
        ({"offset": 1}, "a\nb\nc\n"),
        ({"offset": 0}, "a\nb\nc\n"),
        ({"offset": -5}, "a\nb\nc\n"),
        ({"offset": 2}, "b\nc\n"),
        ({"offset": 4}, ""),
        ({"limit": 1}, "a\n\n[3 more lines in file. Use offset=2 to continue.]"),
        ({"offset": 2, "limit": 2}, "b\nc\n\n[1 more lines in file. Use offset=4 to continue.]"),
        ({"offset": 2, "limit": 3}, "b\nc\n"),
        ({"limit": 99}, "a\nb\nc\n"),
        ({"limit": 0}, "\n\n[4 more lines in file. Use offset=1 to continue.]"),
        ({"offset": "2", "limit": "1"}, "b\n\n[2 more lines in file. Use offset=3 to continue.]"),
    ],
)
def test_stretches(args: dict[str, int], text: str, three: Path) -> None:
    result = call("read", three, path="f.txt", **args)
    assert text_of(result) == text
    assert result.details is None


def test_beyond_the_end(three: Path) -> None:
    assert refusal("read", three, path="f.txt", offset=5) == "Offset 5 is beyond end of file (4 lines total)"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"\xef\xbb\xbfbom", "\ufeffbom"),
        (b"a\r\nb\r", "a\r\nb\r"),
        (b"a\0b", "a\0b"),
        (b"\xff\xfe\xe2\x82", "\ufffd\ufffd\ufffd"),
        (b"\x7fELF\x02\x01", "\x7fELF\x02\x01"),
    ],
)
def test_bytes_come_as_they_are(data: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(data)
    assert text_of(call("read", tmp_path, path="f")) == text


def test_a_character_across_a_chunk_boundary(tmp_path: Path) -> None:
    text = "é" * 30000
    (tmp_path / "f").write_text("x\n" + text[:20000])
    assert text_of(call("read", tmp_path, path="f", offset=2)) == text[:20000]


def test_too_many_lines(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{n}\n" for n in range(1, 2501)))
    result = call("read", tmp_path, path="f")
    assert text_of(result).endswith("\n2000\n\n[Showing lines 1-2000 of 2501. Use offset=2001 to continue.]")
    truncation = details_of(result)["truncation"]
    assert (truncation["truncatedBy"], truncation["totalLines"], truncation["outputLines"]) == ("lines", 2500, 2000)
    rest = call("read", tmp_path, path="f", offset=2001)
    assert text_of(rest) == "".join(f"{n}\n" for n in range(2001, 2501))


def test_too_many_bytes(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{n:099}\n" for n in range(1, 1001)))
    result = call("read", tmp_path, path="f", offset=101)
    assert text_of(result).startswith(f"{101:099}\n")
    end = "\n\n[Showing lines 101-612 of 1001 (50.0KB limit). Use offset=613 to continue.]"
    assert text_of(result).endswith(f"{612:099}{end}")
    assert details_of(result)["truncation"]["totalBytes"] == 90000


def test_one_line_that_is_too_long(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("short\n" + "x" * 70000 + "\nshort\n")
    result = call("read", tmp_path, path="./f", offset=2)
    notice = "[Line 2 is 68.4KB, exceeds 50.0KB limit. Use bash: sed -n '2p' ./f | head -c 51200]"
    assert text_of(result) == notice
    assert details_of(result)["truncation"]["firstLineExceedsLimit"] is True


def test_a_limit_within_the_limits_wins_over_the_rest_of_a_long_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\n" * 5000)
    result = call("read", tmp_path, path="f", limit=2)
    assert text_of(result) == "x\nx\n\n[4999 more lines in file. Use offset=3 to continue.]"


# -- what cannot be read -------------------------------------------------------------------------


def test_missing_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nope = f"ENOENT: no such file or directory, access '{tmp_path}/nope'"
    assert refusal("read", tmp_path, path="nope") == nope
    assert refusal("read", tmp_path, path="file/x") == f"ENOTDIR: not a directory, access '{tmp_path}/file/x'"
    assert refusal("read", tmp_path, path=".") == "EISDIR: illegal operation on a directory, read"


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    expected = f"ELOOP: too many symbolic links encountered, access '{tmp_path}/loop'"
    assert refusal("read", tmp_path, path="loop") == expected


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0)
    assert refusal("read", tmp_path, path="secret") == f"EACCES: permission denied, access '{tmp_path}/secret'"


def test_pipes_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal("read", tmp_path, path="pipe") == f"Not a regular file: {tmp_path}/pipe"
    assert refusal("read", tmp_path, path="/dev/zero") == "Not a regular file: /dev/zero"


def test_a_huge_file_is_not_held_in_memory(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.seek(256 << 20)
        file.write(b"\nlast\n")
    tracemalloc.start()
    try:
        last = text_of(call("read", tmp_path, path="sparse", offset=2))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert last == "last\n"
    assert peak < 8 * 1024 * 1024


def test_the_length_of_an_endless_line_is_counted(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(40 << 20)
    text = text_of(call("read", tmp_path, path="sparse"))
    assert text.startswith("[Line 1 is 40.0MB, exceeds 50.0KB limit.")


def test_abort_does_not_wait_for_the_file(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)

    async def body() -> None:
        reading = Run("read", tmp_path, {"path": "sparse"}).task
        await asyncio.sleep(0.05)
        assert not reading.done()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    # Ends only when the thread has ended too.
    run(body)


# -- the window ----------------------------------------------------------------------------------


@given(
    st.lists(st.text("ab\né", max_size=5), max_size=12),
    st.integers(0, 8),
    st.none() | st.integers(0, 8),
)
def test_a_window_is_a_slice_of_the_lines(pieces: list[str], start: int, limit: int | None) -> None:
    window = LineWindow(start, limit)
    for piece in pieces:
        window.feed(piece)
    lines = "".join(pieces).split("\n")
    chosen = lines[start:] if limit is None else lines[start : start + limit]
    assert window.text == "\n".join(chosen)
    assert window.total_lines == len(lines)
    assert window.size == measure(window.text)
    assert window.first_line_bytes == len(chosen[0].encode() if chosen else b"")


@given(st.integers(0, 50), st.integers(1, 4000))
def test_a_long_window_is_counted_but_not_kept(line_length: int, repeat: int) -> None:
    piece = ("x" * line_length + "\n") * 97
    window = LineWindow(0, None)
    for _ in range(repeat % 90):
        window.feed(piece)
    assert len(window.text) <= 51200 + 2 * len(piece)
    assert window.size == measure(piece * (repeat % 90))


@pytest.mark.only_here
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="Linux only")
@pytest.mark.parametrize("tool", ["read", "grep"])
@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/environ",
        "/proc/thread-self/environ",
        "/proc/self/task/{pid}/environ",
        "/proc/{pid}/environ",
        "/proc/{pid}/cmdline",
        "/proc/{pid}/mem",
        "/proc/self/root/proc/self/environ",
        "/dev/fd/{fd}",
        "/proc/self/fd/{fd}",
        "link",
        "folder/environ",
        "file:///proc/self/environ",
        "/proc/../proc/self/./environ",
    ],
)
def test_secrets_of_a_process_are_not_shown(tmp_path: Path, tool: str, path: str) -> None:
    (tmp_path / "link").symlink_to("/proc/self/environ")
    (tmp_path / "folder").symlink_to("/proc/self")
    with open("/proc/self/environ", "rb") as open_file:
        path = path.format(pid=os.getpid(), fd=open_file.fileno()).replace(
            "/proc/self/cwd/link", str(tmp_path / "link")
        )
        told = refusal(tool, tmp_path, path=path, **({"pattern": "."} if tool == "grep" else {}))
    assert "shows secrets of a process and is not opened" in told


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="Linux only")
def test_a_search_in_a_folder_of_a_process_shows_no_secrets(tmp_path: Path) -> None:
    found = call("grep", tmp_path, path=f"/proc/{os.getpid()}", pattern="PATH=|pytest", glob="{environ,cmdline}")
    assert text_of(found) == "No matches found"
    assert "MemTotal" in text_of(call("read", tmp_path, path="/proc/meminfo"))
