"""Output as it comes: the tail, the totals, the file with everything."""

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.tools.output import OutputBuffer
from spindle.tools.truncate import MAX_BYTES, truncate_tail


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
    assert buffer.snapshot() == truncate_tail(data.decode("utf-8", "replace"))
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
    assert buffer.snapshot().content == "y" * MAX_BYTES


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
