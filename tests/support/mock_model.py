"""A model server on loopback that answers from a script.

It speaks OpenAI chat completions (`POST /v1/chat/completions`) and Anthropic messages (`POST /v1/messages`) as
SSE, runs in a thread of its own, records every request and can be held, cut, dropped or stalled at any point:

    with MockModel([reply("Hel", "lo"), failure(429, "slow down")]) as mock:
        run_agent(base_url=mock.openai_url)            # or mock.anthropic_url
        assert mock.requests[0].body["model"] == "m1"

Each request takes the next step; the last step repeats. A step with `match` is taken first, by requests whose
last user text it matches. `mock.script_for("m2", …)` is the script of one model. Steps are made by these functions:

    reply(*ops, usage=(10, 5, 2), finish=None)   a 200 stream; `finish` is `stop`, `length`, `toolUse`, any word of
                                                 the provider, or NOTHING to end without one
    failure(429, "text" | {...}, headers={})     an HTTP error; a text becomes {"error": {"message": text}}
    raw(*pieces, content_type=…)                 a 200 with exactly these bytes, one write each; gates work too
    dropped()                                    the connection is closed without an answer
    silent()                                     the request is read and never answered

Ops of a reply: a string is a piece of text, and

    think("…")                                   a piece of thinking
    call("bash", {"command": "ls"}, id="c1")     a tool call; arguments may be a list of raw JSON pieces
    gate("name")                                 wait until `mock.release("name")`, so that no test needs to sleep
    pause(seconds)                               send nothing for so long: for slow streams, not for waiting
    stall()                                      send nothing more until the client hangs up
    cut()                                        close the connection in mid-stream
    error({...})                                 an error object inside the stream
    sse(b"…")                                    raw bytes between events (comments, odd framing)

A test waits with `mock.wait_requests(n)`, `mock.wait_gate("name")` (the stream has got there) and
`mock.wait_hangups(n)` (the client closed a stream that was not finished).
"""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

__all__ = [
    "NOTHING",
    "MockModel",
    "Recorded",
    "Step",
    "call",
    "cut",
    "dropped",
    "error",
    "failure",
    "gate",
    "pause",
    "raw",
    "reply",
    "silent",
    "sse",
    "stall",
    "think",
]

WAIT_S = 20.0
NOTHING = "(nothing)"


@dataclass(frozen=True)
class Op:
    kind: str
    value: Any = None
    name: str = ""
    id: str = ""


@dataclass
class Step:
    ops: list[Op | str] = field(default_factory=list)
    usage: tuple[int, int, int] = (10, 5, 2)
    """Prompt tokens (cached ones included), output, cached."""
    finish: str = "stop"
    status: int = 200
    body: bytes | None = None
    """Sent instead of a stream."""
    headers: dict[str, str] = field(default_factory=dict)
    silent: bool = False
    dropped: bool = False
    match: str | None = None
    said: dict[str, Any] | None = None
    """Fields of the last chunk in place of the usage (OpenAI's API)."""


