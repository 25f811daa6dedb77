"""Shell commands of the user (the `bash` command of the wire), not of the model: plain text, no time limit."""

import asyncio
import codecs
import re
from collections.abc import Callable
from typing import Protocol

from spindle.shapes.messages import Wire
from spindle.tools.truncate import OutputBuffer
from spindle.workspace import Running
from spindle.workspace.settings import ToolSettings

_ESCAPE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"  # the short ones
    # The same, cut off by the end of the text.
    r"|(?P<cut>(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*|\x1b\][^\x07\x1b]*\x1b?|\x1b[PX^_][^\x1b]*\x1b?|\x1b[ -/]*)\Z)"
)
_CONTROL = "[\x00-\x08\x0b-\x1f\ufff9-\ufffb]"
_LONGEST_ESCAPE = 4096
"""A sequence that is not closed within this many characters is not an escape sequence."""


class BashOutput(Wire, kw_only=True):
    output: str
    exit_code: int | None = None
    """None if the command was cancelled."""
    cancelled: bool
    truncated: bool
    full_output_path: str | None = None
    total_lines: int = 0
    total_bytes: int = 0
    output_lines: int = 0
    output_bytes: int = 0


class Pace(Protocol):
    """Tells whether the receivers of the output keep up with it."""

    @property
    def congested(self) -> bool:
        """Whether the receivers are behind."""

    async def room(self) -> None:
        """Return when they have caught up."""


async def run_user_bash(
    command: str,
    cwd: str,
    settings: ToolSettings,
    on_delta: Callable[[str], None] = lambda delta: None,
    pace: Pace | None = None,
) -> BashOutput:
    """Run `command` and return the end of its output; all of it goes to `on_delta` piece by piece.

    The command has to wait with its output while `pace` says so. Run this in its own task: cancelling the task kills
    the command, and the output so far is returned, marked `cancelled`. Raises `ToolError` only if the shell cannot
    be started.
    """
    buffer = OutputBuffer(settings.workspace.kept())
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    sanitizer = Sanitizer()
    pausing: asyncio.Task[None] | None = None

    def pass_on(clean: str) -> None:
        nonlocal pausing
        if not clean:
            return
        buffer.write(clean.encode())
        on_delta(clean)
        if process is not None and pace is not None and pace.congested and (pausing is None or pausing.done()):
            process.pause()
            pausing = asyncio.create_task(go_on(pace, process))

    async def go_on(pace: Pace, process: Running) -> None:
        await pace.room()
        process.resume()

    def take(data: bytes) -> None:
        pass_on(sanitizer.feed(decoder.decode(data)))

    process: Running | None = None
    exit_code: int | None = None
    try:
        process = await settings.workspace.shell(command, cwd, settings.variables, take, buffer.kept)
        exit_code = await process.wait()
    except asyncio.CancelledError:
        pass
    finally:
        pass_on(sanitizer.feed(decoder.decode(b"", True)) + sanitizer.flush())
        if pausing is not None:
            pausing.cancel()
        buffer.close()
    cut = buffer.truncated()
    sizes = {name: getattr(cut, name) for name in ("total_lines", "total_bytes", "output_lines", "output_bytes")}
    return BashOutput(
        output=cut.content,
        exit_code=exit_code,
        cancelled=exit_code is None,
        truncated=cut.truncated,
        full_output_path=buffer.path,
        **sizes,
    )


class Sanitizer:
    """Makes terminal output plain: no escape sequences, no control characters but tab and newline.

    It takes the text piece by piece; a sequence cut by the end of a piece waits for its rest."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        text, self._held = self._held + text, ""
        return re.sub(_CONTROL, "", re.sub(_ESCAPE, self._drop, text))

    def flush(self) -> str:
        """Return the text held back for the rest of a sequence that did not come."""
        text, self._held = self._held, ""
        return re.sub(_CONTROL, "", text)

    def _drop(self, escape: re.Match[str]) -> str:
        if escape["cut"] is not None:
            if len(escape[0]) > _LONGEST_ESCAPE:
                return escape[0]
            self._held = escape[0]
        return ""
