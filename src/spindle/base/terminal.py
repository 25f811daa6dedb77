"""Text on a terminal. Models, files, servers and extensions may write codes that command it: none of them gets there.

`plain` is the one function that all foreign text passes. The standard streams call it themselves once they are guarded:
code that prints cannot forget it. Output that goes to a file or a pipe is left as it is.
"""

import io
import re
import sys
from typing import TextIO

CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
"""Control characters, and those that turn the direction of a text, so that it looks like another."""
_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC: titles, links, the clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c\n]*(?:\x1b\\|\x9c)?"  # DCS, SOS, APC, PM
    r"|\x1b[ -/]*[0-~]?"
    rf"|{CONTROL}"
)


def plain(text: str) -> str:
    """Take out everything that would move the cursor or change the terminal, and text that cannot be encoded."""
    if text.isprintable():
        return text
    text = re.sub(_SEQUENCE, "", text.replace("\r\n", "\n"))
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


class GuardedTerminal(io.TextIOWrapper):
    """A stream to a terminal that shows text and obeys no codes in it."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, "replace", newline="", write_through=True)
        self.unguarded = stream
        """For codes of our own."""

    def write(self, text: str) -> int:
        super().write(plain(text))
        if "\n" in text:
            self.flush()
        return len(text)

    def close(self) -> None:
        """Leave the terminal open: it belongs to the other stream."""
        if not self.closed:
            self.flush()


def guarded(stream: TextIO) -> TextIO:
    """Return a stream that shows plain text only if this one leads to a terminal, else the stream itself."""
    if isinstance(stream, io.TextIOWrapper) and not isinstance(stream, GuardedTerminal) and stream.isatty():
        return GuardedTerminal(stream)
    return stream


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream for codes of our own; foreign text in them must have passed `plain`."""
    return stream.unguarded if isinstance(stream, GuardedTerminal) else stream


def guard_output() -> None:
    """Guard stdout and stderr of this process."""
    sys.stdout, sys.stderr = guarded(sys.stdout), guarded(sys.stderr)