@dataclass(frozen=True)
class Recorded:
    """A request that the server has received."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: Any
    connection: int
    """Which connection it came on, counted from 1."""


def think(piece: str) -> Op:
    return Op("think", piece)


def call(name: str, arguments: Any, id: str = "call_1") -> Op:
    return Op("call", arguments if isinstance(arguments, list) else [json.dumps(arguments)], name, id)


def gate(name: str) -> Op:
    return Op("gate", name)


def pause(seconds: float) -> Op:
    return Op("pause", seconds)


def stall() -> Op:
    return Op("stall")


def cut() -> Op:
    return Op("cut")


def error(value: dict[str, Any]) -> Op:
    return Op("error", value)


def sse(data: bytes) -> Op:
    return Op("raw", data)


def reply(
    *ops: Op | str, usage: tuple[int, int, int] = (10, 5, 2), finish: str | None = None, match: str | None = None
) -> Step:
    has_call = any(isinstance(op, Op) and op.kind == "call" for op in ops)
    return Step(list(ops), usage, finish or ("toolUse" if has_call else "stop"), match=match)


def failure(
    status: int,
    body: str | dict[str, Any] | bytes = "",
    headers: dict[str, str] | None = None,
    match: str | None = None,
) -> Step:
    if isinstance(body, str):
        body = {"error": {"message": body}} if body else b""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Step(status=status, body=data, headers=headers or {}, match=match)


def raw(*pieces: bytes | Op, content_type: str = "text/event-stream", match: str | None = None) -> Step:
    ops: list[Op | str] = [piece if isinstance(piece, Op) else sse(piece) for piece in pieces]
    return Step(ops, finish="", headers={"content-type": content_type}, match=match)


def dropped() -> Step:
    return Step(dropped=True)


def silent() -> Step:
    return Step(silent=True)


class MockModel:
    def __init__(self, steps: list[Step] | None = None) -> None:
        self.requests: list[Recorded] = []
        self.hangups = 0
        """Streams that the client closed before their end."""
        self.connections = 0
        self.lists: list[str] = []
        """Models that it lists when it is asked, as servers on this machine do."""
        self._steps = steps or [reply("OK")]
        self._steps_of: dict[str, list[Step]] = {}
        """Steps that are left for a model; the last one stays."""
        self._taken = 0
        self._changed = threading.Condition()
        self._released: set[str] = set()
        self._reached: set[str] = set()
        self._wakers: set[asyncio.Event] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    # -- for tests -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WAIT_S)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        return self.url

    def script(self, *steps: Step) -> None:
        """Answer from these steps from now on, and forget the requests so far."""
        self._steps, self._taken = list(steps), 0
        self.requests.clear()

    def script_for(self, model: str, *steps: Step) -> None:
        """Answer requests to this model from these steps."""
        self._steps_of[model] = list(steps)

    def release(self, name: str) -> None:
        """Let every stream pass this gate, now and later."""
        with self._changed:
            self._released.add(name)
        self._loop.call_soon_threadsafe(self._wake)

    def wait_requests(self, count: int) -> None:
        self._wait(lambda: len(self.requests) >= count, f"{count} requests")

    def wait_gate(self, name: str) -> None:
        self._wait(lambda: name in self._reached, f"gate {name}")

    def wait_hangups(self, count: int = 1) -> None:
        self._wait(lambda: self.hangups >= count, f"{count} hang-ups")

    def close(self) -> None:
        """Stop serving; open connections are closed at once. May be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(WAIT_S)

    # -- the server ------------------------------------------------------------------------------

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_S
        with self._changed:
            while not condition():
                left = end - time.monotonic()
                assert left > 0, f"waited {WAIT_S} s for {what}"
                self._changed.wait(left)

    def _note(self, change: Callable[[], Any]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = asyncio.ensure_future(self._connection(reader, writer, self.connections))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**26)
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        try:
            while request := await _read_request(reader, number):
                if self.lists and not request.path.endswith(("/completions", "/messages", "/responses")):
                    body = json.dumps({"data": [{"id": name} for name in self.lists]}).encode()
                    writer.write(
                        _head(200, {"content-type": "application/json", "content-length": str(len(body))}) + body
                    )
                    continue
                self._note(partial(self.requests.append, request))
                step = self._next_step(request)
                if step.dropped:
                    return
                if not await self._while_connected(reader, self._answer(writer, request, step)):
                    self._note(lambda: setattr(self, "hangups", self.hangups + 1))
                    return
        except _CutError:
            return
        except (ConnectionError, asyncio.IncompleteReadError):
            self._note(lambda: setattr(self, "hangups", self.hangups + 1))
        finally:
            writer.transport.abort()

    async def _while_connected(self, reader: asyncio.StreamReader, answer: Any) -> bool:
        """Run `answer` to its end; False if the client hung up before."""
        work, watch = asyncio.ensure_future(answer), asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return False
            work.result()
            return True
        finally:
            work.cancel()
            watch.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)

    def _next_step(self, request: Recorded) -> Step:
        if isinstance(request.body, dict) and (own := self._steps_of.get(request.body.get("model", ""))):
            return own[0] if len(own) == 1 else own.pop(0)
        text = _last_user_text(request.body)
        for step in self._steps:
            if step.match is not None and re.search(step.match, text):
                return step
        steps = [step for step in self._steps if step.match is None] or [reply("OK")]
        step = steps[min(self._taken, len(steps) - 1)]
        self._taken += 1
        return step

    async def _answer(self, writer: asyncio.StreamWriter, request: Recorded, step: Step) -> None:
        if step.silent:
            await asyncio.Event().wait()
        if step.body is not None:
            headers = {"content-type": "application/json", "content-length": str(len(step.body)), **step.headers}
            writer.write(_head(step.status, headers) + step.body)
            await writer.drain()
            return
        headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked", **step.headers}
        writer.write(_head(200, headers))
        model = request.body.get("model", "") if isinstance(request.body, dict) else ""
        style = _Anthropic if request.path.split("?")[0].endswith("/messages") else _OpenAI
        wire = style(model, len(self.requests), step)
        if step.finish:
            await _send(writer, wire.begin())
        for op in step.ops:
            await self._play(writer, wire, op)
        if step.finish and step.finish != NOTHING:
            await _send(writer, wire.finish())
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _play(self, writer: asyncio.StreamWriter, wire: "_Wire", op: Op | str) -> None:
        if isinstance(op, str):
            await _send(writer, wire.text(op))
        elif op.kind == "gate":
            self._note(lambda: self._reached.add(op.value))
            waker = asyncio.Event()
            self._wakers.add(waker)
            while op.value not in self._released:
                waker.clear()
                await waker.wait()
            self._wakers.discard(waker)
        elif op.kind == "pause":
            await writer.drain()
            await asyncio.sleep(op.value)
        elif op.kind == "stall":
            await asyncio.Event().wait()
        elif op.kind == "cut":
            await writer.drain()
            raise _CutError
        elif op.kind == "raw":
            await _send(writer, op.value)
        elif op.kind == "think":
            await _send(writer, wire.think(op.value))
        elif op.kind == "error":
            await _send(writer, wire.error(op.value))
        elif op.kind == "call":
            await _send(writer, wire.open_call(op.id, op.name))
            for piece in op.value:
                await _send(writer, wire.arguments(piece))


