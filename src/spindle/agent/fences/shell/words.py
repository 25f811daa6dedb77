"""Reads the words of a shell line: quotes, expansions, braces, and the values that variables may have.

A variable may have any value that the line gives it anywhere. What is not known becomes a gap in a word.
"""

import os
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from spindle.agent.fences.links import home
from spindle.agent.fences.shell.gaps import ANY, NUMBER, ONE, PLACE, STAR, WORDS, has_gap
from spindle.agent.fences.shell.programs import ASSIGNMENT, Unclear, Word, check_variable

if TYPE_CHECKING:
    from spindle.agent.fences.shell.lines import ShellCommand

DEEPEST: Final = 20
MOST_VALUES: Final = 64
"""Values of a word, and readings of a command."""
GLUED: Final = "a process substitution is part of a word"
WORD_ENDS: Final = " \t\n;&|<>()"
NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = re.compile(
    rf"\$(?:({NAME}|[0-9@*#?$!-])"
    rf"|\{{(#?)({NAME}|[0-9]+|[@*#?$!-])(\[(?:[@*]|[0-9]+)\])?"
    r"(?:(:?[-+?=])([^{}'\"\\`\n]*)|([#%/^,][^{}'\"\\`\n$]*|:[ 0-9:-]+))?\})",
    re.ASCII,
)
"""Groups: name, `#`, name in braces, index, operator, its word, an operator that changes the value."""
_ARITHMETIC = re.compile(r"[\w\s+*/%()<>=!&|^~?:,$#{}-]*", re.ASCII)
_CLASS = re.compile(r"\[[!^]?\]?(?:\[[:.=]\w+[:.=]\]|[\w.,:@%+=/!^-])*\]", re.ASCII)
_QUOTED_PIECE = re.compile(r'[^"\\$`\n\0]+')
_ESCAPED = re.compile(r"\\(.)|\$'((?:[^'\\]|\\[\s\S])*)'")
_PLAIN_PIECE = re.compile(r"[\w./:=,@%+-]+", re.ASCII)
NUMERIC = re.compile(r"(?:\d|\0n|-)*")
_SPLIT = re.compile(r"[\s*?\[\\]")
_COUNTED = re.compile(r"[#?$!]|RANDOM|SECONDS|LINENO|UID|EUID|PPID|BASHPID|OPTIND|SHLVL")
"""Variables that hold a number."""
_LONGEST_VALUE: Final = 20_000
"""Characters of a value that is followed."""
_MOST_BRACES: Final = 50
_BEFORE_TILDE = re.compile(rf"{NAME}\+?=(?:[^'\"]*:)?", re.ASCII)
_USER = re.compile(r"[\w+.-]+")


_ANSI = re.compile(r"(?s)\\(?:([0-7]{1,3})|[xuU]([0-9a-fA-F]{1,8})|(.))")
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


def _ansi(text: str) -> str:
    """Return the text that `$'…'` stands for, or a gap if that is not sure."""

    def meant(escape: re.Match[str]) -> str:
        octal, code, letter = escape.groups()
        if letter:
            return _ANSI_LETTERS.get(letter, "\0")
        if code and escape[0][1] == "x":  # takes two digits at most
            return chr(int(code[:2], 16)) + code[2:] if int(code[:2], 16) < 128 else "\0"
        number = int(octal, 8) if octal else int(code, 16)
        return chr(number) if number < 128 and (octal or len(code) <= 4) else "\0"

    found = _ANSI.sub(meant, text)
    return ANY if "\0" in found else found


class Value(Struct, frozen=True):
    """A word with all the values it may have."""

    source: str
    values: tuple[str, ...]

    def words(self) -> list[Word]:
        return [Word(self.source, value) for value in self.values]


class ShellFindings:
    """What the readers of a line and of the texts in it have found."""

    def __init__(self, known: dict[str, set[str]]) -> None:
        self.known = known
        """Values of variables, of the pass before."""
        self.assigned: dict[str, set[str]] = {}
        self.commands: list[ShellCommand] = []
        self.reads: list[Word] = []
        self.writes: list[Word] = []
        self.fed: list[tuple[str, str]] = []
        self.pipes = False
        """Whether a command reads what another one of the line writes."""
        self.files: set[str] = set()
        """Files that shells run."""
        self.words = 0
        """How many words the commands have."""
        self.document: str | None = None
        """The last here-document."""
        self.loops = 0
        """Open loops; a function counts as one that does not end."""

    def assign(self, name: str, values: "set[str] | tuple[str, ...]") -> None:
        for value in values:
            check_variable(name, value)
        every = self.assigned.setdefault(name, set())
        every.update(values)
        if len(every) > MOST_VALUES:
            self.assigned[name] = {ANY}

    def lookup(self, name: str) -> set[str]:
        """Return the values that a variable may have."""
        values = self.known.get(name, set()) | self.assigned.get(name, set())
        if _COUNTED.fullmatch(name):
            return {NUMBER, *values}
        if name == "PWD":
            return {PLACE, *values}
        if name == "HOME":
            return {home(), *values}
        return {"", os.environ.get(name, ""), *values} if values else {ANY}

    def may_be_any(self, name: str) -> bool:
        return ANY in self.known.get(name, ()) or ANY in self.assigned.get(name, ())


