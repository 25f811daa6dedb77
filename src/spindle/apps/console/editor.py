"""Where the user types: a prompt that never takes over the screen. Printed text appears above it and stays there."""

import asyncio
import io
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import (
    Condition,
    FilterOrBool,
    completion_is_selected,
    has_completions,
    is_searching,
    vi_insert_mode,
    vi_navigation_mode,
)
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import DynamicKeyBindings, KeyBindings, KeyPress
from prompt_toolkit.key_binding.bindings.named_commands import get_by_name
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, Dimension, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor
from prompt_toolkit.widgets import SearchToolbar

from spindle.apps.console.clipboard import sequence
from spindle.apps.console.input import Input, Pressed, Question, comes_more, fitting
from spindle.apps.console.keybindings import EDITING, SLASH, ChosenKeys, read_keys
from spindle.apps.console.look import Look, clean
from spindle.apps.console.screen import Screen, ScreenOutput
from spindle.apps.text_editor import edited
from spindle.base.agent_dir import agent_dir
from spindle.base.terminal import unguarded

if TYPE_CHECKING:
    from spindle.apps.console.talk import Talk

_HISTORY_ENTRY = 20_000
"""Longer messages are remembered as they were typed, with marks for pasted texts."""
_TOO_SOON = 0.4
"""Seconds after a question appears in which a key does not answer it: the key was meant for the message."""
_WORD = 12
"""Letters of the longest text that is shown although it fits no option."""
_TWICE = 2.0
"""Seconds in which a second Ctrl-C leaves."""
_ESCAPE = 0.05
"""Seconds in which a key after Esc makes it Alt. A terminal sends both at once, even over a slow line."""
_DRAWN = 0.05
"""Seconds between two drawings at least; texts to print meanwhile are printed together."""
_TEXT_KEYS = (Keys.ControlM, Keys.ControlJ, Keys.ControlI)
"""Keys that occur in a pasted text, besides letters."""


_ALWAYS = ("enter", "escape", "c-c")
"""Keys that keep their meaning, so that nobody is locked out."""
_ARROWS = ("up", "down", "left", "right", "home", "end", "backspace", "delete")


def _editing(name: str) -> Callable[[KeyPressEvent], object]:
    """Return what a command of readline does, or a move between lines."""
    if name == "previous-line":
        return lambda event: event.current_buffer.auto_up(event.arg)
    if name == "next-line":
        return lambda event: event.current_buffer.auto_down(event.arg)
    if name == "undo":
        return lambda event: event.current_buffer.undo()
    return get_by_name(name).handler


class _Keys(Vt100Input):
    def read_keys(self) -> list[KeyPress]:
        """Return the keys that have come. Lines that come at once are a paste, even if the terminal does not say so.

        A paste has text before and behind an Enter. A user who types as fast, or over a slow connection, finds both
        lines in the input and presses Enter again.
        """
        keys = super().read_keys()
        text = "".join(key.data for key in keys)
        if re.search(r"\S\s*\r\s*\S", text) and all(len(key.key) == 1 or key.key in _TEXT_KEYS for key in keys):
            while comes_more(self.fileno()) and (more := super().read_keys()):
                text += "".join(key.data for key in more)
            keys = [KeyPress(Keys.BracketedPaste, text)]
        return keys


