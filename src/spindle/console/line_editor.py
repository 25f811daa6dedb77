"""The input on a terminal that cannot move its cursor: the system edits the line, and answers are lines too."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from spindle.console.input import Input
from spindle.console.look import Look
from spindle.console.question import Question

if TYPE_CHECKING:
    from spindle.console.talk import Talk


class LineEditor(Input):
    """Has the methods of `Editor`."""

    def __init__(self, look: Look, talk: "Talk") -> None:
        super().__init__(look, talk)
        self._read = b""
        self._lines = ""
        """Of a message that goes on: they ended with a backslash."""
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
        if not (self._talk.busy or self._question or self._prompted):
            self.write("> ")
            self._prompted = True

    def put(self, text: str) -> None:
        self.write(f"{text}\n" if text else "")

    def _stop(self) -> None:
        if not self._interrupt():
            self.close()

    def _begin(self, question: Question) -> None:
        options = [f"  {number}. {option}" for number, option in enumerate(question.options, 1)]
        how = f" [{'/'.join(question.keys)}]" if question.keys else " [number]" if options else ""
        self.write("\n".join([question.title, *options, f"?{how} "]))

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
        if self._question is not None:
            self._settle(self._question.read(line))
        elif line.endswith("\\"):
            self._lines += line[:-1] + "\n"
        else:
            text, self._lines = (self._lines + line).strip(), ""
            if not text or self._enter(text) is None:
                self.refresh()
