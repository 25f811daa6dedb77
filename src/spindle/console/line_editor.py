"""The input on a terminal that cannot move its cursor: the system edits the line, and answers are lines too."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from spindle.console.attachments import Attachments, Entry
from spindle.console.look import Look
from spindle.console.question import Question
from spindle.flow import Mailbox

if TYPE_CHECKING:
    from spindle.console.talk import Talk


class LineEditor:
    """Has the methods of `Editor`."""

    def __init__(self, look: Look, talk: "Talk") -> None:
        self.entries: Mailbox[Entry] = Mailbox(sys.maxsize)
        self._look = look
        self._talk = talk
        self._read = b""
        self._lines = ""
        """Of a message that goes on: they ended with a backslash."""
        self._asked: tuple[Question, asyncio.Future[str | None]] | None = None
        self._one_at_a_time = asyncio.Lock()
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
            self.entries.close()

    def close(self) -> None:
        self._done.set()

    def write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone, and its input ends
            sys.stdout.write(("\n" if self._prompted else "") + self._look.signs(text))
            sys.stdout.flush()
        self._prompted = False

    def refresh(self) -> None:
        if not (self._talk.busy or self._asked or self._prompted):
            self.write("> ")
            self._prompted = True

    def put(self, text: str) -> None:
        self.write(f"{text}\n" if text else "")

    async def ask(self, question: Question) -> str | None:
        async with self._one_at_a_time:
            options = [f"  {number}. {option}" for number, option in enumerate(question.options, 1)]
            how = f" [{'/'.join(question.keys)}]" if question.keys else " [number]" if options else ""
            self.write("\n".join([question.title, *options, f"?{how} "]))
            answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            self._asked = question, answer
            try:
                return await answer
            finally:
                self._asked = None

    def _receive(self) -> None:
        data = b""
        with suppress(OSError):
            data = os.read(0, 65536)
        *lines, self._read = (self._read + data).split(b"\n")
        for line in lines:
            self._take(line.decode("utf-8", "replace").rstrip("\r"))
        if not data:
            self.close()

    def _take(self, line: str) -> None:
        self._prompted = False
        if self._asked is not None:
            self._settle(self._asked[0].read(line))
        elif line.endswith("\\"):
            self._lines += line[:-1] + "\n"
        else:
            text, self._lines = (self._lines + line).strip(), ""
            try:
                if text:
                    self.entries.put(Attachments().entry(text))
                    return
            except OSError as error:
                self._talk.view.fail(str(error))
            self.refresh()

    def _stop(self) -> None:
        if self._asked is not None or self._talk.busy:
            self._settle(None)
            self._talk.interrupt()
        else:
            self.close()

    def _settle(self, answer: str | None) -> None:
        if self._asked is not None and not self._asked[1].done():
            self._asked[1].set_result(answer)
