"""A server as a child process: one JSON message a line on its stdin and stdout, plain text on stderr.

The server is ended in steps: its input closes, then SIGTERM, then SIGKILL, for it and all processes that it started.
`children` makes sure that it does not outlive us.
"""

import asyncio
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from spindle.base import limits
from spindle.base.strangers import MAX_BYTES, Patience, StrangerError
from spindle.plugins.mcp import McpError, Message
from spindle.plugins.mcp.connection import read_message
from spindle.plugins.mcp.server_config import ServerConfig
from spindle.programs import children
from spindle.programs.process import Process
from spindle.shapes.codec import encode

if TYPE_CHECKING:
    from spindle.workspace.area import Wanted
    from spindle.workspace.sandbox import Sandbox

_MOST_UNSENT: Final = 64 << 20
_ANSWER: Final = re.compile(rb'\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"id"\s*:\s*(\d{1,9})\b')
_PARSE_ERROR: Final = -32700
_REFUSED: Final = -32000
_MAX_ERRORS: Final = 8 * 1024
"""Bytes of stderr that are remembered."""


class PipeTransport:
    paired = False

    def __init__(
        self, config: ServerConfig, cwd: str, withheld: Collection[str], sandbox: "Wanted | None" = None
    ) -> None:
        """`config` is resolved; the server does not get the variables of `withheld`."""
        self._wanted = sandbox
        self._sandbox: Sandbox | None = None
        self._config = config
        self._cwd = cwd
        self._withheld = withheld
        self._process: Process | None = None
        self._rest: list[bytes] = []
        """Pieces of an unfinished line."""
        self._size = 0
        self._errors = bytearray()
        self._stray = ""
        """The last line on stdout that is not a message."""
        self._patience = Patience()
        self._ending = False
        self._calls: set[object] = set()
        """Calls of tools at work behind the gate of the sandbox."""
        self._said: list[str] = []
        """Remarks of the gate that no result has told yet."""
        self.receive: Callable[[Message], bool]
        self.closed: Callable[[str], None]

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def last_words(self) -> str:
        """Return the end of its stderr."""
        return self._errors.decode("utf-8", "replace").strip() or self._stray

    async def open(self) -> None:
        config = self._config
        cwd = os.path.join(self._cwd, config.cwd or "")
        command = config.command or ""
        if os.sep in command:
            command = os.path.join(cwd, command)
        try:
            env, fence = children.environment(self._withheld, config.env), None
            if self._wanted is not None:
                from spindle.workspace.area import SandboxError
                from spindle.workspace.sandbox import Sandbox

                try:
                    self._sandbox = Sandbox(self._wanted)
                except SandboxError as error:
                    raise McpError(str(error)) from None
                env, fence = self._sandbox.environment(env), self._sandbox.fence
            self._process = Process(
                [command, *config.args],
                cwd=cwd,
                env=env,
                fence=fence,
                on_output=self._read,
                on_errors=self._read_errors,
                hold_input=True,
                input=b"",
                on_hangup=self._hung_up,
                tied=True,
            )
        except (OSError, ValueError) as error:
            what = cwd if isinstance(error, OSError) and error.filename == cwd else config.command
            raise McpError(f"cannot be started: {getattr(error, 'strerror', None) or error}: {what}") from None
        self._process.on_end(self._ended)

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        if self._process is None or self._ending:
            raise McpError("it does not run")
        if self._sandbox is not None:
            self._watch(self._sandbox, message)
        self._process.write(encode(message) + b"\n")
        if self._process.unread > _MOST_UNSENT:
            self._give_up("it does not read what it is sent")

    def handshaken(self, version: str) -> None:
        """Do nothing: pipes do not depend on the version."""

    async def close(self) -> None:
        self._ending = True
        if self._process is None:
            return
        self._process.close_input()
        if not await self._process.ended(limits.MCP_STDIN_CLOSED):
            await self._process.stop(limits.MCP_TERMINATED)
        else:
            self._process.kill_rest()

    def _read(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest, self._size = [], 0
        if rest:
            self._rest.append(rest)
            self._size += len(rest)
            if self._size > MAX_BYTES:
                self._rest, self._size = [], 0
                self._give_up(f"it sent a message of more than {MAX_BYTES >> 20} MB")
        for line in lines:
            if self._ending:
                return
            try:
                self._take(line)
            except StrangerError as error:
                self._give_up(f"it sent {error}")

    def _take(self, line: bytes) -> None:
        """Raises `StrangerError` if the server is to be ended."""
        line = line.removeprefix(b"\xef\xbb\xbf").strip()
        if not line.startswith((b"{", b"[")):
            self._take_stray(line)
            return
        try:
            message: Any = read_message(line)
        except StrangerError as error:
            if found := _ANSWER.match(line):  # NaN, for example: end the wait for this answer
                failure = {"code": _PARSE_ERROR, "message": f"it sent {error}"}
                self.receive({"id": int(found[1]), "error": failure})
            elif b'"jsonrpc"' in line[:200] + line[-200:]:  # nobody knows which answer it is
                raise
            else:
                self._take_stray(line)
            return
        items = [item for item in message if isinstance(item, dict)] if isinstance(message, list) else [message]
        if sum(map(self._hand_on, items)) < len(items):
            self._patience.spend(len(line))

    # -- protected files ---------------------------------------------------------------------------

    def _watch(self, sandbox: "Sandbox", message: Message) -> None:
        """Have protected files compared around a call of a tool, as around a command."""
        if message.get("method") == "tools/call":
            self._calls.add(message["id"])
            self._said += sandbox.begin()
        elif message.get("method") == "notifications/cancelled":
            self._compare(message["params"].get("requestId"))

    def _compare(self, call: object) -> list[str]:
        if self._sandbox is None or not isinstance(call, int) or call not in self._calls:
            return []
        self._calls.remove(call)
        said, self._said = self._said + self._sandbox.finish(), []
        return said

    def _hand_on(self, message: Message) -> bool:
        if "method" not in message and (said := self._compare(message.get("id"))):
            result, text = message.get("result"), "\n".join(said)
            if isinstance(result, dict) and isinstance(content := result.get("content"), list):
                content.append({"type": "text", "text": text})
            else:
                message = {"id": message["id"], "error": {"code": _REFUSED, "message": text}}
        return self.receive(message)

    def _take_stray(self, line: bytes) -> None:
        """Remember the last line that is not a message: some servers print a banner on stdout."""
        if not line:
            return
        self._patience.spend(len(line))
        self._stray = line[:500].decode("utf-8", "replace")

    def _read_errors(self, data: bytes) -> None:
        self._errors += data
        if len(self._errors) > 2 * _MAX_ERRORS:
            del self._errors[:-_MAX_ERRORS]

    def _hung_up(self) -> None:
        """The server closed a pipe. Mostly it is about to end; if not, no answer can come any more, so end it."""
        asyncio.get_running_loop().call_later(limits.CHILD_LINGER, self._give_up, "it closed its stdin or stdout")

    def _give_up(self, reason: str) -> None:
        if self._ending:
            return
        self._ending = True
        if self._process is not None:
            self._process.kill()
        self.closed(reason)

    def _ended(self) -> None:
        assert self._process is not None
        for call in [*self._calls]:
            self._compare(call)
        if not self._ending:
            self._ending = True
            code = self._process.returncode
            self.closed(f"it ended with {f'exit code {code}' if code >= 0 else f'signal {-code}'}")
