"""Where the user types: a prompt at the bottom that never takes the screen, and a simpler one for dumb terminals.

Both give `entries`, ask questions in place, and print above themselves.
"""

import asyncio
import io
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from prompt_toolkit.application import Application, get_app, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, completion_is_selected, has_completions, vi_insert_mode
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings.open_in_editor import load_open_in_editor_bindings
from prompt_toolkit.key_binding.key_bindings import merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, Dimension, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.containers import AnyContainer
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from spindle.client import image_file
from spindle.console.look import Look, fit, rows
from spindle.console.question import Question
from spindle.flow import Mailbox

Json = dict[str, Any]

_LONG_PASTE = 10
"""More lines than this stand as one mark in the input."""
_HISTORY_ENTRY = 20_000
"""Longer messages are remembered as they were typed, with the marks of what was pasted."""
_TOO_SOON = 0.4
"""Seconds in which a key that answers a question does not count: it was meant for the text."""
_GATHER = 0.02
"""Seconds for which pieces to print are gathered."""
_TWICE = 2.0
"""Seconds in which a second Ctrl-C leaves."""
_PICTURE = re.compile(r"\.(png|jpe?g|gif|webp)$", re.IGNORECASE)
_CLIPBOARD = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_STYLE = Style.from_dict(
    {
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit",
        "completion-menu.completion.current": "noinherit reverse",
        "completion-menu.meta.completion": "noinherit dim",
        "completion-menu.meta.completion.current": "noinherit dim",
        "scrollbar.background": "noinherit",
        "scrollbar.button": "noinherit reverse",
    }
)


class Entry(NamedTuple):
    text: str
    images: list[Json]
    later: bool = False
    """To be sent when the run is over."""


class Host(Protocol):
    """What the editor shows of the chat, and tells it."""

    @property
    def busy(self) -> bool: ...

    def above(self) -> list[str]:
        """Return the painted lines to stand above the input."""

    def status(self) -> str:
        """Return the painted line below it."""

    def has_queue(self) -> bool: ...

    def interrupt(self) -> None: ...

    def take_back(self) -> None: ...

    def unfold(self, what: str) -> None: ...


