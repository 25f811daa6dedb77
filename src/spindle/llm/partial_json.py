"""Arguments of a tool call while the model is still writing them.

`PartialJson` takes the raw pieces and gives the value that can be read from them so far. Pieces are only kept
until the value is asked for; the scanner then goes on where it stopped, so n pieces cost n however often it is
asked for, and the value itself is built by the C decoder from a completed copy of the text.
"""

import re
from typing import Any, Final

from spindle.shapes.codec import DecodeError, decode

# Where the scanner stands.
_ITEM: Final = 0  # a member, an element, the whole value, or a closing bracket
_NEXT: Final = 1  # behind an item: a comma (a missing one is forgiven) or a closing bracket
_COLON: Final = 2
_VALUE: Final = 3  # behind a colon
_STRING: Final = 4
_ATOM: Final = 5  # inside a number, true, false, null
_END: Final = 6  # complete, or beyond repair: the rest is ignored

_SPACE = re.compile(r"[ \t\n\r]*")
_GOOD_RUN = re.compile(r'(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_ATOM_RUN = re.compile(r"[-+.0-9A-Za-z]*")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS = {"true": "true", "false": "false", "null": "null", "NaN": "null", "Infinity": "null", "-Infinity": "null"}
_MAX_DEPTH = 500  # deeper than any real call, shallower than what the decoder's recursion survives
_STALE: Any = object()


class PartialJson:
    """JSON text that grows piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._scanned = 0
        """How many of the pieces the scanner has seen."""
        self._value: Any = _STALE

        self._state = _ITEM
        self._closers: list[str] = []
        """Closing brackets of open objects and arrays, outermost first."""
        self._out: list[str] = []
        """The text so far as strict JSON; with the closers appended it is always complete."""
        self._key: str | None = None
        """A member's name that waits for its value."""
        self._atom = ""
        self._string: list[str] = []
        """The string being read, already repaired."""
        self._escape = ""
        """A backslash and the characters behind it, until their meaning is clear."""
        self._fault: int | None = None
        """How many pieces of the string came before its first bad escape."""
        self._control = False
        """The string holds a raw control character."""

    @property
    def text(self) -> str:
        """The raw text so far."""
        if len(self._pieces) > 1:
            unseen = "".join(self._pieces[self._scanned :])
            seen = "".join(self._pieces[: self._scanned])
            self._pieces = [seen, unseen] if seen and unseen else [seen or unseen]
            self._scanned = 1 if seen else 0
        return "".join(self._pieces)

    def feed(self, delta: str) -> None:
        """Add a piece of text."""
        self._pieces.append(delta)
        self._value = _STALE

    def value(self) -> Any:
        """Return the value read so far; `{}` if there is none. The result is shared: do not change it."""
        if self._value is _STALE:
            self._value = self._parse()
        return self._value

    # -- reading ---------------------------------------------------------------------------------

    def _parse(self) -> Any:
        if not self._scanned:
            # Usually the value is not asked for before the text is complete: then the scanner never runs.
            try:
                return decode(self.text)
            except (DecodeError, RecursionError):
                pass
        for piece in self._pieces[self._scanned :]:
            self._scan(piece)
        self._scanned = len(self._pieces)
        try:
            value = decode(self._completed())
        except (DecodeError, RecursionError):
            return {}
        return {} if value is None and self.text.strip() != "null" else value

    def _completed(self) -> str:
        tail = ""
        if self._state == _STRING and self._key != "" and not self._control:
            if self._fault is None:
                self._string = ["".join(self._string)]  # joining the same pieces again each time would be slow
            tail = '"' + "".join(self._string[: self._fault]) + '"'
        elif self._state == _ATOM:
            tail = _complete_atom(self._atom) or ""
        if tail:
            tail = self._lead() + tail
        self._out = ["".join(self._out)]
        return self._out[0] + tail + "".join(reversed(self._closers))

    def _lead(self) -> str:
        """Return the text before the next item: a comma unless it is the first, and its key."""
        comma = "," if self._closers and self._out[-1][-1] not in "{[" else ""
        return comma if self._key is None else f"{comma}{self._key}:"

    def _emit(self, item: str) -> None:
        self._out.append(self._lead() + item)
        self._key = None
        self._state = _NEXT if self._closers else _END

    # -- the scanner -----------------------------------------------------------------------------

    def _scan(self, text: str) -> None:
        position, end = 0, len(text)
        while position < end:
            if self._state == _STRING:
                position = self._scan_string(text, position)
            elif self._state == _ATOM:
                position = self._scan_atom(text, position)
            elif self._state == _END:
                return
            else:
                position = _run_end(_SPACE, text, position)
                if position < end:
                    position += self._scan_mark(text[position])

    def _scan_mark(self, mark: str) -> int:
        """Take one character between items and return how many were used up: 1, or 0 to look at it again."""
        state = self._state
        if state == _COLON:
            self._state = _VALUE if mark == ":" else _END
            return 1
        if state == _NEXT and mark == ",":
            self._state = _ITEM
            return 1
        closer = self._closers[-1] if self._closers else ""
        if state != _VALUE and closer and mark == closer:
            self._out.append(self._closers.pop())
            self._state = _NEXT if self._closers else _END
            return 1
        wants_key = closer == "}" and state != _VALUE
        if mark == '"':
            self._state = _STRING
            self._string, self._escape, self._fault, self._control = [], "", None, False
            if wants_key:
                self._key = ""
            return 1
        if not wants_key and mark in "{[" and len(self._closers) < _MAX_DEPTH:
            self._emit(mark)
            self._closers.append("}" if mark == "{" else "]")
            self._state = _ITEM
            return 1
        if not wants_key and _ATOM_RUN.fullmatch(mark):
            self._atom, self._state = "", _ATOM
            return 0
        self._state = _END
        return 1

    def _scan_atom(self, text: str, position: int) -> int:
        stop = _run_end(_ATOM_RUN, text, position)
        self._atom += text[position:stop]
        if stop < len(text):
            atom = _LITERALS.get(self._atom) or _complete_number(self._atom)
            if atom is None:
                self._state = _END
            else:
                self._emit(atom)
        return stop

    def _scan_string(self, text: str, position: int) -> int:
        if self._escape:
            return self._scan_escape(text, position)
        stop = _run_end(_GOOD_RUN, text, position)
        if stop > position:
            self._string.append(text[position:stop])
        if stop == len(text):
            return stop
        mark = text[stop]
        if mark == "\\":
            self._escape = mark
        elif mark == '"':
            string = '"' + "".join(self._string) + '"'
            if self._key == "":
                self._key, self._state = string, _COLON
            else:
                self._emit(string)
        else:
            self._string.append(f"\\u{ord(mark):04x}")
            self._control = True
        return stop + 1

    def _scan_escape(self, text: str, position: int) -> int:
        begun = self._escape + text[position]
        if _ESCAPE.fullmatch(begun):
            self._string.append(begun)
            self._escape = ""
        elif _ESCAPE_BEGUN.fullmatch(begun):
            self._escape = begun
        else:
            # Not an escape: the backslash and the character behind it stand for themselves.
            if self._fault is None:
                self._fault = len(self._string)
            self._string.append("\\" + self._escape)
            self._escape = ""
            return position
        return position + 1


def _run_end(pattern: re.Pattern[str], text: str, position: int) -> int:
    run = pattern.match(text, position)
    return run.end() if run else position


def _complete_number(atom: str) -> str | None:
    if _NUMBER.fullmatch(atom):
        return atom
    mantissa = atom[: max(atom.rfind("e"), atom.rfind("E"), 0)]
    return mantissa if _NUMBER.fullmatch(mantissa) else None


def _complete_atom(atom: str) -> str | None:
    """Return the value that `atom` is the beginning of."""
    values = [value for name, value in _LITERALS.items() if name.startswith(atom) and atom != "-"]
    return values[0] if values else _complete_number(atom)
