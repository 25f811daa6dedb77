"""Our end of the pipe to a far side: starts the command that gives the pipe, sends the helper, carries calls.

A call is a task that waits for the frames with its id; any number wait at the same time. If the pipe breaks, all calls
fail with what is known about it, and the next call opens it again, with one try.
"""

import asyncio
import errno
import os
import re
import secrets
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct

from spindle.base import limits
from spindle.base.strangers import MAX_BYTES, Patience, StrangerError, require_bounds, shaped, words
from spindle.programs.process import Process
from spindle.workspace import Sink
from spindle.workspace.disk import ToolError
from spindle.workspace.frames import Decoder, FrameError, frame, parts, unpack

if TYPE_CHECKING:
    import tempfile

_MODULES: Final = (
    *("base.globs", "programs.search_path", "workspace.put_back", "workspace.rules_files", "workspace.texts"),
    *("workspace.disk", "workspace.replacing", "workspace.states", "workspace.frames", "workspace.search"),
    *("workspace.viewing", "workspace.helper"),
)
"""The helper, each module after those that it needs."""
_BOOT: Final = """
import os
def read(count):
 data = b""
 while len(data) < count:
  part = os.read(0, count - len(data))
  if not part:
   raise SystemExit(1)
  data += part
 return data
os.write(1, b"\\nMARK ready\\n")
exec(compile(read(int(read(10))), "spindle", "exec"), {})
"""
INHERITED: Final = "SPINDLE_EXEC"
"""A variable of the command, with the names of variables that look like secrets."""
_SECRET: Final = re.compile("key|token|secret|passw|credential|git_config_(count|value)", re.IGNORECASE)
"""Settings of git cross together or not at all, and a header with a token is one."""
CLEAN: Final = f"""
for name in ${INHERITED}; do unset "$name"; done
unset {INHERITED} name
"""
"""Drops what looks like a secret from an environment that is ours: `docker` and `ssh` hand nothing on, `bwrap` does."""
_SCRIPT: Final = """CLEAN
for python in python3 /usr/bin/python3 /usr/local/bin/python3 python; do
if command -v "$python" >/dev/null 2>&1 &&
"$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1; then
exec "$python" -I -X utf8 -c 'BOOT'
fi
done
echo; echo "MARK sh ${HOME:-/}:$(pwd)"; exit
"""
_MOST_NOISE: Final = 1 << 20
"""Bytes of greetings and warnings before the far side answers."""
_MOST_UNSENT: Final = 1 << 20
_KEPT_ERRORS: Final = 4096


class FarError(ToolError):
    """There is no pipe to the far side, or it broke."""


_Short = Annotated[str, Meta(max_length=4096)]


class FarFacts(Struct, frozen=True):
    """What is known about the far side."""

    cwd: _Short
    home: _Short = ""
    python: _Short = ""
    """Version; empty if there is none, so that only shell commands can be run."""
    rg: bool = False
    git: bool = False


@cache
def _source() -> bytes:
    """Return the helper as one program."""
    from spindle.workspace.helper import program

    package = Path(__file__).parents[1]
    texts = {f"spindle.{name}": (package / f"{name.replace('.', '/')}.py").read_text("utf-8") for name in _MODULES}
    return program(texts, "spindle.workspace.helper").encode()


class _Failure(Struct):
    """Why an operation failed there."""

    tool: str | None = None
    """The text of a `ToolError`."""
    code: str | None = None
    text: str | None = None
    path: str | None = None


class _FarCall:
    """A call that waits for its result."""

    def __init__(self, shape: Any, on_frame: Callable[[bytes, bytes], None] | None = None) -> None:
        """`shape`: what the result has to be."""
        self.shape = shape
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.data = bytearray()
        self.on_frame = on_frame
        """Gets the frames that are no result."""


