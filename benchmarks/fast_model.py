"""A model server that is never the bottleneck: OpenAI chat completions, answers encoded once, in a process of its own.

The last user message says what to answer:

    bench:text:N          N pieces of text, as fast as the client reads them
    bench:slow:N:MS       N pieces, MS milliseconds apart
    bench:rich:N:RATE     N pieces of Markdown, so many a second; `code`: of one block of code
    bench:tool:N          N rounds of bash `true`, each with a number, then a text
    bench:shell:N         the same with `eval true`: nobody can tell that it writes nothing
    bench:thinks:N:MS     the same, each answer after MS milliseconds

`python -m benchmarks.fast_model` prints its URL and serves until its stdin ends.
"""

import asyncio
import functools
import json
import re
import sys
from typing import Any

SLICE = 64 * 1024
"""Bytes of events in one chunk."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
RICH = (
    "## A heading\n\nSome **bold words**, `code` and [a link](https://example.org/page) in a paragraph that goes on "
    "for a while, with *emphasis* and more words.\n\n- one item\n- another **item**\n  - nested\n\n"
    "| name | value |\n|---|---|\n| alpha | 1 |\n| beta | 2 |\n\n"
    "```python\ndef f(x):\n    return x + 1  # note\n```\n\n"
)
CODE = "    total = compute(index, 'some text') + 42  # a comment\n"
TICK = 0.004
"""Seconds between two writes of an answer that comes at a steady pace."""
WORDS = ["kalo ", "miren ", "tosu ", "davel\n", "nopir ", "ash, ", "gefo ", "lintar. "]


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "model": "bench", "choices": [choice]}
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def end(finish: str) -> bytes:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    last = json.dumps({"id": "chatcmpl-bench", "object": "chat.completion.chunk", "choices": [], "usage": usage})
    return event({}, finish) + b"data: " + last.encode() + b"\n\ndata: [DONE]\n\n"


def piece(number: int) -> bytes:
    """Return the event of one piece; the words do not repeat, since some agents stop an answer that does."""
    return event({"content": f"{number * 7919 % 10007:x}" + WORDS[number * 5 % 8]})


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@functools.cache
def text_answer(count: int) -> bytes:
    """Return a whole answer; no event is split over two chunks."""
    chunks, pending = [HEAD], event({"role": "assistant", "content": ""})
    for number in range(count):
        pending += piece(number)
        if len(pending) > SLICE:
            chunks.append(chunked(pending))
            pending = b""
    return b"".join([*chunks, chunked(pending + end("stop")), b"0\r\n\r\n"])


def tool_answer(round: int, before: str = "") -> bytes:
    function = {"name": "bash", "arguments": json.dumps({"command": f"{before}true {round}"})}
    call = {"index": 0, "id": f"call_{round}", "type": "function", "function": function}
    events = event({"role": "assistant", "content": None, "tool_calls": [call]})
    return HEAD + chunked(events + end("tool_calls")) + b"0\r\n\r\n"


def task_answer(count: int, prompt: str) -> bytes:
    """Return an answer that gives the same task to many subagents."""
    function = {"name": "task", "arguments": json.dumps({"prompt": prompt})}
    calls = [{"index": n, "id": f"task_{n}", "type": "function", "function": function} for n in range(count)]
    events = event({"role": "assistant", "content": None, "tool_calls": calls})
    return HEAD + chunked(events + end("tool_calls")) + b"0\r\n\r\n"


def asked(body: dict[str, Any]) -> tuple[list[str], int]:
    """Return the words of the last user message with `bench:`, and the number of answers since."""
    rounds = 0
    for message in reversed(body["messages"]):
        if message["role"] == "assistant":
            rounds += 1
        elif message["role"] == "user" and (found := re.search(r"bench:([\w:]+)", json.dumps(message["content"]))):
            return found[1].split(":"), rounds
    return ["text", "1"], 0


async def steadily(writer: asyncio.StreamWriter, text: str, count: int, rate: int) -> None:
    """Write a text in pieces of five characters."""
    writer.write(HEAD + chunked(event({"role": "assistant", "content": ""})))
    clock = asyncio.get_running_loop().time
    began, sent = clock(), 0
    while sent < count:
        due = min(count, int((clock() - began) * rate) + 1)
        for at in range(sent, due):
            writer.write(chunked(event({"content": text[at * 5 : at * 5 + 5]})))
        sent = due
        await writer.drain()
        await asyncio.sleep(TICK)
    writer.write(chunked(end("stop")) + b"0\r\n\r\n")


async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
    words, rounds = asked(body)
    match words:
        case ["slow", count, milliseconds]:
            writer.write(HEAD + chunked(event({"role": "assistant", "content": ""})))
            clock = asyncio.get_running_loop().time
            due = clock()
            for number in range(int(count)):
                due += int(milliseconds) / 1000
                await asyncio.sleep(max(0.0, due - clock()))
                writer.write(chunked(piece(number)))
                await writer.drain()
            writer.write(chunked(end("stop")) + b"0\r\n\r\n")
        case ["rich" | "code" as kind, count, rate]:
            text = RICH if kind == "rich" else CODE
            text = ("" if kind == "rich" else "```python\n") + text * (int(count) * 5 // len(text) + 1)
            await steadily(writer, text, int(count), int(rate))
        case ["thinks", count, milliseconds]:
            await asyncio.sleep(int(milliseconds) / 1000)
            writer.write(tool_answer(rounds, "eval ") if rounds < int(count) else text_answer(1))
        case ["tool" | "shell" as kind, count] if rounds < int(count):
            writer.write(tool_answer(rounds, "eval " if kind == "shell" else ""))
        case ["tasks", count, pieces, milliseconds] if rounds == 0:
            writer.write(task_answer(int(count), f"bench:slow:{pieces}:{milliseconds}"))
        case ["text", count]:
            writer.write(text_answer(int(count)))
        case _:
            writer.write(text_answer(1))
    await writer.drain()


async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            await answer(writer, json.loads(await reader.readexactly(int(length[1]) if length else 0)))
    except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
        writer.close()


async def serve() -> None:
    server = await asyncio.start_server(connection, "127.0.0.1", 0, limit=2**26)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
