"""Cutting long text: against recorded tables and against the plainest possible version."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.tools.base import format_size
from spindle.tools.json_schema import format_number
from spindle.tools.truncate import (
    MAX_BYTES,
    OutputBuffer,
    TextSize,
    measure,
    truncate_head,
    truncate_line,
    truncate_tail,
)
from spindle.workspace.texts import well_formed

from .helpers import golden, wire

TEXTS = st.text(alphabet="ab\né€😀\r", max_size=60)
LIMITS = st.integers(1, 30)


def _input(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "\n".join(f"l{index}" for index in range(value["n"]))


@pytest.mark.parametrize("end", ["head", "tail"])
def test_recorded_rows(end: str) -> None:
    cut = truncate_head if end == "head" else truncate_tail
    for row in golden(f"truncate-{end}"):
        options = row["opts"]
        limits = (options["maxLines"], options["maxBytes"]) if options else ()
        result = wire(cut(_input(row["in"]), *limits))
        if row["out"]["content"] == "(omitted)":
            result["content"] = "(omitted)"
        assert result == row["out"]
        assert list(result) == list(row["out"])


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


@given(TEXTS, LIMITS, LIMITS)
def test_head_keeps_the_longest_run_of_first_lines_that_fits(text: str, max_lines: int, max_bytes: int) -> None:
    result = truncate_head(text, max_lines, max_bytes)
    lines = _lines(text)
    fitting = [n for n in range(min(max_lines, len(lines)) + 1) if len("\n".join(lines[:n]).encode()) <= max_bytes]
    whole = len(lines) <= max_lines and len(text.encode()) <= max_bytes
    assert result.truncated is not whole
    assert result.content == (text if whole else "\n".join(lines[: max(fitting)]))
    assert (result.total_lines, result.total_bytes) == (len(lines), len(text.encode()))
    assert result.output_bytes == len(result.content.encode())
    assert result.first_line_exceeds_limit is (not whole and max(fitting) == 0)


@given(TEXTS, LIMITS, LIMITS)
def test_tail_keeps_the_longest_run_of_last_lines_that_fits(text: str, max_lines: int, max_bytes: int) -> None:
    result = truncate_tail(text, max_lines, max_bytes)
    lines = _lines(text)
    if len(lines) <= max_lines and len(text.encode()) <= max_bytes:
        assert (result.content, result.truncated) == (text, False)
        return
    fitting = [n for n in range(1, min(max_lines, len(lines)) + 1) if len("\n".join(lines[-n:]).encode()) <= max_bytes]
    if fitting:
        assert result.content == "\n".join(lines[-max(fitting) :])
        assert not result.last_line_partial
    else:
        assert result.last_line_partial
        assert lines[-1].endswith(result.content)
        assert max_bytes - 4 < len(result.content.encode()) <= max_bytes
    assert result.output_lines == max([1, *fitting])
    assert result.output_bytes == len(result.content.encode())


@given(TEXTS, LIMITS, LIMITS, st.integers(0, 30))
def test_a_big_enough_piece_gives_the_same_as_the_whole(text: str, max_lines: int, max_bytes: int, spare: int) -> None:
    size = measure(text)
    keep = 0
    while keep < len(text) and (measure(text[:keep]).lines <= max_lines and measure(text[:keep]).bytes <= max_bytes):
        keep += 1
    head = text[: keep + spare]
    assert truncate_head(head, max_lines, max_bytes, size) == truncate_head(text, max_lines, max_bytes)


@pytest.mark.parametrize(("text", "size"), [("", (0, 0)), ("\n", (1, 1)), ("é", (1, 2)), ("a\nb\n", (2, 4))])
def test_measure(text: str, size: tuple[int, int]) -> None:
    assert measure(text) == TextSize(*size)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 500 + "... [truncated]"),
        ("😀" * 250, "😀" * 250),
        ("😀" * 251, "😀" * 250 + "... [truncated]"),
        ("x" * 499 + "😀", "x" * 499 + "... [truncated]"),
    ],
)
def test_a_line_is_cut_at_500_utf16_units(line: str, shown: str) -> None:
    assert truncate_line(line) == (shown, shown != line)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0B"), (1023, "1023B"), (1024, "1.0KB"), (51200, "50.0KB"), (1024 * 1024, "1.0MB"), (1610612736, "1536.0MB")],
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert format_size(count) == text


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1"), (1.0, "1"), (0.5, "0.5"), (1e21, "1e+21"), (1e-7, "1e-7"), (-2.0, "-2")]
)
def test_numbers_as_json_clients_write_them(number: float, text: str) -> None:
    assert format_number(number) == text


def test_lone_surrogates_are_replaced_and_pairs_joined() -> None:
    assert well_formed("a\ud800b") == "a\ufffdb"
    assert well_formed("\ud83d\ude00") == "😀"
    assert well_formed("plain") == "plain"


# -- output as it comes: the tail, the totals, the file with everything --------------------------


def filled(*chunks: bytes) -> OutputBuffer:
    buffer = OutputBuffer()
    for chunk in chunks:
        buffer.write(chunk)
    buffer.close()
    return buffer


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(
            [b"a\n", b"\n", "é".encode(), b"\xff", b"x" * 3000, b"y\n" * 700, b"\xe2\x82", "z€\n".encode() * 9]
        ),
        max_size=60,
    ),
    st.integers(1, 5000),
)
def test_the_tail_is_that_of_the_whole_however_it_is_cut_in_pieces(parts: list[bytes], step: int) -> None:
    data = b"".join(parts)
    buffer = filled(*(data[start : start + step] for start in range(0, len(data), step)))
    assert buffer.truncated() == truncate_tail(data.decode("utf-8", "replace"))
    if buffer.path:
        assert Path(buffer.path).read_bytes() == data
        os.unlink(buffer.path)
    else:
        assert len(data) <= MAX_BYTES


@pytest.mark.parametrize(
    ("data", "spooled"),
    [
        (b"x" * MAX_BYTES, False),
        (b"x" * (MAX_BYTES + 1), True),
        (b"x\n" * 2000, False),
        (b"x\n" * 2000 + b"y", True),
        (b"\xff" * 20000, True),  # three times as long once decoded
    ],
)
def test_a_file_is_made_when_a_limit_is_passed(data: bytes, spooled: bool) -> None:
    buffer = filled(data)
    assert (buffer.path is not None) is spooled


def test_the_file_is_private_and_named_after_us() -> None:
    path = filled(b"x" * (MAX_BYTES + 1)).path
    assert path is not None
    folder, name = os.path.split(path)
    assert folder == os.environ["TMPDIR"]
    stem = name.removeprefix("spindle-bash-").removesuffix(".log")
    assert len(stem) == 16
    assert int(stem, 16) >= 0
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_memory_stays_bounded() -> None:
    import tracemalloc

    chunk = b"z" * 65536
    tracemalloc.start()
    try:
        filled(*([chunk] * 400))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("data", "length"),
    [(b"ab", 2), (b"ab\n", 2), (b"ab\ncde", 3), (b"ab\ncde\n", 3), (b"abc\n\n", 0), ("é\n".encode(), 2)],
)
def test_length_of_the_last_line(data: bytes, length: int) -> None:
    assert filled(data).last_line_bytes == length
    assert filled(*(bytes([byte]) for byte in data)).last_line_bytes == length


def test_a_temp_folder_that_cannot_be_written_costs_only_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/proc/nowhere")
    buffer = filled(b"x" * 60000, b"y" * 60000)
    assert buffer.path is None
    assert buffer.location.startswith("not kept (")
    assert buffer.truncated().content == "y" * MAX_BYTES


def test_a_full_disk_costs_only_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    write, room = os.write, [100_000]

    def write_while_there_is_room(file: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(file, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", write_while_there_is_room)
    buffer = filled(b"x" * 60000, b"y" * 60000)
    assert buffer.location == "not kept (No space left on device)"
    assert buffer.size.bytes == 120000
    assert not os.listdir(tmp_path)  # the room is given back
