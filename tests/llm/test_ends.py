"""How an answer ends on the wire: it is whole only if the server said so.

Raw sockets, because HTTP servers end properly.
"""

import json
import socket
import struct
import threading

import pytest

from .helpers import answer_of, collect, make_model

FIN, RST = "FIN", "RST"
NO_REASON = {"supportsFinishReason": False}


class RawServer:
    """Answers one request with given bytes, then ends the connection in a given way."""

    def __init__(self, answer: bytes, end: str) -> None:
        self._answer, self._end = answer, end
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "RawServer":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            head, _, body = request.partition(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            while len(body) < length:
                body += connection.recv(65536)
            connection.sendall(self._answer)
            if self._end == RST:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def chunked(body: bytes) -> bytes:
    return _head(b"transfer-encoding: chunked") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def no_last_chunk(body: bytes) -> bytes:
    return chunked(body).removesuffix(b"0\r\n\r\n")


def inside_a_chunk(body: bytes) -> bytes:
    return _head(b"transfer-encoding: chunked") + b"%x\r\n%s" % (len(body) + 9, body)


def measured(body: bytes) -> bytes:
    return _head(b"content-length: %d" % len(body)) + body


def short(body: bytes) -> bytes:
    return _head(b"content-length: %d" % (len(body) + 1)) + body


def unmeasured(body: bytes) -> bytes:
    return _head(b"connection: close") + body


def _head(line: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + line + b"\r\n\r\n"


PROPER = [(chunked, FIN), (measured, FIN)]
CUT = [(no_last_chunk, FIN), (no_last_chunk, RST), (inside_a_chunk, FIN), (short, FIN), (short, RST)]
CUT += [(unmeasured, FIN), (unmeasured, RST)]


def sse(*events: object) -> bytes:
    return b"".join(b"data: %s\n\n" % (e if isinstance(e, bytes) else json.dumps(e).encode()) for e in events)


CALL = {"id": "c1", "index": 0, "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
PIECE = {"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]}
REASON = {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
CHAT = sse(PIECE)
ITEM = {"type": "function_call", "id": "f", "call_id": "c1", "name": "bash", "arguments": '{"command":"ls"}'}
BLOCK = {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}
GOOGLE_CALL = {"functionCall": {"name": "bash", "args": {"command": "ls"}}}
UNSAID = {
    "chat": ("openai-completions", {}, CHAT),
    "responses": (
        "openai-responses",
        {},
        sse(
            {"type": "response.output_item.added", "output_index": 0, "item": ITEM},
            {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
        ),
    ),
    "anthropic": (
        "anthropic-messages",
        {},
        sse(
            {"type": "message_start", "message": {"id": "m"}},
            {"type": "content_block_start", "index": 0, "content_block": BLOCK},
            {"type": "content_block_stop", "index": 0},
        ),
    ),
    "google": ("google-generative-ai", {}, sse({"candidates": [{"content": {"parts": [GOOGLE_CALL]}}]})),
}
"""A complete call, and no word that the answer is complete."""


def answer(api: str, compat: dict, wire: bytes, end: str):
    with RawServer(wire, end) as server:
        return answer_of(collect(make_model(api=api, base_url=server.url, compat=compat or None)))


@pytest.mark.parametrize(("frame", "end"), [*PROPER, *CUT])
@pytest.mark.parametrize("name", UNSAID)
def test_an_answer_without_its_end_is_an_error(name, frame, end):
    api, compat, body = UNSAID[name]
    assert answer(api, compat, frame(body), end).stop_reason == "error"


@pytest.mark.parametrize(("frame", "end"), CUT)
def test_a_cut_connection_ends_no_answer_of_a_server_without_finish_reasons(frame, end):
    assert answer("openai-completions", NO_REASON, frame(CHAT), end).stop_reason == "error"


@pytest.mark.parametrize(("frame", "end"), PROPER)
def test_the_proper_end_of_the_body_ends_it(frame, end):
    assert answer("openai-completions", NO_REASON, frame(CHAT), end).stop_reason == "toolUse"


def test_half_an_event_at_the_proper_end_is_an_error():
    """As a proxy sends it whose own server hung up."""
    assert (
        answer("openai-completions", NO_REASON, chunked(CHAT + b'data: {"id": "x", "cho'), FIN).stop_reason == "error"
    )


@pytest.mark.parametrize("word", [b"[DONE]", REASON], ids=["[DONE]", "finish_reason"])
@pytest.mark.parametrize(("frame", "end"), [*PROPER, (no_last_chunk, FIN), (short, FIN), (unmeasured, FIN)])
def test_a_word_of_the_server_is_enough(frame, end, word):
    assert answer("openai-completions", NO_REASON, frame(CHAT + sse(word)), end).stop_reason == "toolUse"
