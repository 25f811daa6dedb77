"""Make terminal output plain: no escape sequences, no control characters but tab and newline."""

import re

__all__ = ["Sanitizer"]

_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"  # the short ones
    # The same, cut off by the end of the text.
    r"|(?P<cut>(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*|\x1b\][^\x07\x1b]*\x1b?|\x1b[PX^_][^\x1b]*\x1b?|\x1b[ -/]*)\Z)"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\ufff9-\ufffb]")
_LONGEST_ESCAPE = 4096
"""What is not closed within so many characters is no escape sequence."""


class Sanitizer:
    """Cleans a stream of text piece by piece; a sequence cut by the end of a piece waits for its rest."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        text, self._held = self._held + text, ""
        return _CONTROL.sub("", _ESCAPE.sub(self._drop, text))

    def flush(self) -> str:
        """Return what was held back for a rest that did not come."""
        text, self._held = self._held, ""
        return _CONTROL.sub("", text)

    def _drop(self, escape: re.Match[str]) -> str:
        if escape["cut"] is not None:
            if len(escape[0]) > _LONGEST_ESCAPE:
                return escape[0]
            self._held = escape[0]
        return ""
