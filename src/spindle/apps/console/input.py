"""Input of the user on every terminal: answers, and messages in which marks stand for pastes and pictures.

`LineInput` is for a terminal that cannot move its cursor. There the system edits the line, and answers are lines too.
"""

import asyncio
import base64
import os
import re
import select
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from spindle.apps.console import clipboard
from spindle.apps.console.keybindings import ChosenKeys
from spindle.apps.console.look import Look, clean, fit, one_line, rows, visible
from spindle.apps.text_editor import edited
from spindle.client import image_file

if TYPE_CHECKING:
    from spindle.apps.console.talk import Talk

_LONG_LINES, _LONG_TEXT = 10, 2000
"""Lines and characters; a longer paste stands as a mark in the input."""
_PICTURE = re.compile(r"\.(png|jpe?g|gif|webp)$", re.IGNORECASE)
_NAMED = re.compile(r'(?<!\S)@(?:"([^"]+)"|(\S+))')
_PASTED = 0.03
"""Seconds in which the next piece of a paste comes."""


def comes_more(fd: int) -> bool:
    return bool(select.select([fd], [], [], _PASTED)[0])


def fitting(options: Iterable[str], typed: str) -> list[int]:
    """Return the numbers of the options that have every typed word."""
    words = typed.lower().split()
    return [at for at, option in enumerate(options) if all(word in option.lower() for word in words)]


class Pressed(NamedTuple):
    """An answer: a key that does something with the list."""

    key: str
    at: int | None
    """The option that was marked; None: nothing fitted."""
    typed: str