class Pipe:
    def __init__(self, command: str, env: Mapping[str, str]) -> None:
        """`command` gives a pipe to a shell if `sh` is added to it; it gets the environment `env`.

        Raises `ToolError` if it is no command.
        """
        self.command = command
        try:
            self.words = [os.path.expanduser(word) for word in shlex.split(command)]
        except ValueError as error:
            raise FarError(f"`{command}` is no command: {error}") from None
        if not self.words:
            raise FarError("The command that leads to the far side is empty")
        withheld = (name for name in env if _SECRET.search(name) and name.isascii() and name.isidentifier())
        self.env = {**env, INHERITED: " ".join(withheld)}
        self.facts = FarFacts("")
        self.cwd = ""
        """The working directory of tools there."""
        self.root = ""
        """The folder whose states are kept: the repository that the working directory is in, or itself."""
        self.in_repository = False
        self.mirror: tempfile.TemporaryDirectory[str] | None = None
        """Has copies of the project's texts, below their paths there."""
        self._process: Process | None = None
        self._current: Process | None = None
        """The same, from its start on."""
        self._opening: asyncio.Task[None] | None = None
        self._calls: dict[int, _FarCall] = {}
        self._last = 0
        self._errors = bytearray()
        """The end of what the command has written to stderr."""
        self._noise = bytearray()
        """Output before the far side answers."""
        self._heard = 0.0
        self._beat: asyncio.TimerHandle | None = None
        self._closed = False
        self._why = ""
        """Why the last pipe broke."""
        self._asked = 0
        """Signs of life that were asked for and have not come."""
        self._patience = Patience()
        self._receive: Callable[[bytes], None] = lambda data: None

    # -- opening and ending ----------------------------------------------------------------------

    async def open(self) -> None:
        """Open the pipe, unless it is open. Raises `FarError`."""
        if self._closed:
            raise FarError(f"The pipe of `{self.command}` is closed")
        if self._process is not None or (self.facts.cwd and not self.facts.python):
            return
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="spindle-far-open")
            self._opening.add_done_callback(self._opened)
        await asyncio.shield(self._opening)

    def _opened(self, task: "asyncio.Task[None]") -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()

    async def _open(self) -> None:
        mark = f"spindle-{secrets.token_hex(8)}"
        boot = _BOOT.replace("MARK", mark)
        script = _SCRIPT.replace("BOOT", boot).replace("MARK", mark).replace("CLEAN", CLEAN, 1)
        self._errors.clear()
        self._noise.clear()
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._receive = lambda data: self._greet(data, mark.encode(), answered)
        process = self._current = self.start_words([*self.words, "sh"], self._take, self._take_errors)
        process.write(script.encode())
        process.on_end(lambda: self._gone(process, answered))
        try:
            async with asyncio.timeout(limits.FAR_START):
                said = await answered
                if said.startswith("sh "):
                    process.kill()
                    home, _, cwd = said[3:].strip().partition(":")
                    self.facts = FarFacts(cwd or "/", home)
                    return
                source = _source()
                hello = _FarCall(FarFacts)
                self._calls = {0: hello}
                decoder = Decoder()
                self._receive = lambda data: self._decode(process, decoder, data)
                process.write(b"%010d" % len(source) + source)
                self.facts = await hello.result
        except TimeoutError:
            process.kill()
            shown = self._shown_noise()
            raise FarError(f"`{self.command} sh` did not answer within {limits.FAR_START:g} s{shown}") from None
        except BaseException:
            process.kill()
            raise
        if self._current is not process:
            raise FarError(self._why)
        self._process = process
        self._heard = asyncio.get_running_loop().time()

    def start_words(self, words: list[str], on_output: Sink, on_errors: Sink | None) -> Process:
        """Start the command here. Raises `FarError`."""
        try:
            return Process(
                words,
                cwd=None,
                env=self.env,
                input=b"",
                hold_input=True,
                on_output=on_output,
                on_errors=on_errors,
            )
        except (OSError, ValueError) as error:
            why = "there is no such program" if isinstance(error, FileNotFoundError) else str(error)
            raise FarError(f"Cannot run `{words[0]}`: {why}. It is the command that leads to the far side") from None

    def _take(self, data: bytes) -> None:
        self._heard = asyncio.get_running_loop().time()
        self._receive(data)

    def _take_errors(self, data: bytes) -> None:
        self._errors += data
        del self._errors[:-_KEPT_ERRORS]

    def _greet(self, data: bytes, mark: bytes, answered: "asyncio.Future[str]") -> None:
        """Look for the first words of the far side, after whatever others have to say."""
        self._noise += data
        at = self._noise.find(b"\n" + mark + b" ")
        end = self._noise.find(b"\n", at + 1) if at >= 0 else -1
        if end >= 0 and not answered.done():
            answered.set_result(self._noise[at + len(mark) + 2 : end].decode("utf-8", "replace"))
        elif len(self._noise) > _MOST_NOISE and not answered.done():
            answered.set_exception(
                FarError(f"`{self.command} sh` floods its output and is no pipe to a shell{self._shown_noise()}")
            )

    def _shown_noise(self) -> str:
        text = bytes(self._noise[-500:]).decode("utf-8", "replace").strip()
        errors = bytes(self._errors[-500:]).decode("utf-8", "replace").strip()
        return "".join(f": {one}" for one in (text, errors) if one)

    def _gone(self, process: Process, answered: "asyncio.Future[str]") -> None:
        code = process.returncode
        why = f"`{self.words[0]}` ended with {f'exit code {code}' if code >= 0 else f'signal {-code}'}"
        errors = bytes(self._errors).decode("utf-8", "replace").strip()
        why += f": {errors[-500:]}" if errors else ""
        if not answered.done():
            answered.set_exception(FarError(f"No pipe to the far side: {why}"))
            answered.exception()
        self._break(process, why)

    def _break(self, process: Process, why: str) -> None:
        """End all calls: the pipe is gone."""
        if process is not self._current:
            return
        self._process = self._current = None
        process.kill()
        self._why = (
            f"The pipe to the far side (`{self.command}`) broke: {why}. Nobody knows how far this call "
            "came, and commands there were ended. The next call opens the pipe again"
        )
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.result.done():
                call.result.set_exception(FarError(self._why))
                call.result.exception()

    async def close(self) -> None:
        """End the helper, and with it all commands there that are not kept."""
        self._closed = True
        if self.mirror is not None:
            self.mirror.cleanup()
        if self._beat is not None:
            self._beat.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if (process := self._process) is not None:
            process.close_input()
            if not await process.ended(limits.CHILD_GRACE):
                process.kill()

    # -- frames ----------------------------------------------------------------------------------

    def _decode(self, process: Process, decoder: Decoder, data: bytes) -> None:
        try:
            for id, kind, content in decoder.feed(data):
                self._dispatch(id, kind, content)
                if process is not self._current:
                    return
        except StrangerError as error:
            self._break(process, f"it sent {error}")
        except FrameError as error:
            self._break(
                process, f"it does not carry our bytes as they are ({error}); it must not be a terminal (no -t)"
            )
        except Exception:  # every failure ends the calls that wait
            self._break(process, "it sent what cannot be taken here")

    def _dispatch(self, id: int, kind: bytes, content: bytes) -> None:
        """Give a frame to its call. Raises `StrangerError`, `FrameError`; then the pipe ends, and with it all calls."""
        call = self._calls.get(id)
        if kind == b"!" and self._asked:
            self._asked -= 1
        elif call is None:
            self.unwanted(content)
        elif kind == b"D":
            call.data += content
            if not content:
                self.unwanted(content)
            if len(call.data) > MAX_BYTES:
                raise StrangerError(f"more than {MAX_BYTES >> 20} MB with one result")
        elif kind in (b"R", b"H", b"F"):
            value = shaped(_value(content, call.data), _Failure if kind == b"F" else call.shape)
            del self._calls[id]
            if call.result.done():
                return
            if kind == b"F":
                call.result.set_exception(_error(value))
                call.result.exception()
            else:
                call.result.set_result(value)
        elif call.on_frame is not None:
            call.on_frame(kind, content)
        else:
            self.unwanted(content)

    def give_up(self, id: int, rest: float = limits.FAR_CALL) -> None:
        """Cancel a call. After so many seconds nobody wants what is still said about it."""
        self.order(id, b"X")
        asyncio.get_running_loop().call_later(rest, self._calls.pop, id, None)

    def unwanted(self, data: bytes) -> None:
        """Count what nobody waits for. Raises `StrangerError`."""
        self._patience.spend(len(data))

    async def begin(
        self, kind: bytes, request: Any, shape: Any, on_frame: Callable[[bytes, bytes], None] | None = None
    ) -> tuple[int, "asyncio.Future[Any]"]:
        """Send a call. Returns its id, and a future for its result, which has the `shape`. Raises `FarError`."""
        await self.open()
        if not self.facts.python:
            raise FarError(
                f"There is no Python 3.8 or newer on the far side (`{self.command}`), and this needs it: "
                "only bash works there. Use shell commands such as cat, sed, ls and grep"
            )
        if self._process is None:  # it broke in this very moment
            raise FarError(self._why)
        self._last = id = self._last % 0xFFFF_FFF0 + 1
        call = self._calls[id] = _FarCall(shape, on_frame)
        self._listen()
        try:
            await self._send(parts(id, kind, request))
        except asyncio.CancelledError:  # the helper has no more than a part of it, and forgets that
            self._calls.pop(id, None)
            self.order(id, b"X")
            raise
        return id, call.result

    async def _send(self, frames: Iterable[bytes]) -> None:
        for one in frames:
            if self._process is None:
                return  # the result says so
            self._process.write(one)
            while self._process is not None and self._process.unread > _MOST_UNSENT:  # noqa: ASYNC110 -- no event tells
                await asyncio.sleep(0.002)

    def order(self, id: int, kind: bytes) -> None:
        """Send an order about a call."""
        if self._process is not None:
            self._process.write(frame(id, kind))

    def _listen(self) -> None:
        """Look now and then whether the far side still says something, as long as calls wait for it."""
        if self._beat is None:
            loop = asyncio.get_running_loop()
            self._heard = loop.time()
            self._beat = loop.call_later(limits.FAR_BEAT, self._look)

    def _look(self) -> None:
        self._beat = None
        loop = asyncio.get_running_loop()
        if self._process is None or not self._calls:
            return
        if (silent := loop.time() - self._heard) > limits.FAR_SILENCE:
            self._break(self._process, f"no answer for {silent:.0f} s")
            return
        self._asked += 1
        self.order(0, b"?")
        self._beat = loop.call_later(limits.FAR_BEAT, self._look)


def _value(content: bytes, data: bytearray) -> Any:
    """Raises `StrangerError`."""
    require_bounds(content)
    try:
        return unpack(content, data)
    except (ValueError, TypeError, RecursionError):
        raise StrangerError("a result that is no JSON of ours") from None


def _error(found: _Failure) -> Exception:
    if found.tool is not None:
        return ToolError(words(found.tool))
    number = getattr(errno, found.code or "", None)
    text = words(found.text)
    return OSError(number, text, words(found.path) if found.path else None) if number else OSError(text)


async def waited(call: "asyncio.Future[Any]", cancel: Callable[[], None]) -> Any:
    """Wait for the result of a call that changes something; when cancelled, tell it, but wait for its end.

    Raises `TimeoutError`.
    """
    cancelled: asyncio.CancelledError | None = None
    loop = asyncio.get_running_loop()
    end = loop.time() + limits.FAR_CALL
    while not call.done():
        if loop.time() >= end:
            raise TimeoutError
        try:
            await asyncio.wait([call], timeout=end - loop.time())
        except asyncio.CancelledError as error:
            cancel()
            cancelled = error
    if cancelled is not None:
        with suppress(Exception):
            call.result()
        raise cancelled
    return call.result()