class Attachments:
    """What stands as a mark in the input: long pastes and pictures."""

    def __init__(self) -> None:
        self._pastes: dict[str, str] = {}
        self._images: dict[str, Json] = {}

    def paste(self, text: str) -> str:
        """Return what to insert for a pasted text."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        path = _dropped_path(text)
        if path is not None and _PICTURE.search(path) and os.path.isfile(path):
            return self.image(os.path.basename(path), image_file(path))
        count = text.count("\n") + 1
        if count <= _LONG_PASTE and len(text) <= _HISTORY_ENTRY // 10:
            return text
        mark = f"[paste {len(self._pastes) + 1}: {count} lines]"
        self._pastes[mark] = text
        return mark

    def image(self, name: str, image: Json) -> str:
        mark = f"[image {len(self._images) + 1}: {name}]"
        self._images[mark] = image
        return mark

    def entry(self, text: str, later: bool = False) -> Entry:
        """Put the pastes back and collect the pictures, `@picture.png` too."""
        images = [image for mark, image in self._images.items() if mark in text]
        for name in re.findall(r"(?<!\S)@(\S+)", text):
            path = os.path.expanduser(name)
            if _PICTURE.search(path) and os.path.isfile(path):
                images.append(image_file(path))
        for mark, pasted in self._pastes.items():
            text = text.replace(mark, pasted)
        return Entry(text, images, later)


def _dropped_path(text: str) -> str | None:
    """Return the path that a terminal writes for a file dropped on it."""
    path = text.strip().strip("'\"").replace("\\ ", " ").removeprefix("file://")
    return os.path.expanduser(path) if path and "\n" not in path else None


class _Prompt(Application[None]):
    """Knows that most terminals break lines anew when they get narrower, and so move up what was drawn."""

    def _on_resize(self) -> None:
        width, screen, cursor = (
            self.output.get_size().columns,
            self.renderer.last_rendered_screen,
            self.renderer._cursor_pos,
        )
        if screen is not None and _reflows():
            ends = [
                max((x for x, cell in screen.data_buffer[y].items() if cell.char.strip()), default=0)
                for y in range(cursor.y)
            ]
            broken = sum(end // width for end in [*ends, cursor.x])
            self.renderer._cursor_pos = Point(x=cursor.x % width, y=cursor.y + broken)
        super()._on_resize()


def _reflows() -> bool:
    """Say whether this terminal breaks lines anew; those that do not tell who they are mostly do."""
    term = os.environ.get("TERM", "")
    return "XTERM_VERSION" not in os.environ and not term.startswith(("linux", "rxvt", "vt"))


class Editor:
    def __init__(self, look: Look, host: Host, completer: Completer, history: Path, vi: bool) -> None:
        self.entries: Mailbox[Entry] = Mailbox(sys.maxsize)
        self._look = look
        self._host = host
        self._attached = Attachments()
        self._question: Question | None = None
        self._answer: asyncio.Future[str | None] | None = None
        self._asked_at = 0.0
        self._one_at_a_time = asyncio.Lock()
        self._left_at = float("-inf")
        """When Ctrl-C was last pressed with nothing to stop."""
        self._buffer = Buffer(
            completer=completer,
            complete_while_typing=Condition(lambda: self._question is None),
            history=FileHistory(history),
            multiline=True,
            tempfile_suffix=".md",
            on_text_changed=self._typed,
        )
        size = lambda: Size(rows=look.height, columns=look.width)  # noqa: E731
        # Questions where the cursor is would cost a slow line a turn, and some terminals do not answer.
        self._output = Vt100_Output(sys.stdout, size, term=os.environ.get("TERM"), enable_cpr=False)
        self._app: Application[None] = _Prompt(
            layout=self._layout(),
            key_bindings=merge_key_bindings([load_open_in_editor_bindings(), self._keys()]),
            editing_mode=EditingMode.VI if vi else EditingMode.EMACS,
            style=_STYLE,
            erase_when_done=True,
            min_redraw_interval=0.04,
            output=self._output,
        )
        self._app.timeoutlen, self._app.ttimeoutlen = 0.3, 0.1
        self._unwritten = ""
        self._writing: asyncio.Future[None] | None = None

    # -- life ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Show the prompt until `close`. What anything prints meanwhile appears above it."""
        before = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = _Above(self)
        ticking = asyncio.create_task(self._tick())
        try:
            await self._app.run_async(set_exception_handler=False)
        except EOFError:
            pass  # the terminal is gone
        finally:
            ticking.cancel()
            sys.stdout, sys.stderr = before
            self._print()
            self.entries.close()

    def close(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    async def _tick(self) -> None:
        """Let the clock of what runs go on."""
        while True:
            await asyncio.sleep(0.2)
            if self._host.busy:
                self._app.invalidate()

    def write(self, text: str) -> None:
        """Print above the prompt. Pieces that come together are written together."""
        self._unwritten += text
        if self._app.is_running:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.ensure_future(self._write_soon())
        else:
            self._print()

    async def _write_soon(self) -> None:
        await asyncio.sleep(_GATHER)
        await run_in_terminal(self._print)

    def _print(self) -> None:
        text, self._unwritten = self._unwritten, ""
        self._output.write_raw(text.replace("\n", "\r\n"))
        self._output.flush()

    def refresh(self) -> None:
        self._app.invalidate()

    def put(self, text: str) -> None:
        """Put a text before what is being typed."""
        draft = self._buffer.text
        self._buffer.text = text + ("\n\n" + draft if draft else "")
        self._buffer.cursor_position = len(self._buffer.text)

    async def ask(self, question: Question) -> str | None:
        """Ask in place of the input; what was being typed comes back afterwards. None: no answer."""
        async with self._one_at_a_time:
            draft, self._question = self._buffer.document, question
            self._answer, self._asked_at = asyncio.get_running_loop().create_future(), time.monotonic()
            self._buffer.text = question.prefill
            self._buffer.cursor_position = len(question.prefill)
            self.refresh()
            try:
                return await self._answer
            finally:
                self._question = self._answer = None
                self._buffer.document = draft
                self.refresh()

    # -- what is drawn ---------------------------------------------------------------------------

    def _layout(self) -> Layout:
        search = SearchToolbar()
        control = BufferControl(self._buffer, search_buffer_control=search.control)
        text = Window(control, wrap_lines=True, dont_extend_height=True, get_line_prefix=self._prefix)
        parts: list[AnyContainer] = [
            Window(FormattedTextControl(self._above), dont_extend_height=True),
            text,
            CompletionsMenu(max_height=8, scroll_offset=1),
            search,
            Window(FormattedTextControl(lambda: ANSI(self._host.status())), height=1, dont_extend_height=True),
            Window(height=Dimension(min=0, preferred=0, weight=1000)),  # rows that were needed a moment ago
        ]
        return Layout(HSplit(parts), text)

    def _prefix(self, line: int, wrapped: int) -> str:
        sign = "? " if self._question else "❯ "
        return self._look.signs(sign) if (line, wrapped) == (0, 0) else "  "

    def _above(self) -> ANSI:
        look, question = self._look, self._question
        lines = [""]
        if question is None:
            lines += self._host.above()
        else:
            width = look.width - 1
            lines += [look.paint(row, "bold", "yellow") for row in rows(question.title, width)[-look.height // 2 :]]
            for text, chosen in question.lines():
                row = fit(f"{'❯' if chosen else ' '} {text}", width)
                lines.append(look.paint(row, "cyan") if chosen else row)
        return ANSI(look.signs("\n".join(lines)))

    def _typed(self, _: Buffer) -> None:
        if self._question is not None and self._question.options:
            self._question.typed, self._question.chosen = self._buffer.text, 0

    # -- keys ------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        asking = Condition(lambda: self._question is not None)
        choosing = Condition(lambda: self._question is not None and bool(self._question.options))
        queue = Condition(lambda: self._host.has_queue() and not self._buffer.text)
        hot = Condition(lambda: self._question is not None and bool(self._question.keys) and not self._buffer.text)

        @keys.add("enter", filter=~completion_is_selected & Condition(lambda: get_app().current_buffer is self._buffer))
        def send(event: KeyPressEvent) -> None:
            self._send(later=False)

        @keys.add("enter", filter=completion_is_selected)
        def take(event: KeyPressEvent) -> None:
            self._buffer.complete_state = None

        @keys.add("escape", "enter")
        def send_later(event: KeyPressEvent) -> None:
            self._send(later=True)

        @keys.add("c-j")
        def new_line(event: KeyPressEvent) -> None:
            self._buffer.insert_text("\n")

        @keys.add("escape", filter=~vi_insert_mode | asking)
        def escape(event: KeyPressEvent) -> None:
            if self._buffer.complete_state:
                self._buffer.cancel_completion()
            elif self._question is not None:
                self._settle(None)
            elif self._host.busy:
                self._host.interrupt()

        @keys.add("c-c")
        @keys.add("<sigint>")
        def stop(event: KeyPressEvent) -> None:
            self._stop()

        @keys.add("c-d", filter=Condition(lambda: not self._buffer.text))
        def leave(event: KeyPressEvent) -> None:
            self.close()

        @keys.add("c-z")
        def suspend(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        @keys.add("c-g")
        def edit(event: KeyPressEvent) -> None:
            self._buffer.open_in_editor()

        @keys.add("c-v", filter=~asking)
        def picture(event: KeyPressEvent) -> None:
            event.app.create_background_task(self._paste_picture())

        @keys.add(Keys.BracketedPaste)
        def paste(event: KeyPressEvent) -> None:
            self._buffer.insert_text(self._attached.paste(event.data) if self._question is None else event.data)

        @keys.add("c-o")
        def result(event: KeyPressEvent) -> None:
            self._host.unfold("result")

        @keys.add("c-t")
        def thoughts(event: KeyPressEvent) -> None:
            self._host.unfold("thoughts")

        @keys.add("escape", "up")
        @keys.add("up", filter=queue & ~asking & ~has_completions)
        def take_back(event: KeyPressEvent) -> None:
            self._host.take_back()

        @keys.add("up", filter=choosing)
        @keys.add("down", filter=choosing)
        def move(event: KeyPressEvent) -> None:
            assert self._question is not None
            self._question.move(-1 if event.key_sequence[0].key == Keys.Up else 1)

        @keys.add(Keys.Any, filter=hot)
        def answer(event: KeyPressEvent) -> None:
            question = self._question
            assert question is not None
            if event.data in question.keys and time.monotonic() - self._asked_at > _TOO_SOON:
                self._settle(question.options[question.keys[event.data]])

        return keys

    def _send(self, *, later: bool) -> None:
        text = self._buffer.text
        if self._question is not None:
            fitting = self._question.fitting()
            if not self._question.options:
                self._settle(text)
            elif fitting and time.monotonic() - self._asked_at > _TOO_SOON:
                self._settle(fitting[self._question.chosen])
        elif text.endswith("\\") and not later:
            self._buffer.delete_before_cursor(1)
            self._buffer.insert_text("\n")
        elif text.strip():
            entry = self._attached.entry(text.strip(), later)
            self._buffer.text = entry.text if len(entry.text) <= _HISTORY_ENTRY else text
            self._buffer.append_to_history()
            self._buffer.reset()
            self.entries.put(entry)

    def _settle(self, answer: str | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _stop(self) -> None:
        if self._question is not None:
            self._settle(None)
        if self._host.busy:
            self._host.interrupt()
        elif self._question is not None:
            return
        elif self._buffer.text:
            self._buffer.reset()
        elif time.monotonic() - self._left_at < _TWICE:
            self.close()
        else:
            self._left_at = time.monotonic()
            self.write(self._look.paint("Ctrl-C again, or Ctrl-D, to leave", "dim") + "\n")

    async def _paste_picture(self) -> None:
        from spindle.process import run

        for command in _CLIPBOARD:
            try:
                done = await run(command, timeout=5)
            except OSError:
                continue
            if done.code == 0 and done.output.startswith(b"\x89PNG"):
                import base64

                image = {"type": "image", "data": base64.b64encode(done.output).decode(), "mimeType": "image/png"}
                self._buffer.insert_text(self._attached.image("clipboard", image))
                return
        self.write(self._look.paint("There is no picture in the clipboard", "dim") + "\n")


class _Above(io.TextIOBase):
    """Stands for stdout and stderr while the prompt is shown; works from any thread."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._loop = asyncio.get_running_loop()

    def write(self, text: str) -> int:
        self._loop.call_soon_threadsafe(self._editor.write, text)
        return len(text)


class LineEditor:
    """The same for a terminal that cannot move its cursor: the system edits the line, answers are lines too."""

    def __init__(self, look: Look, host: Host) -> None:
        self.entries: Mailbox[Entry] = Mailbox(sys.maxsize)
        self._look = look
        self._host = host
        self._attached = Attachments()
        self._typed = b""
        self._lines = ""
        """Of a message that goes on: they ended with a backslash."""
        self._question: Question | None = None
        self._answer: asyncio.Future[str | None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._done = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(0, self._read)
        loop.add_signal_handler(signal.SIGINT, self._stop)
        try:
            self.refresh()
            await self._done.wait()
        finally:
            loop.remove_reader(0)
            self.entries.close()

    def close(self) -> None:
        self._done.set()

    def write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def refresh(self) -> None:
        if not self._host.busy and self._question is None:
            self.write("> ")

    def put(self, text: str) -> None:
        self.write(f"{self._look.signs(text)}\n")

    async def ask(self, question: Question) -> str | None:
        async with self._one_at_a_time:
            options = [f"  {number}. {option}" for number, option in enumerate(question.options, 1)]
            how = f" [{'/'.join(question.keys)}]" if question.keys else " [number]" if options else ""
            self.write(self._look.signs("\n".join([question.title, *options, f"?{how} "])))
            self._question, self._answer = question, asyncio.get_running_loop().create_future()
            try:
                return await self._answer
            finally:
                self._question = self._answer = None

    def _read(self) -> None:
        data = os.read(0, 65536)
        if not data:
            self.close()
            return
        *lines, self._typed = (self._typed + data).split(b"\n")
        for line in lines:
            self._line(line.decode("utf-8", "replace").rstrip("\r"))

    def _line(self, line: str) -> None:
        if self._question is not None and self._answer is not None:
            if not self._answer.done():
                self._answer.set_result(self._question.read(line))
        elif line.endswith("\\"):
            self._lines += line[:-1] + "\n"
        else:
            text, self._lines = self._lines + line, ""
            if text.strip():
                self.entries.put(self._attached.entry(text.strip()))
            else:
                self.refresh()

    def _stop(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
        elif self._host.busy:
            self._host.interrupt()
        else:
            self.close()


AnyEditor = Editor | LineEditor
