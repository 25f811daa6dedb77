"""What comes from the user on every terminal: answers, and messages in which pastes and pictures stand as marks."""

import asyncio
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from spindle.client import image_file
from spindle.console.look import Look
from spindle.console.question import Question
from spindle.flow import Mailbox

if TYPE_CHECKING:
    from spindle.console.talk import Talk

_LONG_LINES, _LONG_TEXT = 10, 2000
"""A paste with more stands as one mark in the input."""
_PICTURE = re.compile(r"\.(png|jpe?g|gif|webp)$", re.IGNORECASE)
_CLIPBOARDS = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)


class Entry(NamedTuple):
    """What the user has sent."""

    text: str
    images: list[dict[str, Any]]
    later: bool = False
    """To be delivered when the run is over."""


class Attachments:
    def __init__(self) -> None:
        self._pastes: dict[str, str] = {}
        self._images: dict[str, dict[str, Any]] = {}

    def paste(self, text: str) -> str:
        """Return what to insert for a pasted text, which may be the path of a picture that was dropped here."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        path = text.strip().strip("'\"").replace("\\ ", " ").removeprefix("file://")
        if _is_picture(path):
            return self._image(os.path.basename(path), image_file(os.path.expanduser(path)))
        count = len(text.splitlines())
        if count <= _LONG_LINES and len(text) <= _LONG_TEXT:
            return text
        mark = f"[paste {len(self._pastes) + 1}: {count} lines]"
        self._pastes[mark] = text
        return mark

    def folded(self, text: str) -> str:
        """Return a text that comes back, with the marks of what was pasted."""
        for mark, pasted in self._pastes.items():
            text = text.replace(pasted.strip(), mark)
        return text

    async def clipboard(self) -> str | None:
        """Return what to insert for a picture in the clipboard; None if there is none."""
        import base64

        from spindle.limits import CLIPBOARD
        from spindle.process import run

        for command in _CLIPBOARDS:
            try:
                png = (await run(command, timeout=CLIPBOARD)).output
            except OSError:
                continue
            if png.startswith(b"\x89PNG"):
                data = base64.b64encode(png).decode()
                return self._image("clipboard", {"type": "image", "data": data, "mimeType": "image/png"})
        return None

    def entry(self, text: str, later: bool) -> Entry:
        """Put the pastes back and collect the pictures, `@picture.png` too. Raises `OSError`."""
        images = [image for mark, image in self._images.items() if mark in text]
        named = [quoted or word for quoted, word in re.findall(r'(?<!\S)@(?:"([^"]+)"|(\S+))', text)]
        images += [image_file(os.path.expanduser(path)) for path in named if _is_picture(path)]
        for mark, pasted in self._pastes.items():
            text = text.replace(mark, pasted)
        return Entry(text, images, later)

    def _image(self, name: str, image: dict[str, Any]) -> str:
        mark = f"[image {len(self._images) + 1}: {name}]"
        self._images[mark] = image
        return mark


def _is_picture(path: str) -> bool:
    return bool(_PICTURE.search(path)) and os.path.isfile(os.path.expanduser(path))


class Input:
    """What the input is on every terminal: messages come from it, and it asks one question at a time."""

    def __init__(self, look: Look, talk: "Talk") -> None:
        self.entries: Mailbox[Entry] = Mailbox(sys.maxsize)
        self._look = look
        self._talk = talk
        self._attached = Attachments()
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

    def _begin(self, question: Question) -> None:
        """Show it."""
        raise NotImplementedError

    def _end(self) -> None:
        """Go on with what was before."""

    def _settle(self, answer: Any) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _enter(self, text: str, *, later: bool = False) -> Entry | None:
        """Send a message; None if something that it names cannot be read."""
        try:
            entry = self._attached.entry(text, later)
        except OSError as error:
            self._talk.view.fail(str(error))
            return None
        self.entries.put(entry)
        return entry

    def _interrupt(self) -> bool:
        """Stop what goes on; return whether anything did."""
        going_on = self._question is not None or self._talk.busy
        self._settle(None)
        self._talk.interrupt()
        return going_on
