"""What an editor lends to the agent: files as it has them, saved or not, and terminals for commands.

An editor that can show output as a terminal (`_meta.terminal_output`) is sent the output of commands that run here. If
it can only run commands itself (`terminal`), `bash` runs them there, unless there is a sandbox, which would not hold.
"""

import asyncio
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from spindle.base.limits import EDITOR_ANSWER
from spindle.shapes.messages import text_of
from spindle.tools.base import ToolError
from spindle.tools.bash import exit_code
from spindle.wires.acp.json_rpc import JsonRpcError, RpcConnection
from spindle.wires.acp.updates import CallView, Update, terminal_block

KEPT_BYTES = 1 << 20
"""How much of a command's output the editor keeps for us: the end."""
_OVERLAP = 256


class EditorFiles:
    """Files as the editor has them. A file that it refuses to read is not its business: the one on disk counts."""

    name = "the editor"

    def __init__(self, session: str, connection: RpcConnection) -> None:
        self._session = session
        self._connection = connection

    async def read(self, path: str) -> str | None:
        try:
            answer = await self._ask("fs/read_text_file", path=path)
        except JsonRpcError:
            return None
        text = answer.get("content") if isinstance(answer, dict) else None
        return text if isinstance(text, str) else None

    async def write(self, path: str, text: str) -> bool:
        try:
            await self._ask("fs/write_text_file", path=path, content=text)
        except JsonRpcError as error:
            if await self.read(path) is None:
                return False
            raise ToolError(f"The editor did not write {path}: {error}") from None
        return True

    async def _ask(self, method: str, **params: Any) -> Any:
        try:
            async with asyncio.timeout(EDITOR_ANSWER):
                return await self._connection.request(method, {"sessionId": self._session, **params})
        except TimeoutError:
            text = f"The editor did not answer {method} for {params['path']} in {EDITOR_ANSWER:g} s"
            raise ToolError(f"{text}; the file on disk was not touched") from None


class EditorTerminals:
    def __init__(self, session: str, connection: RpcConnection, on_open: Callable[[str, str], None]) -> None:
        """`on_open` is called with the ids of the call and its terminal."""
        self._session = session
        self._connection = connection
        self._on_open = on_open

    async def open(self, call_id: str, argv: list[str], cwd: str, env: Mapping[str, str]) -> "EditorTerminal":
        variables = [{"name": name, "value": value} for name, value in env.items()]
        wanted: dict[str, Any] = {
            "command": argv[0],
            "args": argv[1:],
            "cwd": cwd,
            "env": variables,
            "outputByteLimit": KEPT_BYTES,
        }
        opening = asyncio.ensure_future(self._ask("terminal/create", **wanted))
        try:
            terminal = EditorTerminal(await asyncio.shield(opening), self._ask)
        except asyncio.CancelledError:
            with suppress(ToolError):  # the editor may open it all the same, and then it runs
                await EditorTerminal(await opening, self._ask).release()
            raise
        self._on_open(call_id, terminal.id)
        return terminal

    async def _ask(self, method: str, within: float | None = EDITOR_ANSWER, **params: Any) -> dict[str, Any]:
        try:
            async with asyncio.timeout(within):
                answer = await self._connection.request(method, {"sessionId": self._session, **params})
        except TimeoutError:
            raise ToolError(f"The editor did not answer {method} in {within:g} s") from None
        except JsonRpcError as error:
            raise ToolError(f"The editor refused {method}: {error}") from None
        return answer if isinstance(answer, dict) else {}


class EditorTerminal:
    def __init__(self, opened: dict[str, Any], ask: Callable[..., Any]) -> None:
        """`opened`: the editor's answer. Raises `ToolError` if it has no terminal."""
        if not isinstance(id := opened.get("terminalId"), str):
            raise ToolError("The editor opened no terminal, so the command did not run")
        self.id = id
        self._ask = ask

    async def wait(self) -> int:
        ended = await self._ask("terminal/wait_for_exit", None, terminalId=self.id)
        code, name = ended.get("exitCode"), str(ended.get("signal") or "")
        if isinstance(code, int):
            return code
        number = int(name) if name.isdecimal() else signal.Signals.__members__.get(name, signal.SIGKILL)
        return 128 + number

    async def kill(self) -> None:
        await self._ask("terminal/kill", terminalId=self.id)

    async def output(self) -> tuple[str, bool]:
        answer = await self._ask("terminal/output", terminalId=self.id)
        return str(answer.get("output", "")), answer.get("truncated") is True

    async def release(self) -> None:
        await self._ask("terminal/release", terminalId=self.id)


class ShownCommand(CallView):
    """A call of `bash` whose command runs here, while the editor shows its output as a terminal."""

    def __init__(self, id: str, cwd: str, key: str) -> None:
        """`key`: the field of `_meta` in which the editor wants the output."""
        super().__init__(id, "bash", cwd)
        self._place = {"terminal_id": id, "cwd": cwd}
        self._key = key
        self._sent: str | None = None
        """The output so far, as far as it is known; None before the command runs."""

    def begin(self, arguments: Any = None, *, running: bool = False) -> Update:
        update = super().begin(arguments, running=running)
        if update["sessionUpdate"] == "tool_call":
            update |= {"content": [terminal_block(self._id)], "_meta": {"terminal_info": self._place}}
        return update

    def progress(self, content: Iterable[Any]) -> Update | None:
        text = text_of(list(content))
        news, self._sent = _news(self._sent or "", text), text
        if not news:
            return None
        output = {self._key: {"terminal_id": self._id, "data": news}}
        return self._told({"toolCallId": self._id, "status": "in_progress", "_meta": output})

    def end(self, content: list[Any], is_error: bool, details: Any = None, changed: Any = None) -> Update:
        update = super().end(content, is_error, details, changed)
        if self._sent is not None:  # else it did not run, and the text says why
            code = exit_code(text_of(content)) if is_error else 0
            exit = {"terminal_id": self._id, "exit_code": code, "signal": None}
            update |= {"content": [terminal_block(self._id)], "_meta": {"terminal_exit": exit}}
        return update


def _news(before: str, after: str) -> str:
    """Return the end of `after` that `before` does not have; both are the ends of an output that grows."""
    if after.startswith(before):
        return after[len(before) :]
    found = after.rfind(before[-_OVERLAP:])
    return after[found + len(before[-_OVERLAP:]) :] if found >= 0 else f"\n[…]\n{after}"
