"""A terminal for the chat: the program on a pty, and pyte, which shows what a person would see."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

from tests.support.nursery import SPINDLE, Popen

WAIT_S = 20.0
PROMPT = "\n❯\n"
"""An empty input line with the status below it."""


class Terminal:
    """`spindle ARGUMENTS`, or another program, in an emulated terminal of its own."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        columns: int = 100,
        lines: int = 30,
        program: Sequence[str] = SPINDLE,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=10_000, ratio=0.001)
        self.screen.write_process_input = lambda data: os.write(self._fd, data.encode())  # where the cursor is
        self._stream = pyte.ByteStream(self.screen)
        self.output = b""
        """Everything it wrote."""
        self._fd, self._slave = pty.openpty()
        self._size(columns, lines)
        self.modes = termios.tcgetattr(self._slave)
        self._process = Popen(
            [*program, *arguments],
            terminal=True,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            cwd=cwd,
            env={"XTERM_VERSION": "pyte", **env},  # it does not break lines anew when it is resized, as xterm
        )
        self.pid = self._process.pid

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for fd in (self._fd, self._slave):
            if fd >= 0:
                os.close(fd)
        self._fd = self._slave = -1

    # -- what is seen ----------------------------------------------------------------------------

    def read_once(self, timeout: float = WAIT_S) -> bool:
        ready, _, _ = select.select([self._fd], [], [], timeout)
        if not ready:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        self.output += data
        self._stream.feed(data)
        return bool(data)

    @property
    def has_prompt(self) -> bool:
        return any(line.startswith("❯ ") for line in self.screen.display)

    @property
    def text(self) -> str:
        """The scrollback and the screen, as a person can scroll through them."""
        above = ["".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in [*above, *self.screen.display]).rstrip()

    def wait_for(self, *wanted: str, without: str | None = None) -> str:
        """Wait until all of this is to be seen at once (and `without` is not); return what is to be seen."""
        end = time.monotonic() + WAIT_S
        while True:
            text = self.text
            if all(part in text for part in wanted) and (without is None or without not in text):
                return text
            if time.monotonic() > end:
                raise AssertionError(f"waited for {wanted} without {without!r}; there is:\n{text}")
            self.read_once(0.1)

    def wait_output(self, wanted: bytes) -> None:
        end = time.monotonic() + WAIT_S
        while wanted not in self.output:
            assert time.monotonic() < end, self.output[-2000:]
            self.read_once(0.1)

    def quiet(self, seconds: float = 0.6) -> str:
        """Read for a while, so that what comes next is not too early for a question; return what is to be seen."""
        self.read_for(seconds)
        return self.text

    def read_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.read_once(left)

    # -- what is done ----------------------------------------------------------------------------

    def keys(self, text: str) -> None:
        self.write(text.encode())

    def write(self, data: bytes) -> int:
        return os.write(self._fd, data)

    def enter(self, text: str) -> None:
        """Type a line; Enter comes on its own, as from a person."""
        self.keys(text)
        if text:
            self.wait_for(text[-20:])
        self.keys("\r")

    def paste(self, text: str) -> None:
        data = f"\x1b[200~{text}\x1b[201~".encode()
        while data:
            written = os.write(self._fd, data[:2048])
            data = data[written:]
            self.read_once(0)

    def resize(self, columns: int, lines: int) -> None:
        self._size(columns, lines)
        row = self.screen.cursor.y - max(0, self.screen.lines - lines)
        self.screen.resize(lines, columns)  # takes rows away above, but leaves the cursor where it was
        self.screen.cursor.y = max(0, row)
        os.kill(self.pid, signal.SIGWINCH)

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait_exit(self) -> int:
        """Wait for its end and return the exit code."""
        end = time.monotonic() + WAIT_S
        while True:
            if self._process.poll() is not None:
                while self.read_once(0.05):
                    pass
                return int(self._process.returncode)
            assert time.monotonic() < end, f"it does not end; there is:\n{self.text}"
            self.read_once(0.05)

    def hang_up(self) -> int:
        """Close the terminal; return the program's exit code."""
        self._close()
        return int(self._process.wait())

    def is_restored(self) -> bool:
        """Whether the terminal echoes and edits lines again, as before."""
        return termios.tcgetattr(self._slave)[:4] == self.modes[:4]