def _history(path: Path) -> History:
    """Return the messages of all chats; if their file cannot be written, those of this chat."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # others must not read it
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


class _AbovePrompt(io.TextIOBase):
    """Stands for stdout and stderr while the prompt is shown; works from any thread."""

    def __init__(self, editor: "LineEditor") -> None:
        self._editor = editor
        self._loop = asyncio.get_running_loop()

    def write(self, text: str) -> int:
        self._loop.call_soon_threadsafe(self._editor.write, clean(text))
        return len(text)


class LineEditor(Input):
    def __init__(self, look: Look, talk: "Talk", completer: Completer, history: Path) -> None:
        super().__init__(look, talk)
        self._shown_at: float | None = None
        """When the question was drawn."""
        self._stopped_at = float("-inf")
        """When Ctrl-C was last pressed while there was nothing to stop."""
        self._escaped_at = float("-inf")
        """The same of Esc."""
        self._closed = False
        self._buffer = Buffer(
            completer=completer, complete_while_typing=True, history=_history(history), tempfile_suffix=".md"
        )
        self._search = SearchToolbar()
        self.read_keys()
        hidden = ConditionalProcessor(PasswordProcessor(), Condition(lambda: self._is_hidden))
        self._control = BufferControl(
            self._buffer,
            search_buffer_control=self._search.control,
            preview_search=True,
            input_processors=[hidden],
        )
        """Shows the message that the user writes; during a question, a buffer for the answer."""
        # prompt_toolkit does not ask where the cursor is: that costs a round trip, and some terminals do not answer.
        self._output = ScreenOutput(
            unguarded(sys.stdout),
            lambda: Size(look.size()[1], look.width),
            term=os.environ.get("TERM"),
            enable_cpr=False,
        )
        self._app = Screen(
            input=_Keys(sys.stdin),
            layout=self._layout(),
            key_bindings=DynamicKeyBindings(lambda: self._bindings),
            editing_mode=EditingMode.VI if talk.settings.editing_mode == "vi" else EditingMode.EMACS,
            erase_when_done=True,
            min_redraw_interval=_DRAWN,
            before_render=lambda _: self._app.print(),
            output=self._output,
            terminal_size_polling_interval=None,  # a signal tells the new size
        )
        self._app.view = talk.view
        self._app.ttimeoutlen = _ESCAPE
        self._app.to_bottom()

    async def run(self) -> None:
        """Show the prompt until `close`."""
        if self._closed:  # a signal came early
            return
        above = _AbovePrompt(self)
        try:
            with redirect_stdout(above), redirect_stderr(above), suppress(EOFError):  # if the terminal is gone
                await self._app.run_async(set_exception_handler=False)
        finally:
            self._app.print()
            self._remember()  # a draft, if the user did not end the chat

    def close(self) -> None:
        self._closed = True
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def write(self, text: str) -> None:
        """Print above the prompt at the next drawing, so that new live lines never show before finished text."""
        self._app.unwritten += text
        if self._app.is_running:
            self.refresh()
        else:
            self._app.print()

    def clear(self) -> None:
        """Push everything up out of the window; the prompt stays at the bottom."""
        self.write("\n" * self._look.size()[1])

    def copy(self, text: str) -> bool:
        """Ask the terminal to copy a text; return that it was asked. It does not say whether it did."""
        self._output.write_raw(sequence(text))
        self._output.flush()
        return True

    def refresh(self) -> None:
        """Draw the prompt again soon."""
        self._app.invalidate()

    def put(self, text: str) -> None:
        """Put a text before the text that is being typed."""
        typed = self._buffer.text
        self._buffer.document = Document(self._folded(text) + (f"\n\n{typed}" if typed else ""))

    # -- questions -------------------------------------------------------------------------------

    async def edit(self, text: str, suffix: str) -> str:
        with set_app(self._app):  # whose screen the editor takes over
            return await run_in_terminal(lambda: edited(text, suffix), in_executor=True)

    def _begin(self, question: Question) -> None:
        """Ask in place of the input."""
        if not self._shown(question)[2]:  # the user must see the whole question
            options = question.options if question.keys else ()
            self._talk.view.say("\n".join([question.title, *options]), "yellow", kind="question")
        self._control.buffer = Buffer(document=Document(question.prefill), on_text_changed=self._typed)
        self._app.vi_state.reset()  # the first key is an answer, no command of vi
        self._shown_at = None
        self.refresh()

    def _end(self) -> None:
        self._control.buffer = self._buffer
        self.refresh()

    def _shown(self, question: Question) -> tuple[list[str], list[tuple[str, bool]], bool]:
        lines = self._look.size()[1]
        room = max(lines // 3, min(lines - 3, 8))  # besides the input, the status and an empty row
        return question.lines(self._control.buffer.text, self._talk.view.width, room)

    @property
    def _is_hidden(self) -> bool:
        """Whether what is typed is not shown: it is a secret, or may be a key that was pasted at a list."""
        question, text = self._question, self._control.buffer.text
        if question is None:
            return False
        return question.secret or bool(question.options and len(text) > _WORD and not fitting(question.options, text))

    @property
    def _too_soon(self) -> bool:
        return self._shown_at is None or time.monotonic() - self._shown_at < _TOO_SOON

    def _typed(self, _: Buffer) -> None:
        if self._question is not None:
            self._question.chosen = 0

    def _move(self, steps: int) -> None:
        if (question := self._question) is not None:
            last = len(fitting(question.options, self._control.buffer.text)) - 1
            question.chosen = max(0, min(question.chosen + steps, last))

    def _press(self, key: str) -> None:
        """Take a key that answers a question at once; ignore other keys."""
        if self._too_soon:
            self._buffer.insert_text(key)
        elif self._question is not None and key in self._question.keys:
            self._settle(self._question.keys.index(key))

    # -- drawing ---------------------------------------------------------------------------------

    def _layout(self) -> Layout:
        live, below = FormattedTextControl(self._above), FormattedTextControl(lambda: ANSI(self._talk.status()))
        above = Window(live, wrap_lines=True, dont_extend_height=True)
        text = Window(
            self._control,
            height=lambda: Dimension(min=1, max=max(1, self._look.size()[1] // 2)),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=self._prefix,
        )
        menu = CompletionsMenu(max_height=8, scroll_offset=1)
        status = Window(below, height=1, dont_extend_height=True)
        spare = Window(height=Dimension(min=0, preferred=0, weight=10))  # rows that were needed a moment ago
        return Layout(HSplit([above, text, menu, self._search, status, spare]), text)

    def _prefix(self, line: int, wrapped: int) -> str:
        sign = "? " if self._question else "❮ " if vi_navigation_mode() else "❯ "
        return self._look.signs(sign) if (line, wrapped) == (0, 0) else "  "

    def _above(self) -> ANSI:
        look, question = self._look, self._question
        if question is None:
            return ANSI(look.signs("\n".join(["", *self._talk.above()])))
        self._shown_at = self._shown_at or time.monotonic()
        title, options, _ = self._shown(question)
        lines = ["", *(look.paint(line, "bold", "yellow") for line in title)]
        lines += [look.paint(f"❯ {option}", "cyan") if chosen else f"  {option}" for option, chosen in options]
        return ANSI(look.signs("\n".join(lines)))

    # -- keys ------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        asking = Condition(lambda: self._question is not None)
        choosing = Condition(lambda: self._question is not None and bool(self._question.options))
        with_keys = Condition(lambda: self._question is not None and bool(self._question.keys))
        empty = Condition(lambda: not self._control.buffer.text)
        queue = Condition(lambda: bool(self._talk.queue))
        keys, chosen = KeyBindings(), self._chosen.keys
        rows: list[tuple[str, str | Keys, FilterOrBool, Callable[[KeyPressEvent], object]]] = [
            ("tui.input.submit", "enter", ~completion_is_selected & ~is_searching, lambda _: self._send(later=False)),
            ("", "enter", completion_is_selected, lambda event: setattr(event.current_buffer, "complete_state", None)),
            ("app.message.followUp", "escape enter", True, lambda _: self._send(later=True)),
            ("tui.input.newLine", "c-j", ~is_searching, lambda event: event.current_buffer.insert_text("\n")),
            ("app.interrupt", "escape", (~vi_insert_mode | asking) & ~is_searching, lambda _: self._escape()),
            ("app.clear", "c-c", ~is_searching, lambda _: self._stop()),
            ("", "<sigint>", True, lambda _: self._stop()),
            ("app.exit", "c-d", empty & ~is_searching, lambda _: self.close()),
            ("", "c-l", True, lambda _: self.clear()),
            ("app.suspend", "c-z", True, lambda _: self._suspend()),
            ("app.editor.external", "c-g", ~is_searching, lambda event: event.current_buffer.open_in_editor()),
            ("", "c-x c-e", ~is_searching, lambda event: event.current_buffer.open_in_editor()),
            ("", "v", vi_navigation_mode, lambda event: event.current_buffer.open_in_editor()),
            ("app.clipboard.pasteImage", "c-v", ~asking, self._paste_later),
            ("app.model.cycleForward", "c-p", ~asking, lambda _: self._talk.do(self._talk.next_model())),
            ("", "s-tab", ~asking & ~has_completions, lambda _: self._talk.do(self._talk.next_mode())),
            ("", Keys.CPRResponse, True, lambda _: self._app.answered()),
            ("", Keys.BracketedPaste, True, lambda event: self._paste(event.data)),
            ("app.tools.expand", "c-o", True, lambda _: self._talk.unfold("result")),
            ("app.thinking.toggle", "c-t", True, lambda _: self._talk.unfold("thoughts")),
            ("app.message.dequeue", "escape up", ~asking, lambda _: self._talk.do(self._talk.take_back())),
            ("", "up", queue & empty & ~asking & ~has_completions, lambda _: self._talk.do(self._talk.take_back())),
            ("tui.select.up", "up", choosing, lambda _: self._move(-1)),
            ("tui.select.down", "down", choosing, lambda _: self._move(1)),
            ("", Keys.Any, with_keys & empty, lambda event: self._press(event.data)),
        ]
        for id, key, when, run in rows:
            if id not in chosen or key in _ALWAYS:
                keys.add(*key.split(), filter=when)(run)
        rows += [(id, "", ~asking & ~is_searching, self._slash(text)) for id, text in SLASH.items()]
        rows += [("app.thinking.cycle", "", ~asking, lambda _: self._talk.do(self._talk.next_thinking()))]
        for id, _, when, run in rows:
            for key in chosen.get(id, ()):
                keys.add(*key.split(), filter=when)(run)
        for id, name in EDITING.items():
            for key in chosen.get(id, ()):
                if key not in _ARROWS:  # these do it anyway
                    keys.add(*key.split(), filter=~asking & ~is_searching & ~has_completions)(_editing(name))
        for key in ("c-i", "c-s", "c-o", "c-f", "c-r", "c-d"):  # the last binding of a key goes first
            keys.add(key, filter=self._acts(key))(lambda _, key=key: self._act(key))
        return keys

    def read_keys(self) -> ChosenKeys:
        self._chosen = read_keys(agent_dir())
        self._bindings = self._keys()
        return self._chosen

    def _slash(self, text: str) -> Callable[[KeyPressEvent], object]:
        return lambda _: self._talk.do(self._talk.enter(text))

    def _paste_later(self, event: KeyPressEvent) -> None:
        event.app.create_background_task(self._paste_picture())

    def _acts(self, key: str) -> Condition:
        return Condition(lambda: self._question is not None and key in self._question.actions)

    def _act(self, key: str) -> None:
        if (question := self._question) is not None:
            typed = self._control.buffer.text
            found = fitting(question.options, typed)
            self._settle(Pressed(key, found[question.chosen] if found else None, typed))

    def _send(self, *, later: bool) -> None:
        text, question = self._control.buffer.text, self._question
        if question is not None:
            if not question.options:
                self._settle(text)
            elif (found := fitting(question.options, text)) and not self._too_soon:
                self._settle(found[question.chosen])
        elif self._buffer.document.text_before_cursor.endswith("\\") and not later:
            self._buffer.delete_before_cursor(1)
            self._buffer.insert_text("\n")
        elif not text.strip():
            self._talk.do(self._talk.go_on())
        elif (sent := self._enter(text.strip(), later=later)) is not None:
            self._buffer.text = sent if len(sent) <= _HISTORY_ENTRY else text
            self._remember()

    def _remember(self) -> None:
        """Empty the input, and add its text to the history."""
        with suppress(OSError):  # the disk is full
            self._buffer.append_to_history()
        self._buffer.reset()
        self._app.vi_state.reset()

    def _escape(self) -> None:
        if self._control.buffer.complete_state:
            self._control.buffer.cancel_completion()
        elif not self._interrupt() and not self._buffer.text:
            if time.monotonic() - self._escaped_at < _TWICE:
                self._talk.do(self._talk.go_back())
            self._escaped_at = time.monotonic()

    def _stop(self) -> None:
        if self._interrupt():
            return
        if self._buffer.text:
            self._buffer.reset()
        elif time.monotonic() - self._stopped_at < _TWICE:
            self.close()
        else:
            self._stopped_at = time.monotonic()
            self._talk.view.say("Ctrl-C again, or Ctrl-D, to leave", "dim")

    def _suspend(self) -> None:
        self._talk.view.above = 0  # the screen may be different afterwards
        self._app.suspend_to_background()

    def _paste(self, text: str) -> None:
        self._control.buffer.insert_text(self._pasted(text) if self._question is None else text)

    async def _paste_picture(self) -> None:
        if (mark := await self._clipboard()) is None:
            self._talk.view.say("There is no picture in the clipboard", "dim")
        else:
            self._buffer.insert_text(mark)