@dataclass
class Question:
    title: str
    options: Sequence[str] = ()
    """If there are any, the answer is the number of an option, else a text."""
    keys: str = ""
    """A key for each option, which chooses it at once."""
    prefill: str = ""
    secret: bool = False
    """Whether the typed text is a key or a password, which is not shown."""
    actions: tuple[str, ...] = ()
    """Keys that end the question with `Pressed`."""
    chosen: int = 0
    """The option that Enter takes, of those that fit the typed text."""

    @classmethod
    def of(cls, request: dict[str, Any]) -> "Question":
        """Make a question of an `extension_ui_request`."""
        title = visible(request.get("title") or "").strip()
        match request["method"]:
            case "confirm":
                message = visible(request.get("message") or "").strip()
                return cls(f"{title}\n{message}".strip(), ["Yes", "No"], "yn")
            case "select":
                options = [one_line(str(option)) for option in request.get("options") or ()]
                return cls(title, options)
        hint = f" ({one_line(request['placeholder'])})" if request.get("placeholder") else ""
        return cls(title + hint, prefill=clean(request.get("prefill") or ""))

    def lines(self, typed: str, width: int, room: int) -> tuple[list[str], list[tuple[str, bool]], bool]:
        """Return rows of the title, options with whether each is the chosen one, and whether nothing is hidden.

        A window that is too small hides rows of the title and ends of options.
        """
        found, title = fitting(self.options, typed), rows(self.title[: width * (room + 1)], width)
        most = len(self.keys) or max(2, min(10, room - len(title) - 1))
        first = max(0, min(self.chosen - most // 2, len(found) - most))
        keys = [f"{key}  " for key in self.keys] or [""] * len(self.options)
        options = [(keys[at] + self.options[at], at == found[self.chosen]) for at in found[first : first + most]]
        hidden = len(found) - len(options)
        if self.options and (hidden or not options):
            options.append((f"… {hidden} more: arrows, or type to search" if hidden else "(nothing fits)", False))
        used = sum(len(rows(option, width - 2)) for option, _ in options) if self.keys else len(options)
        whole = len(title) + used <= room
        if not whole:
            keep = max(1, room - len(options))
            cut = ["… (all of it stands above)"] if keep > 1 else [f"{fit(title[0], width - 2)} …"]
            title[keep - 1 :] = cut if len(title) > keep else title[keep - 1 :]
        if not whole or not self.keys:
            options = [(fit(option, width - 2), chosen) for option, chosen in options]
        return title, options, whole

    def read(self, line: str) -> int | str | None:
        """Return the answer that a line gives; None if it is none of the options."""
        word = line.strip()
        if not self.options:
            return word
        if word.isdecimal():
            return int(word) - 1 if 0 < int(word) <= len(self.options) else None
        key = word if word in self.keys else word[:1].lower()  # yes, always, no
        return self.keys.index(key) if key and key in self.keys else None


class Input:
    """The input on every terminal: it sends messages, and asks one question at a time."""

    def __init__(self, look: Look, talk: "Talk") -> None:
        self._look = look
        self._talk = talk
        self._pastes: dict[str, str] = {}
        """Pasted texts, by the marks that stand for them; `_images` has the pictures."""
        self._images: dict[str, dict[str, Any]] = {}
        self._question: Question | None = None
        self._answer: asyncio.Future[Any] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, question: Question) -> Any:
        """Return a text, or the number of an option; None if there is no answer."""
        async with self._one_at_a_time:
            self._answer, self._question = asyncio.get_running_loop().create_future(), question
            self._begin(question)
            try:
                return await self._answer
            finally:
                self._question = None
                self._end()

    async def edit(self, text: str, suffix: str) -> str:
        """Let the user edit a text in the editor of their choice; return it as they left it."""
        return await asyncio.to_thread(edited, text, suffix)

    def read_keys(self) -> ChosenKeys:
        """Read the keys of the user again, and return them."""
        return ChosenKeys()

    def _begin(self, question: Question) -> None:
        """Show the question."""
        raise NotImplementedError

    def _end(self) -> None:
        """Go back to the message."""

    def _settle(self, answer: Any) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _enter(self, text: str, *, later: bool = False) -> str | None:
        """Send a message and return it, with pastes and pictures in place of their marks.

        None if a picture that it names cannot be read. `later`: to be delivered when the run is over.
        """
        images = [image for mark, image in self._images.items() if mark in text]
        named = [quoted or word for quoted, word in _NAMED.findall(text)]
        try:
            images += [image_file(os.path.expanduser(path)) for path in named if _is_picture(path)]
        except OSError as error:
            self._talk.view.fail(str(error))
            return None
        for mark, pasted in self._pastes.items():
            text = text.replace(mark, pasted)
        self._talk.do(self._talk.enter(text, images, later=later))
        return text

    def _interrupt(self) -> bool:
        """Leave a question without an answer, or stop the agent's work; return whether there was either."""
        if self._question is not None:
            self._settle(None)
            return True
        self._talk.do(self._talk.interrupt())
        return self._talk.busy

    def _pasted(self, text: str) -> str:
        """Return the text or mark for a paste, which may be the path of a picture that was dropped here."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        path = text.strip().strip("'\"").replace("\\ ", " ").removeprefix("file://")
        with suppress(OSError):  # a picture that cannot be read is a text
            if _is_picture(path):
                return self._image(os.path.basename(path), image_file(os.path.expanduser(path)))
        count = len(text.splitlines())
        if count <= _LONG_LINES and len(text) <= _LONG_TEXT:
            return text
        mark = f"[paste {len(self._pastes) + 1}: {count} lines]"
        self._pastes[mark] = text
        return mark

    def _folded(self, text: str) -> str:
        """Return a text that comes back into the input, with marks for pasted texts."""
        for mark, pasted in self._pastes.items():
            text = text.replace(pasted.strip(), mark)
        return text

    async def _clipboard(self) -> str | None:
        """Return the mark for a picture in the clipboard; None if there is none."""
        if (png := await clipboard.picture()) is None:
            return None
        data = base64.b64encode(png).decode()
        return self._image("clipboard", {"type": "image", "data": data, "mimeType": "image/png"})

    def _image(self, name: str, image: dict[str, Any]) -> str:
        mark = f"[image {len(self._images) + 1}: {name}]"
        self._images[mark] = image
        return mark


def _is_picture(path: str) -> bool:
    return bool(_PICTURE.search(path)) and os.path.isfile(os.path.expanduser(path))


class LineInput(Input):
    """Has the methods of `Editor`."""

    def __init__(self, look: Look, talk: "Talk") -> None:
        super().__init__(look, talk)
        self._lines = ""
        """Lines of a message that goes on, because they ended with a backslash."""
        self._prompted = False
        self._done = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(0, self._receive)
        loop.add_signal_handler(signal.SIGINT, self._stop)
        try:
            self.refresh()
            await self._done.wait()
        finally:
            loop.remove_reader(0)
            self.write("")  # after the prompt

    def close(self) -> None:
        self._done.set()

    def write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone, and its input ends
            sys.stdout.write(("\n" if self._prompted else "") + self._look.signs(text))
            sys.stdout.flush()
        self._prompted = False

    def refresh(self) -> None:
        if not (self._talk.busy or self._question or self._prompted):
            self.write("> ")
            self._prompted = True

    def put(self, text: str) -> None:
        self.write(f"{text}\n" if text else "")

    def _stop(self) -> None:
        if not self._interrupt():
            self.close()

    def clear(self) -> None:
        """Do nothing: there is no screen to clear."""

    def copy(self, text: str) -> bool:
        """Say that the terminal cannot be asked to copy."""
        return False

    def _begin(self, question: Question) -> None:
        options = [f"  {number}. {option}" for number, option in enumerate(question.options, 1)]
        how = f" [{'/'.join(question.keys)}]" if question.keys else " [number]" if options else ""
        self.write("\n".join([question.title, *options, f"?{how} "]))

    def _receive(self) -> None:
        """Read a line of input; lines that come at once are a paste, and one message."""
        line = ""
        with suppress(OSError):
            line = os.read(0, 65536).decode("utf-8", "replace")
            while line and self._question is None and not self._done.is_set() and comes_more(0):
                more = os.read(0, 65536).decode("utf-8", "replace")
                line += more
                if not more:
                    self.close()
        if not line:
            self.close()
            return
        self._prompted = False
        if self._question is not None:
            self._settle(self._question.read(line))
            return
        self._lines += line.rstrip("\r\n")
        if self._lines.endswith("\\"):
            self._lines = self._lines[:-1] + "\n"
            return
        text, self._lines = self._lines.strip(), ""
        if not text:
            self._talk.do(self._talk.go_on())
        if not text or self._enter(text) is None:
            self.refresh()
