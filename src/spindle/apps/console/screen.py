"""The part of the screen that is drawn again and again: below the text that was printed, which stays.

It is erased before text is printed and drawn below it, and it survives resizes, also over slow lines.
"""

import asyncio
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.cells import cell_len

from spindle.apps.console.look import clean

if TYPE_CHECKING:
    from spindle.apps.console.view import View

_SETTLED = 0.3
"""Seconds after which a new size counts as the last one; tmux reports the next one up to 0.25 late."""
_SLOW = 0.15
"""Seconds after which an answer of the terminal is late: drawings for another size may have met it meanwhile."""
_NO_ANSWER = 1.0
"""Seconds after which a terminal is taken for one that does not answer."""
_ROOM = 4
"""Rows that stay free for the prompt when the screen is filled."""
_KEPT = 30_000
"""Characters of printed text that are kept, to fill the screen with."""


class Screen(Application[None]):
    """Allows for terminals that wrap lines again when they get narrower, as most do: the rows drawn before move up.

    Nothing is drawn while the size still changes: a drawing for one size that arrives at the next would erase lines
    that are not ours. Over a slow line that cannot be prevented. So the terminal is asked for a sign that it has drawn
    everything; if that comes late, the whole screen is drawn again.
    """

    view: "View"
    output: "ScreenOutput"
    unwritten = ""
    """Text to print above the prompt at the next drawing."""
    _printed = ""
    """Text that was printed above the prompt in this drawing."""
    _shown = ""
    """The end of everything that was printed."""
    _settling: asyncio.TimerHandle | None = None
    """Runs while the size may still change, and until the terminal has answered."""
    _asked: int = 0
    """Questions that the terminal has not answered."""
    _asked_at = 0.0
    """When the first of them was asked."""
    _answers = True
    """Whether the terminal answers, as far as we know."""

    @property
    def timeoutlen(self) -> float:
        """Seconds to wait for the next of several keys: a person's time for Ctrl-X Ctrl-E, but none after Esc."""
        keys = self.key_processor.key_buffer
        return 0.0 if keys and keys[0].key == Keys.Escape else 1.0

    @timeoutlen.setter
    def timeoutlen(self, _: float) -> None:
        """Ignore the default that prompt_toolkit sets."""

    def _on_resize(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(_SETTLED, self._ask)

    def _ask(self) -> None:
        """Ask the terminal where the cursor is: it answers when it has drawn everything before the question."""
        self._settling = None
        if self._is_running and not self._running_in_terminal:  # else the screen is another program's
            self._asked_at = self._asked_at if self._asked else time.monotonic()
            self._asked += 1
            self.output.ask_for_cpr()
            self.output.flush()
            wait = _NO_ANSWER if self._answers else 0
            self._settling = asyncio.get_running_loop().call_later(wait, self._unanswered)

    def _unanswered(self) -> None:
        self._answers = False
        self._resized()

    def answered(self) -> None:
        """Note that the terminal has drawn everything that was written before its last question."""
        self._answers = True
        self._asked = max(0, self._asked - 1)
        waits = self._settling is not None
        late = time.monotonic() - self._asked_at > _SLOW
        if not self._asked and (waits or late):
            if self._settling is not None:
                self._settling.cancel()
            self._resized(late=late)

    def _resized(self, *, late: bool = False) -> None:
        self._settling = None
        if self._is_running and not self._running_in_terminal:
            if late:
                self._fill_screen()
                super()._on_resize()
                return
            self._find_cursor()
            self.renderer.erase(leave_alternate_screen=False)
            if self.view.above < self.view.enough // 4:  # the next change might take more rows
                self.to_bottom()
            super()._on_resize()

    def _fill_screen(self) -> None:
        """Erase the screen and print the end of the text again. Rows that went to the scrollback stay there."""
        columns, lines = self.output.get_size().columns, self.output.get_size().rows
        shown, used = list[str](), 0
        for line in reversed(self._shown.split("\n")[:-1]):
            used += max(1, -(-cell_len(clean(line)) // columns))
            if used > lines - _ROOM:
                break
            shown.insert(0, line)
        self.renderer.reset(leave_alternate_screen=False)
        # Row by row: tmux keeps a copy of a screen that is erased at once.
        self.output.write_raw("\x1b[0m\x1b[H" + "\x1b[2K\x1b[B" * (lines - 1) + "\x1b[2K\x1b[H")
        self.output.write_raw("".join(f"{line}\r\n" for line in shown))
        self.view.above = min(used, self.view.enough)

    def to_bottom(self) -> None:
        """Put the prompt at the bottom.

        A terminal that gets narrower wraps the drawn lines into more rows. tmux takes these rows from the text above,
        even if rows below are empty; if there are too few, rows of the prompt get into the scrollback for good.
        """
        self.output.erase_down()
        self.output.cursor_down(self.output.get_size().rows)
        self.view.above = self.view.enough

    def _redraw(self, render_as_done: bool = False) -> None:
        size, before = self.output.get_size(), vars(self.renderer).copy()
        if render_as_done:
            self._find_cursor()
        elif self._settling is None and self.renderer._last_size not in (None, size):
            self._on_resize()  # the signal for it is still on the way
        if render_as_done:
            super()._redraw(render_as_done)
        elif self._settling is None:
            self.output.held, self.output.shortened, self._printed = True, False, ""
            super()._redraw()
            if self.output.shortened:
                self._undo(before)
                self.renderer.erase()
                super()._redraw()
            if size != self.output.get_size():
                self._undo(before)
                self._on_resize()
            self.output.held = False
            self.output.flush()

    def _undo(self, before: dict[str, Any]) -> None:
        """Forget a drawing that was not written yet."""
        self.output._buffer.clear()
        vars(self.renderer).update(before)
        self._shown = self._shown[: len(self._shown) - len(self._printed)]
        self.unwritten, self._printed = self._printed + self.unwritten, ""

    def print(self) -> None:
        # Not `run_in_terminal`: with that, the terminal itself echoes and reads control keys for a moment.
        if self.unwritten:
            self.renderer.erase()
            self._printed, self.unwritten = self.unwritten, ""
            self._shown = self._shown[-_KEPT:] + self._printed
            self.output.write_raw(self._printed.replace("\n", "\r\n"))
            self.output.flush()

    def _find_cursor(self) -> None:
        width, screen = self.output.get_size().columns, self.renderer.last_rendered_screen
        stays = "XTERM_VERSION" in os.environ or os.environ.get("TERM", "").startswith(("linux", "rxvt", "vt"))
        if screen is not None and not stays:
            drawn = [screen.data_buffer[y] for y in range(screen.height)]
            ends = [max((x for x, cell in row.items() if cell.char.strip()), default=0) for row in drawn]
            more = [end // width for end in ends]
            x, y = self.renderer._cursor_pos
            self.renderer._cursor_pos = Point(x=x % width, y=y + sum(more[:y]) + x // width)
            self.view.above -= sum(more)


class ScreenOutput(Vt100_Output):
    held = False
    """Whether output waits: erasing, printing and drawing are written together, so that the prompt never flickers."""
    shortened = False
    """Whether the end of a line would have been erased."""

    def erase_down(self) -> None:
        # Not from the upper left corner: tmux would take it for the end of a screen, and keep a copy.
        self.write_raw("\x1b7\x1b[K\x1b[B\r\x1b[J\x1b8")

    def erase_end_of_line(self) -> None:
        """Ask for a new drawing: tmux counts the erased ends when it wraps lines again, other terminals do not."""
        self.shortened = True

    def disable_autowrap(self) -> None:
        """Leave it on: lines for a terminal that is narrower by now have to take as many rows as we count for them."""

    def flush(self) -> None:
        with suppress(OSError):  # the terminal is gone, and its input ends
            if not self.held:
                super().flush()
