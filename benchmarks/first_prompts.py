"""The first prompt of a program that stays: Spindle, pi, codex and Claude Code as servers on pipes.

Each is started, greeted, and asked once; what is measured is the time from the prompt to the first piece of the answer,
and the CPU from the start to there.
"""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 60
Frame = dict[str, Any]


@dataclass(frozen=True)
class Manner:
    """How one program is started and spoken to."""

    arguments: list[str]
    """In the place of those of a one-shot."""
    greetings: list[Frame]
    """Sent one after the other; each is answered before the next goes out, unless it has no id."""
    prompt: Callable[[Frame], Frame]
    """Makes the prompt from the answer to the last greeting."""
    is_answer: Callable[[Frame], bool]
    first_piece: bytes
    """In the line that has the first piece of the answer."""


def _rpc(model: list[str]) -> Manner:
    return Manner(
        ["--mode", "rpc", *model],
        [{"id": "1", "type": "get_state"}],
        lambda _: {"id": "2", "type": "prompt", "message": "What is the answer?"},
        lambda frame: frame.get("id") == "1",
        b'"text_delta"',
    )


def _codex() -> Manner:
    def prompt(started: Frame) -> Frame:
        text = {"type": "text", "text": "What is the answer?", "text_elements": []}
        thread = started["result"]["thread"]["id"]
        return {"id": 3, "method": "turn/start", "params": {"threadId": thread, "input": [text]}}

    hello = {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "benchmark", "version": "1"}}}
    greetings: list[Frame] = [hello, {"method": "initialized"}, {"id": 2, "method": "thread/start", "params": {}}]
    return Manner(["app-server"], greetings, prompt, lambda frame: "result" in frame, b'"item/agentMessage/delta"')


def _claude() -> Manner:
    stream = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    hello = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}}
    asked = {"role": "user", "content": "What is the answer?"}
    return Manner(
        ["-p", "--model", "bench", *stream, "--include-partial-messages"],
        [hello],
        lambda _: {"type": "user", "session_id": "", "parent_tool_use_id": None, "message": asked},
        lambda frame: frame.get("type") == "control_response",
        b'"text_delta"',
    )


MANNERS: dict[str, Callable[[], Manner]] = {
    "spindle": lambda: _rpc(["--updates", "delta", "--model", "bench/bench"]),
    "pi": lambda: _rpc(["--provider", "bench", "--model", "bench"]),
    "codex": _codex,
    "claude": _claude,
}


def first_prompt(name: str, program: str, environment: dict[str, str], cwd: Path) -> dict[str, float]:
    """Return the figures of one fresh process, none for a program that is no server on pipes. Raises RuntimeError."""
    from benchmarks.measured_agent import cpu_of

    if name not in MANNERS:
        return {}
    manner = MANNERS[name]()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [program, *manner.arguments], cwd=cwd, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        guard = threading.Timer(LIMIT_S, child.kill)
        guard.start()
        lines = iter(child.stdout.readline, b"")
        try:
            answer: Frame = {}
            for greeting in manner.greetings:
                _send(child, greeting)
                if "id" in greeting or "request_id" in greeting:
                    answer = next(frame for frame in _frames(lines) if manner.is_answer(frame))
            begin = time.perf_counter()
            _send(child, manner.prompt(answer))
            while manner.first_piece not in next(lines):
                pass
            seconds, used = time.perf_counter() - begin, cpu_of(child.pid)
        except StopIteration:
            raise RuntimeError(f"{name} gave no answer to its first prompt") from None
        finally:
            guard.cancel()
            child.kill()
    return {
        "server: first prompt to its first piece (s)": seconds,
        "server: CPU from the start to there (s)": used,
    }


def _send(child: subprocess.Popen[bytes], frame: Frame) -> None:
    assert child.stdin is not None
    child.stdin.write(json.dumps(frame).encode() + b"\n")
    child.stdin.flush()


def _frames(lines: Iterator[bytes]) -> Iterator[Frame]:
    for line in lines:
        if line.startswith(b"{"):
            yield json.loads(line)
