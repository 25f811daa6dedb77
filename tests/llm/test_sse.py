"""The byte-level event parser: framing, splits at any byte, the size limit, linear cost."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.llm.exchange import EventTooLargeError, SseParser


def parse(*pieces: bytes) -> list[bytes]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a \n\n", [b" a "]),
        (b"data\n\n", [b""]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\n\ndata: b\n\r\n", [b"a", b"b"]),
        (b": keep-alive\n\ndata: a\n\n", [b"a"]),
        (b": note\ndata: a\n: note\n\n", [b"a"]),
        (b"event: x\ndata: a\nid: 1\nretry: 5\n\n", [b"a"]),
        (b"event: x\n\ndata: a\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\n\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"\n\n\ndata: a\n\n", [b"a"]),
        (b"data: a\n\nevent: x\ndata: b\n\ndata: c\ndata: d\n\ndata: e\n\n", [b"a", b"b", b"c\nd", b"e"]),
        (b"data: a\n\ndata:b\n\n: note\n\ndata: c\n\n", [b"a", b"b", b"c"]),
        (b"data: a\n\ndata: b", [b"a", b"b"]),
        (b"data: a\n\ndata: b\n", [b"a", b"b"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"database: a\n\n", []),
        (b"hello", []),
        (b"", []),
    ],
)
def test_framing(stream, events):
    assert parse(stream) == events
    assert parse(*(stream[i : i + 1] for i in range(len(stream)))) == events


lines = st.lists(
    st.sampled_from(
        [b"data: {}", b"data:x", b"data: \xc3\xa9", b"", b"", b": c", b"event: e", b"data", b"junk", b"\xef\xbb\xbf"]
    ),
    max_size=12,
)
line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(lines, st.lists(line_ends, min_size=12, max_size=12), st.data())
def test_splits_do_not_matter(parts, ends, data):
    stream = b"".join(line + end for line, end in zip(parts, ends, strict=False))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parse(*pieces) == parse(stream)


@given(st.lists(st.binary(max_size=20).filter(lambda data: not set(data) & {10, 13}), max_size=8), st.data())
def test_round_trip(events, data):
    stream = b"".join(b"data: " + event + data.draw(st.sampled_from([b"\n\n", b"\r\n\r\n"])) for event in events)
    assert parse(stream) == events


def test_an_event_over_the_limit_is_refused():
    parser = SseParser(limit=1000)
    assert parser.feed(b"data: " + b"x" * 990 + b"\n\n") == [b"x" * 990]
    parser.feed(b"data: " + b"x" * 900)
    with pytest.raises(EventTooLargeError, match="1000 bytes"):
        parser.feed(b"x" * 200)


def test_the_limit_is_64_mib():
    parser = SseParser()
    piece = b"x" * 2**20
    parser.feed(b"data: ")
    for _ in range(63):
        parser.feed(piece)
    with pytest.raises(EventTooLargeError):
        parser.feed(piece)


def test_a_huge_event_in_small_pieces_costs_linear_time():
    def cost(pieces: int) -> float:
        parser = SseParser()
        start = time.process_time()
        parser.feed(b"data: ")
        for _ in range(pieces):
            parser.feed(b"x" * 1000)
        (event,) = parser.feed(b"\n\n")
        assert len(event) == pieces * 1000
        return time.process_time() - start

    small, large = min(cost(2000) for _ in range(3)), min(cost(16000) for _ in range(3))
    assert large < small * 8 * 4
