"""A real server process with a scripted model, and a client that speaks the remote protocol plainly."""

import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, Step
from tests.support.nursery import Popen, end

TOKEN = "a-long-enough-token"


class ServerProcess:
    """`spindle --remote 127.0.0.1:0` on a free port."""

    def __init__(
        self,
        steps: Sequence[Step] = (),
        *,
        args: Sequence[str] = (),
        base: Path | None = None,
        env: dict[str, str] | None = None,
        address: str = "127.0.0.1:0",
        model: dict[str, Any] | None = None,
        fresh: bool = False,
        before: Sequence[str] = (),
    ) -> None:
        """`fresh`: there is no model and no setting. `before`: a program, and its arguments, that starts the server."""
        self._owned = tempfile.TemporaryDirectory() if base is None else None
        self.base = base or Path(self._owned.name)  # type: ignore[union-attr]
        self.cwd, self.agent_dir = self.base / "work", self.base / "agent"
        self.cwd.mkdir(parents=True, exist_ok=True)
        self.mock = MockModel(list(steps))
        self.mock.__enter__()
        if not fresh:
            write_models(self.agent_dir, self.mock.openai_url, **(model or {}))
            (self.agent_dir / "settings.json").write_text(json.dumps({"retry": {"baseDelayMs": 20}}))
        chosen = [] if fresh else ["--model", "mock/m1"]
        self.process = Popen(
            [*before, sys.executable, "-m", "spindle", "--remote", address, *chosen, *args],
            cwd=self.cwd,
            env=agent_environment(self.agent_dir, **(env or {})),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.stderr = ""
        assert self.process.stderr is not None
        while not (found := re.search(r"Listening on https?://(\S+?)/", self.stderr)):
            line = self.process.stderr.readline()
            assert line, f"the server ended: {self.stderr}"
            self.stderr += line
        self.address = found[1]
        made = re.search(r"#token=(\S+)", self.stderr)
        self.made_token = None if made is None else made[1]
        self.port = int(self.address.rpartition(":")[2])
        self.drained = threading.Event()
        """Set when all it had to say on stderr is in `stderr`."""
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr += line
        self.drained.set()

    def chat(self, query: str = "", **options: Any) -> "ChatClient":
        return ChatClient(connect(f"ws://{self.address}/{query}", proxy=None, **options).__enter__())

    def rpc(self, query: str = "", **options: Any) -> "RpcSocket":
        return RpcSocket(connect(f"ws://{self.address}/rpc{query}", proxy=None, max_size=None, **options).__enter__())

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self.process)
        self.mock.__exit__(None, None, None)
        if self._owned is not None:
            self._owned.cleanup()


class _Socket:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def write(self, data: str | bytes) -> None:
        self.socket.send(data)

    def read(self, timeout: float = 15) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(self.socket.recv(timeout=timeout))
        return frame

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


class ChatClient(_Socket):
    def send(self, id: str, input: Any, **fields: Any) -> None:
        self.write(json.dumps({"request_id": id, "input": input, **fields}))

    def ask(self, id: str, input: Any, **fields: Any) -> dict[str, Any]:
        """Send a request and return the next frame."""
        self.send(id, input, **fields)
        return self.read()

    def until_terminal(self) -> list[dict[str, Any]]:
        """Read up to and including `Complete`, a question, or the `Text` of a request that is not streamed."""
        frames = []
        while True:
            frames.append(self.read())
            kind = next(iter(frames[-1]["response"]))
            if kind not in ("Stream", "ToolCall", "ToolResult") and (kind != "Text" or len(frames) == 1):
                return frames

    def until_complete(self) -> list[dict[str, Any]]:
        """Read up to and including `Complete`."""
        frames = [self.read()]
        while "Complete" not in frames[-1]["response"]:
            frames.append(self.read())
        return frames


class RpcSocket(_Socket):
    def __init__(self, socket: ClientConnection) -> None:
        super().__init__(socket)
        self.ready = self.read()
        self.events = self.ready["eventCount"]
        """Number of the last event seen."""
        self._waiting: list[dict[str, Any]] = []

    def call(self, type: str, **fields: Any) -> dict[str, Any]:
        self.write(json.dumps({"id": type, "type": type, **fields}))
        return self.wait(lambda frame: frame.get("type") == "response" and frame.get("id") == type)

    def wait(self, wanted: Any) -> dict[str, Any]:
        fits = wanted if callable(wanted) else lambda frame: frame["type"] == wanted
        for index, frame in enumerate(self._waiting):
            if fits(frame):
                return self._waiting.pop(index)
        while True:
            frame = self.read()
            self.events += frame["type"] != "response"
            if fits(frame):
                return frame
            self._waiting.append(frame)
