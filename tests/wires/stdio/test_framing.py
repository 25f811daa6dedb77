"""Lines come out the same, whatever pieces the bytes come in."""

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from spindle.wires.pipe.framing import LineReader, LineTooLong

# Few symbols, so that line ends, carriage returns and halves of characters meet often.
streams = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"bcd", b" ", "\u2028".encode(), "€".encode(), b"\xff", b"\x00"]),
    max_size=40,
).map(b"".join)
cuts = st.lists(st.integers(min_value=0, max_value=100), max_size=12)


def pieces(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in at)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def read(reader: LineReader, chunks: list[bytes]) -> list[bytes | LineTooLong | None]:
    return [*(line for chunk in chunks for line in reader.receive(chunk)), reader.close()]


@given(streams, cuts)
def test_any_split_gives_the_same_lines(data: bytes, at: list[int]) -> None:
    *whole, rest = data.split(b"\n")
    expected = [*(line.removesuffix(b"\r") for line in whole), rest.removesuffix(b"\r") if rest else None]
    assert read(LineReader(), pieces(data, at)) == expected


@given(streams, cuts, st.integers(min_value=0, max_value=8))
def test_long_lines_are_reported_once_and_skipped_in_any_split(data: bytes, at: list[int], limit: int) -> None:
    *whole, rest = data.split(b"\n")
    expected: list[bytes | LineTooLong | None] = [
        LineTooLong(limit) if len(line) > limit else line.removesuffix(b"\r") for line in whole
    ]
    if len(rest) > limit:
        expected += [LineTooLong(limit), None]
    else:
        expected.append(rest.removesuffix(b"\r") if rest else None)
    assert read(LineReader(limit), pieces(data, at)) == expected


def test_only_one_carriage_return_is_removed() -> None:
    assert LineReader().receive(b"a\r\r\n\r\n\n") == [b"a\r", b"", b""]


def test_a_line_of_exactly_the_limit_passes() -> None:
    reader = LineReader(4)
    assert reader.receive(b"1234\n12345\n1\n") == [b"1234", LineTooLong(4), b"1"]


def test_nothing_of_a_skipped_line_is_kept() -> None:
    reader = LineReader(10)
    assert reader.receive(b"x" * 11) == [LineTooLong(10)]
    for _ in range(100):
        assert reader.receive(b"y" * 1000) == []
    assert reader.receive(b"y\nnext\n") == [b"next"]


def test_the_end_may_come_without_a_newline() -> None:
    reader = LineReader()
    reader.receive(b"one\ntwo")
    assert reader.close() == b"two"
    assert reader.close() is None


def test_a_huge_line_in_small_pieces_costs_its_length() -> None:
    piece = b"x" * 65536
    reader = LineReader()
    before = time.process_time()
    for _ in range(800):
        assert reader.receive(piece) == []
    (line,) = reader.receive(b"\n")
    spent = time.process_time() - before
    assert len(line) == 800 * 65536
    # Searching or copying from the start for every piece would move 20 GB and take many seconds.
    assert spent < 1.0