class _CutError(Exception):
    """The script says to close the connection."""


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
    await writer.drain()
    await asyncio.sleep(0)  # a chance to notice that the client has gone


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Recorded | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    data = await reader.readexactly(int(headers.get("content-length", "0")))
    try:
        body = json.loads(data)
    except ValueError:
        body = data
    return Recorded(first.split(" ")[1], headers, body, connection)


def _last_user_text(body: Any) -> str:
    messages = body.get("messages", []) if isinstance(body, dict) else []
    for message in reversed(messages):
        if message.get("role") == "user":
            content = message["content"]
            text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
            if not text.startswith("<remark>"):  # what the agent itself tells after results
                return text
    return ""


class _Wire:
    """How the pieces of an answer look in one API family."""

    def __init__(self, model: str, number: int, step: Step) -> None:
        self.model, self.number, self.step = model, number, step

    def begin(self) -> bytes:
        raise NotImplementedError

    def text(self, piece: str) -> bytes:
        raise NotImplementedError

    def think(self, piece: str) -> bytes:
        raise NotImplementedError

    def error(self, value: dict[str, Any]) -> bytes:
        raise NotImplementedError

    def open_call(self, id: str, name: str) -> bytes:
        raise NotImplementedError

    def arguments(self, piece: str) -> bytes:
        raise NotImplementedError

    def finish(self) -> bytes:
        raise NotImplementedError


class _OpenAI(_Wire):
    calls = -1

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        return self._data({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def _data(self, fields: dict[str, Any]) -> bytes:
        head = {"id": f"chatcmpl-mock{self.number}", "object": "chat.completion.chunk", "model": self.model}
        return b"data: " + json.dumps({**head, **fields}).encode() + b"\n\n"

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        return self._chunk({"content": piece})

    def think(self, piece: str) -> bytes:
        return self._chunk({"reasoning_content": piece})

    def open_call(self, id: str, name: str) -> bytes:
        self.calls += 1
        function = {"name": name, "arguments": ""}
        return self._chunk({"tool_calls": [{"index": self.calls, "id": id, "type": "function", "function": function}]})

    def arguments(self, piece: str) -> bytes:
        return self._chunk({"tool_calls": [{"index": self.calls, "function": {"arguments": piece}}]})

    def error(self, value: dict[str, Any]) -> bytes:
        return b"data: " + json.dumps({"error": value}).encode() + b"\n\n"

    def finish(self) -> bytes:
        prompt, output, cached = self.step.usage
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        reason = {"toolUse": "tool_calls"}.get(self.step.finish, self.step.finish)
        said = self.step.said or {"usage": usage}
        return self._chunk({}, reason) + self._data({"choices": [], **said}) + b"data: [DONE]\n\n"


class _Anthropic(_Wire):
    index = -1
    open = ""

    def _event(self, type: str, **fields: Any) -> bytes:
        return f"event: {type}\ndata: {json.dumps({'type': type, **fields})}\n\n".encode()

    def _delta(self, **delta: Any) -> bytes:
        return self._event("content_block_delta", index=self.index, delta=delta)

    def _close(self) -> bytes:
        if not self.open:
            return b""
        signature = self._delta(type="signature_delta", signature="SIG==") if self.open == "thinking" else b""
        self.open = ""
        return signature + self._event("content_block_stop", index=self.index)

    def _block(self, kind: str, **fields: Any) -> bytes:
        if kind == self.open and kind != "tool_use":
            return b""
        closed = self._close()
        self.index, self.open = self.index + 1, kind
        block = {"type": kind, **fields}
        return closed + self._event("content_block_start", index=self.index, content_block=block)

    def begin(self) -> bytes:
        prompt, _, cached = self.step.usage
        usage = {
            "input_tokens": prompt - cached,
            "output_tokens": 1,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
        }
        message = {"id": f"msg_mock{self.number}", "role": "assistant", "model": self.model, "content": []}
        return self._event("message_start", message={**message, "usage": usage})

    def text(self, piece: str) -> bytes:
        return self._block("text", text="") + self._delta(type="text_delta", text=piece)

    def think(self, piece: str) -> bytes:
        opened = self._block("thinking", thinking="", signature="")
        return opened + self._delta(type="thinking_delta", thinking=piece)

    def open_call(self, id: str, name: str) -> bytes:
        return self._block("tool_use", id=id, name=name, input={})

    def arguments(self, piece: str) -> bytes:
        return self._delta(type="input_json_delta", partial_json=piece)

    def error(self, value: dict[str, Any]) -> bytes:
        return self._event("error", error=value)

    def finish(self) -> bytes:
        words = {"stop": "end_turn", "length": "max_tokens", "toolUse": "tool_use"}
        reason = words.get(self.step.finish, self.step.finish)
        usage = {"output_tokens": self.step.usage[1]}
        closed = self._close()
        delta = {"stop_reason": reason, "stop_sequence": None}
        return closed + self._event("message_delta", delta=delta, usage=usage) + self._event("message_stop")
