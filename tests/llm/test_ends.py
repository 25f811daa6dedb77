"""How an answer ends on the wire: it is whole only if the server said so.

Raw sockets, because HTTP servers end properly.
"""

import json
import socket
import struct
import sys
import threading
from contextlib import asynccontextmanager

import pytest

from spindle.llm.local import adapter
from spindle.llm.local.grammar import call_head
from spindle.llm.local.llama_server import Facts
from spindle.llm.stream import ToolSpec
from spindle.shapes.messages import ToolCall
from tests.support.agent_process import agent_environment, write_models
from tests.support.nursery import run

from .frames import event
from .helpers import answer_of, collect, make_model, make_request

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
TOUCH = {"id": "c1", "index": 0, "function": {"name": "bash", "arguments": '{"command": "touch ran"}'}}
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
    "mistral": ("mistral-conversations", {}, CHAT),
    "bedrock": (
        "bedrock-converse-stream",
        {},
        b"".join(
            [
                event("messageStart", role="assistant"),
                event("contentBlockStart", contentBlockIndex=0, start={"toolUse": {"toolUseId": "c1", "name": "bash"}}),
                event("contentBlockDelta", contentBlockIndex=0, delta={"toolUse": {"input": '{"command":"ls"}'}}),
                event("contentBlockStop", contentBlockIndex=0),
            ]
        ),
    ),
}
"""A complete call, and no word that the answer is complete."""


def answer(api: str, compat: dict, wire: bytes, end: str):
    with RawServer(wire, end) as server:
        model = make_model(api=api, base_url=server.url, compat=compat or None)
        return answer_of(collect(model, api_key="key", env={"AWS_REGION": "us-east-1"}))


@pytest.mark.parametrize(("frame", "end"), [*PROPER, *CUT])
@pytest.mark.parametrize("name", UNSAID)
def test_an_answer_without_its_end_is_an_error(name, frame, end):
    api, compat, body = UNSAID[name]
    assert answer(api, compat, frame(body), end).stop_reason == "error"


@pytest.mark.parametrize("flags", [{}, NO_REASON], ids=["finish reasons", "none"])
@pytest.mark.parametrize("end", [FIN, RST])
def test_no_call_of_a_cut_answer_is_run_by_the_whole_program(tmp_path, end, flags):
    """One connection only, so that the retries fail at once."""
    body = sse({"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": [TOUCH]}}]})
    with RawServer(no_last_chunk(body), end) as server:
        write_models(tmp_path / "agent", server.url, compat=flags)
        (tmp_path / "agent" / "settings.json").write_text('{"retry": {"enabled": false}}')
        command = [sys.executable, "-m", "spindle", "-p", "--no-session", "--model", "mock/m1", "go"]
        done = run(command, cwd=tmp_path, env=agent_environment(tmp_path / "agent"), capture_output=True, timeout=60)
    assert done.returncode == 1 and not (tmp_path / "ran").exists(), done.stderr


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


SAID = {
    "chat": sse(REASON),
    "mistral": sse(REASON),
    "bedrock": event("messageStop", stopReason="tool_use"),
    "google": sse({"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]}),
}


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize(("frame", "end"), [*PROPER, (no_last_chunk, FIN)])
def test_the_same_answer_with_its_word_is_whole(name, frame, end):
    api, compat, body = UNSAID[name]
    assert answer(api, compat, frame(body + SAID[name]), end).stop_reason == "toolUse"


LOCAL = [pytest.param(tools, id="its own calls" if tools else "calls in our form") for tools in (True, False)]


@pytest.mark.parametrize("tools", LOCAL)
@pytest.mark.parametrize(
    ("word", "frame", "end", "wanted"),
    [
        (REASON, chunked, FIN, "toolUse"),
        (None, no_last_chunk, FIN, "error"),
        (None, no_last_chunk, RST, "error"),
        (None, inside_a_chunk, FIN, "error"),
        (None, chunked, FIN, "error"),
    ],
    ids=["whole", "cut", "reset", "cut inside a chunk", "no word"],
)
def test_a_local_model_whose_server_dies_makes_no_call(monkeypatch, tools, word, frame, end, wanted):
    """The process of the model is killed for want of memory, say, when a call has come as a whole."""
    said = {"content": call_head("bash") + '{"command":"ls"}'} if not tools else {"tool_calls": [CALL]}
    body = sse({"id": "x", "choices": [{"index": 0, "delta": said}]}, *[word] * (word is not None))
    if word and not tools:
        body = body.replace(b'"tool_calls"}', b'"stop"}')
    with RawServer(frame(body), end) as server:

        @asynccontextmanager
        async def lease(wanted):
            yield Facts(server.url, "key", 135_000_000, 4096, tools, False)

        monkeypatch.setattr(adapter, "lease", lease)
        bash = ToolSpec("bash", "Run", {"type": "object", "properties": {"command": {"type": "string"}}})
        request = make_request("List the files", tools=[bash])
        answer = answer_of(collect(make_model(api="local", id="/small.gguf"), request))
    assert answer.stop_reason == wanted, answer
    assert [block.arguments for block in answer.content if isinstance(block, ToolCall)] == [{"command": "ls"}]