class WordReader:
    def __init__(self, text: str, found: ShellFindings, depth: int) -> None:
        if depth > DEEPEST:
            raise Unclear("it is nested too deeply")
        self._text = text
        self._found = found
        self._depth = depth
        self._at = 0
        self._documents: list[tuple[str, bool, bool, str]] = []
        """Here-documents that begin at the next line: end word, whether tabs are dropped, whether the text is literal,
        and the program that reads it."""

    def _sees(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip_blanks(self) -> None:
        while True:
            if self._next() in (" ", "\t"):
                self._at += 1
            elif self._sees("\\\n"):
                if self._documents:
                    raise Unclear("a here-document begins in a line that goes on")
                self._at += 2
            elif self._next() == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return

    def _skip_lines(self) -> None:
        self._skip_blanks()
        while self._next() == "\n":
            if self._documents:
                raise Unclear("a here-document begins in the head of a compound command")
            self._at += 1
            self._skip_blanks()

    def _word(self) -> list[Value]:
        """Read a word. Braces may make several of it."""
        start, values = self._at, [""]
        while (sign := self._next()) and sign not in WORD_ENDS:
            before = self._at
            if plain := _PLAIN_PIECE.match(self._text, before):
                self._at = plain.end()
                values = _appended(values, [plain[0].replace(",", "\0,")])
            elif sign == "'":
                end = self._text.find("'", self._at + 1)
                piece = self._text[self._at + 1 : end]
                if end < 0 or ("\n" in piece and self._documents):
                    raise Unclear("a quote has no end in its line")
                self._at, values = end + 1, _appended(values, [piece])
            elif sign == '"' or self._sees('$"'):
                self._at += 1 if sign == '"' else 2
                values = _appended(values, self._quoted('"'))
            elif sign == "\\" or self._sees("$'"):
                values = _appended(values, [self._escaped()])
            elif sign in "$`":
                values = _appended(values, [WORDS if _SPLIT.search(v) or ANY in v else v for v in self._expansion()])
            else:
                values = _appended(values, self._unquoted(sign, start))
        source = self._text[start : self._at]
        if not source:
            raise Unclear("a word is missing")
        self._refuse_glued()
        return _expanded(source, values)

    def _escaped(self) -> str:
        """Read a character behind a backslash, or a `$'…'`."""
        escaped = _ESCAPED.match(self._text, self._at)
        if escaped is None:
            raise Unclear("a quote has no end, or a word is broken over two lines")
        self._at = escaped.end()
        character, quoted = escaped.groups()
        return character or _ansi(quoted)

    def _unquoted(self, sign: str, start: int) -> list[str]:
        """Read a character that may mean something to the shell, in a word that begins at `start`."""
        first = self._at == start
        self._at += 1
        if sign == "[" and (found := _CLASS.match(self._text, self._at - 1)):
            self._at = found.end()
            return [ONE]
        if sign == "[" and not first:
            raise Unclear("a wildcard is not plain")
        if sign == "~" and (first or _BEFORE_TILDE.fullmatch(self._text, start, self._at - 1)):
            name = _USER.match(self._text, self._at)
            self._at += len(name[0]) if name else 0
            is_home = not name and self._next() in f"/:{WORD_ENDS}"
            return list(self._found.lookup("HOME")) if is_home else [ANY]
        if sign == "{" and self._next() == "}":
            self._at += 1
            return ["{}"]
        return [{"*": STAR, "?": ONE, "{": "\0{", "}": "\0}"}.get(sign, sign)]

    def _quoted(self, end: str) -> list[str]:
        """Read to `end` (or the end of the text) as in double quotes. Returns the possible values."""
        values = [""]
        while (sign := self._next()) != end:
            if not sign or (sign == "\n" and self._documents):
                raise Unclear("a quote has no end in its line")
            if sign == "\\":
                escaped = self._text[self._at + 1 : self._at + 2]
                if escaped in ("", "\n"):
                    raise Unclear("a quoted text is broken over two lines")
                values = _appended(values, [escaped if escaped in '$`"\\' else sign + escaped])
                self._at += 2
            elif sign in "$`":
                values = _appended(values, self._expansion())
            else:
                piece = _QUOTED_PIECE.match(self._text, self._at)
                values = _appended(values, [piece[0] if piece else sign])
                self._at += len(piece[0]) if piece else 1
        self._at += len(end)
        return values

    def _expansion(self) -> list[str]:
        """Read an expansion, at a `$` or a backtick. Returns its possible values."""
        if found := _VARIABLE.match(self._text, self._at):
            self._at = found.end()
            return self._value_of(found)
        if self._sees("$(("):
            self._at += 3
            self._calculate()
            return [NUMBER]
        if self._sees("$("):
            self._at += 2
            return [self._substitute()]
        if self._sees("${") or self._sees("$[") or self._sees("$\\\n"):
            raise Unclear("it expands a variable in a way that may run commands")
        if self._next() == "$":
            self._at += 1
            return ["$"]
        end = self._text.find("`", self._at + 1)
        inside = self._text[self._at + 1 : end]
        if end < 0 or "\\" in inside or self._documents:
            raise Unclear("backticks are nested")
        self._at = end + 1
        type(self)(inside, self._found, self._depth + 1).read_list()
        return [ANY]

    def _value_of(self, found: re.Match[str]) -> list[str]:
        plain, counts, in_braces, index, operator, other, changed = found.groups()
        name = plain or in_braces
        if counts:
            return [NUMBER]
        if index or name in ("@", "*"):
            return [WORDS]
        if changed:
            return [ANY]
        values = self._found.lookup(name)
        if operator is not None:
            others = type(self)(other, self._found, self._depth + 1)._quoted("")
            if operator.endswith("="):
                self._found.assign(name, set(others))
            values = values | set(others) | {""}
        return sorted(values)

    def _calculate(self, also: str = "") -> None:
        """Read arithmetic up to its `))`. The value of a variable in it may hold a substitution, which would run."""
        start, depth = self._at, 0
        while depth or not self._sees("))"):
            sign = self._next()
            depth += {"(": 1, ")": -1}.get(sign, 0)
            if not sign or depth < 0:
                raise Unclear("a calculation has no end")
            self._at += 1
        text = self._text[start : self._at].replace(also or " ", " ")
        self._at += 2
        if not _ARITHMETIC.fullmatch(text) or "$(" in text or re.search(r"\w\s+\w", text):
            raise Unclear("it calculates with something that is not known")
        names = re.findall(rf"(?<![\w#])({NAME})|\$\{{?([0-9@*-])", text, re.ASCII)
        for name, argument in names:
            values = self._found.lookup(name) - {ANY} or {os.environ.get(name, "")}
            if argument or not all(NUMERIC.fullmatch(value) for value in values) or self._found.may_be_any(name):
                raise Unclear("it calculates with a value that is not known")
        if re.search(r"[+]{2}|--|(?<![=!<>])=(?!=)", text):
            for name, _ in names:
                if name in os.environ:
                    raise Unclear(f"it calculates the variable {name}")
                self._found.assign(name, {NUMBER})

    def _refuse_glued(self) -> None:
        if self._sees("<(") or self._sees(">("):
            raise Unclear(GLUED)

    def read_list(self, *, closing: bool = False) -> None:
        """Read commands to the end, or to the `)` that closes a substitution."""
        raise NotImplementedError

    def _substitute(self) -> str:
        """Read a substitution. Returns its value."""
        raise NotImplementedError


def _appended(values: list[str], pieces: list[str]) -> list[str]:
    if len(values) * len(pieces) > MOST_VALUES or len(values[0]) > _LONGEST_VALUE:
        return [ANY]
    return [value + piece for value in values for piece in dict.fromkeys(pieces)]


def _expanded(source: str, values: list[str]) -> list[Value]:
    """Return the words that a word with braces stands for."""
    if not any("\0{" in value for value in values):
        return [Value(source, tuple(value.replace("\0,", ",").replace("\0}", "}") for value in values))]
    if ASSIGNMENT.match(source):
        return [Value(source, tuple(re.sub("\0([{,}])", r"\1", value) for value in values))]
    rows = list(zip(*(_braces(value) for value in values), strict=True))
    if len(rows) == 1:
        return [Value(source, rows[0])]
    return [Value(source if has_gap(row[0]) or len(row) > 1 else row[0], row) for row in rows]


def _braces(text: str) -> list[str]:
    """Return the texts that unquoted braces stand for."""
    before, opened, rest = text.partition("\0{")
    before = re.sub("\0([,}])", r"\1", before)
    if not opened:
        return [before]
    if rest.count("\0{") > _MOST_BRACES:
        raise Unclear("braces stand for too many words")
    depth, start, choices = 0, 0, []
    for sign in re.finditer("\0[{,}]", rest):
        if sign[0] == "\0}" and not depth:
            break
        depth += {"\0{": 1, "\0}": -1}.get(sign[0], 0)
        if sign[0] == "\0," and not depth:
            choices.append(rest[start : sign.start()])
            start = sign.end()
    else:
        raise Unclear("a brace has no end")
    inside, after = rest[start : sign.start()], _braces(rest[sign.end() :])
    choices.append(inside)
    if len(choices) == 1:
        inner = [WORDS] if ".." in inside else [f"{{{one}}}" for one in _braces(inside)]
    else:
        inner = [one for choice in choices for one in _braces(choice)]
    if len(inner) * len(after) > MOST_VALUES:
        raise Unclear("braces stand for too many words")
    return [before + one + end for one in inner for end in after]
