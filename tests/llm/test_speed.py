"""Cost per piece of an answer, in CPU time: it must be small and must not grow with the answer."""

import time

import pytest

from spindle.llm.anthropic import MessagesReader
from spindle.llm.compat import ChatCompat
from spindle.llm.exchange import SseParser
from spindle.llm.live import LiveMessage
from spindle.llm.openai_chat import ChatReader

from .helpers import make_model

MODEL = make_model()
CHAT = b'data: {"id":"c","model":"m1","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
MESSAGES_START = (
    b'event: x\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
)
MESSAGES = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}\n\n'
)
CALL = (
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":'
    b'{"name":"write","arguments":"{\\"content\\":\\""}}]}}]}\n\n'
)
ARGUMENTS = b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"word "}}]}}]}\n\n'


def cost(reader_of, start: bytes, piece: bytes, count: int) -> float:
    live = LiveMessage(MODEL)
    reader = reader_of(live)
    stream = start + piece * count
    parser = SseParser()
    began = time.process_time()
    pieces = 0
    for position in range(0, len(stream), 65536):
        out: list = []
        for data in parser.feed(stream[position : position + 65536]):
            reader.take(data, out)
        pieces += len(out)
    live.finish("stop")
    spent = time.process_time() - began
    assert pieces >= count
    return spent


@pytest.mark.parametrize(
    ("reader_of", "start", "piece"),
    [
        (lambda live: ChatReader(live, ChatCompat()), b"", CHAT),
        (lambda live: ChatReader(live, ChatCompat()), CALL, ARGUMENTS),
        (lambda live: MessagesReader(live), MESSAGES_START, MESSAGES),
    ],
    ids=["chat text", "chat arguments", "messages text"],
)
def test_a_long_answer_costs_little_per_piece(reader_of, start, piece):
    short = min(cost(reader_of, start, piece, 5000) for _ in range(3))
    long = min(cost(reader_of, start, piece, 20_000) for _ in range(3))
    assert long < short * 4 * 2, "cost per piece grows with the answer"
    assert long < 20_000 / 80_000, "fewer than 80,000 pieces per CPU second"
