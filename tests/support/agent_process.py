"""A real `spindle --mode rpc` process on pipes, in directories of its own, with a scripted model server.

    with AgentProcess([reply("hello")]) as agent:
        agent.call("prompt", message="hi")
        agent.wait("agent_settled")

`call` sends a command and returns its response; `wait` returns the next event that fits, in order of arrival.
Everything the process wrote is in `frames`.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .mock_model import MockModel, Step
from .nursery import Popen, end

__all__ = ["AgentProcess", "agent_environment", "write_models"]

WAIT_S = 20.0
Frame = dict[str, Any]
Wanted = str | Callable[[Frame], bool]


def write_models(agent_dir: Path, url: str, *, api: str = "openai-completions", **model: Any) -> None:
    """Write a models.json with the provider `mock` and its models m1 (thinks, sees) and m2 (plain)."""
    base = {"contextWindow": 100_000, "maxTokens": 4096}
    models = [
        {"id": "m1", "name": "Mock One", "reasoning": True, "input": ["text", "image"], **base, **model},
        {"id": "m2", "name": "Mock Two", "reasoning": False, "input": ["text"], **base},
    ]
    provider = {"baseUrl": url, "apiKey": "test-key", "api": api, "models": models}
    agent_dir.mkdir(parents=True, exist_ok=True)
    whole = agent_dir / "models.new"  # other agents may be reading the file
    whole.write_text(json.dumps({"providers": {"mock": provider}}))
    whole.replace(agent_dir / "models.json")


def agent_environment(agent_dir: Path, **extra: str) -> dict[str, str]:
    """Return an environment with this agent directory, and without keys and settings of the developer."""
    kept = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_TOKEN")) and not k.startswith("PI_")}
    home = str(agent_dir.parent)
    return {**kept, "SPINDLE_DIR": str(agent_dir), "HOME": home, "TMPDIR": home, **extra}


class AgentProcess:
    mode = "rpc"

    def __init__(
        self,
        steps: Sequence[Step] = (),
        *,
        args: Sequence[str] = (),
        session: bool = False,
        settings: dict[str, Any] | None = None,
        base: Path | None = None,
        env: dict[str, str] | None = None,
        model: str | None = "mock/m1",
        api: str = "openai-completions",
        url: str | None = None,
        stdout: int = subprocess.PIPE,
        read: bool = True,
    ) -> None:
        self._owned = tempfile.TemporaryDirectory() if base is None else None
        self.base = base or Path(self._owned.name)  # type: ignore[union-attr]
        self.agent_dir, self.cwd = self.base / "agent", self.base / "work"
        self.cwd.mkdir(parents=True, exist_ok=True)
        self.mock = MockModel(list(steps))
        self.mock.__enter__()
        own = self.mock.anthropic_url if api == "anthropic-messages" else self.mock.openai_url
        write_models(self.agent_dir, url or own, api=api)
        defaults = {"retry": {"baseDelayMs": 20}}
        (self.agent_dir / "settings.json").write_text(json.dumps({**defaults, **(settings or {})}))
        self.configure()
        command = [sys.executable, "-m", "spindle", "--mode", self.mode]
        command += ["--model", model] if model else []
        command += [] if session else ["--no-session"]
        self.process = Popen(
            [*command, *args],
            cwd=self.cwd,
            env=agent_environment(self.agent_dir, **(env or {})),
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        self.frames: list[Frame] = []
        self._killed = False
        self.lines: list[bytes] = []
        self.stderr = b""
        self._arrived: queue.Queue[Frame | None] = queue.Queue()
        self._waiting: list[Frame] = []
        self._count = 0
        self._threads = [threading.Thread(target=self._drain_stderr, daemon=True)]
        if read and stdout == subprocess.PIPE:
            self._threads.append(threading.Thread(target=self._read, daemon=True))
        for thread in self._threads:
            thread.start()

    def configure(self) -> None:
        """Change the files that the process is about to read; for subclasses."""

    # -- talking ---------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, type: str, **fields: Any) -> Any:
        """Send a command; returns its id."""
        if "id" not in fields:
            self._count += 1
            fields = {"id": f"q{self._count}", **fields}
        self.write(json.dumps({"type": type, **fields}).encode() + b"\n")
        return fields["id"]

    def call(self, type: str, **fields: Any) -> Frame:
        """Send a command and return its response."""
        id = self.send(type, **fields)
        return self.wait(lambda frame: frame.get("type") == "response" and frame.get("id") == id)

    def data(self, type: str, **fields: Any) -> Any:
        response = self.call(type, **fields)
        assert response["success"], response
        return response.get("data")

    def prompt(self, message: str, **fields: Any) -> Frame:
        return self.call("prompt", message=message, **fields)

    def run(self, message: str) -> list[Frame]:
        """Prompt and wait until the agent is settled; returns the frames in between."""
        start = len(self.frames)
        assert self.prompt(message)["success"]
        self.wait("agent_settled")
        return self.frames[start:]

    def wait(self, wanted: Wanted, timeout: float = WAIT_S) -> Frame:
        """Return the first frame that fits and was not returned before."""
        fits = wanted if callable(wanted) else lambda frame: frame.get("type") == wanted
        for index, frame in enumerate(self._waiting):
            if fits(frame):
                return self._waiting.pop(index)
        end = time.monotonic() + timeout
        while True:
            try:
                arrived = self._arrived.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"nothing fits {wanted!r} in {timeout} s; last frames: {self.frames[-5:]}"
                ) from None
            if arrived is None:
                self._arrived.put(None)
                self._threads[0].join(WAIT_S)  # what it said last
                raise AssertionError(f"the agent ended ({self.process.wait(5)}): {self.stderr.decode()[-2000:]}")
            if fits(arrived):
                return arrived
            self._waiting.append(arrived)

    def wait_delta(self, text: str) -> Frame:
        return self.wait(
            lambda f: f.get("type") == "message_update" and f["assistantMessageEvent"].get("delta") == text
        )

    # -- the end ---------------------------------------------------------------------------------

    def close_stdin(self) -> int:
        """Close stdin, read the rest of the output, and return the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(WAIT_S)
        self._threads[-1].join(WAIT_S)
        return code

    def kill(self, number: int = signal.SIGKILL) -> int:
        self._killed = True
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self.process)
        for thread in self._threads:
            thread.join(2)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass
        self.mock.__exit__(None, None, None)
        if self._owned is not None:
            self._owned.cleanup()

    # -- threads ---------------------------------------------------------------------------------

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if self._killed and not line.endswith(b"\n"):
                break  # the kill has cut this line
            frame = json.loads(line)
            self.frames.append(frame)
            self._arrived.put(frame)
        self._arrived.put(None)

    def _drain_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr += line
