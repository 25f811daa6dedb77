"""Finds the commands that a shell line would run, without running it.

The reader knows the part of bash that hides nothing: lists, pipes, subshells, substitutions, loops, `if` and `case`,
redirections, here-documents, and programs that run other programs (`sudo`, `xargs`, `sh -c`, …). It does not check
the grammar: it does no harm to read more commands than the shell would run. At everything else (functions, arrays,
arithmetic with names, a variable in the place of a command, …) the reader stops and says why the line is unclear.
"""

import re
from typing import Final

from msgspec import Struct

_DEEPEST: Final = 20
_GLUED: Final = "a process substitution is part of a word"
_WORD_ENDS: Final = " \t\n;&|<>()"
_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|while|until|do|done|\{|\}|!|time(?:[ \t]+-p)?|for|case|esac|function|select|coproc|\[\[)"
    r"(?=[ \t\n;&|<>()]|$)"
)
_REDIRECTION = re.compile(r"&>>?|<<<|<<-?|<>|<&|>>|>\||>&|>|<")
_VARIABLE = re.compile(
    r"\$(?:[a-z_][a-z0-9_]*|[0-9@*#?$!-]"
    r"|\{#?(?:[a-z0-9_]+|[@*#?$!-])(?::?[-+?][\w./: -]*|[#%]{1,2}[\w./*?-]*)?\})",
    re.IGNORECASE | re.ASCII,
)
_NUMBERS_ONLY = re.compile(r"\$\(\([\d\s+*/%()<>=!&|^~?:,-]*\)\)")
"""Arithmetic without variables: the value of a variable may hold a substitution, which would run."""
_QUOTED_PIECE = re.compile(r'[^"\\$`\n]+')
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=", re.ASCII)
_HARMLESS = re.compile(
    "CI|DEBUG|LANG|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|NODE_ENV|PYTHONUNBUFFERED|"
    "PYTHONDONTWRITEBYTECODE|RUST_LOG|RUST_BACKTRACE|GOOS|GOARCH"
)
"""Variables that no program takes a command, a path or an option from."""
_LOCAL = re.compile("[a-z][a-z0-9]*")
"""Names that environments do not use: to set such a variable changes nothing for programs."""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_FREE = frozenset({":", "true", "false", "exit", "break", "continue", "return"})
_UNCLEAR = re.compile(
    "trap|alias|unalias|let|declare|typeset|local|readonly|mapfile|readarray|bind|complete|compgen|enable|hash|"
    "parallel|su|script|unshare|nsenter"
)
"""Commands that change what later commands mean, or that take a text to run in too many ways."""
_EVALUATING = frozenset({"test", "[", "printf", "read", "unset", "export", "getopts", "wait"})
"""Builtins that run a substitution in the index of a name they are given."""


class _Wrapper(Struct, frozen=True):
    """A program that runs the command that follows its options."""

    flags: str = ""
    valued: str = ""
    """Options with a value."""
    arguments: int = 0
    """Words between the options and the command."""
    needs_rule: bool = True
    """False if it changes nothing about the command: a rule for the command is enough."""


_WRAPPERS: Final = {
    "sudo": _Wrapper("AbEHknPS", "ugpCTrtDhRU"),
    "doas": _Wrapper("nL", "uC"),
    "env": _Wrapper("i0v", "uC"),
    "xargs": _Wrapper("0rtpox", "InPLdsaE"),
    "exec": _Wrapper("cl", "a"),
    "setsid": _Wrapper("cfw"),
    "busybox": _Wrapper(),
    "chroot": _Wrapper(arguments=1),
    "flock": _Wrapper("enosux", "wE", 1),
    "strace": _Wrapper("fq", "epsP"),
    "watch": _Wrapper("bcdegpt", "n"),
    "command": _Wrapper("p", needs_rule=False),
    "builtin": _Wrapper(needs_rule=False),
    "time": _Wrapper("pv", "f", needs_rule=False),
    "timeout": _Wrapper("fpv", "sk", 1, needs_rule=False),
    "nice": _Wrapper("", "n", needs_rule=False),
    "ionice": _Wrapper("t", "cn", needs_rule=False),
    "nohup": _Wrapper(needs_rule=False),
    "stdbuf": _Wrapper("", "ioe", needs_rule=False),
}


class Word(Struct, frozen=True):
    source: str
    """As it was written."""
    value: str
    """Without its quotes; expansions as they were written."""
    literal: bool = True
    """Whether the program gets `value` as it is, in one word."""


class ShellCommand(Struct, frozen=True):
    words: tuple[Word, ...]
    assigned: tuple[str, ...] = ()
    """Assignments before the words, or without any words; harmless ones are left out."""
    free: bool = False
    """Whether the command needs no rule: it does nothing, or only runs commands that are listed too."""

    @property
    def text(self) -> str:
        return " ".join((*self.assigned, *(word.source for word in self.words)))

    @property
    def name(self) -> str:
        """The program without its folder."""
        return self.words[0].value.rpartition("/")[2] if self.words else ""


class ShellLine(Struct, frozen=True):
    commands: tuple[ShellCommand, ...]
    """All commands, also those inside of others; of an unclear line only some."""
    reads: tuple[Word, ...] = ()
    """Files that redirections read."""
    writes: tuple[Word, ...] = ()
    unclear: str | None = None
    """Why not all commands are known."""


class _Unclear(Exception):
    pass


class _Found:
    def __init__(self) -> None:
        self.commands: list[ShellCommand] = []
        self.reads: list[Word] = []
        self.writes: list[Word] = []


def read_line(text: str) -> ShellLine:
    """Read a line as `bash -c` would."""
    found, why = _Found(), None
    try:
        _Reader(text, found, 0).read_list()
    except _Unclear as unclear:
        why = str(unclear)
    return ShellLine(tuple(found.commands), tuple(found.reads), tuple(found.writes), why)


class _Reader:
    def __init__(self, text: str, found: _Found, depth: int) -> None:
        if depth > _DEEPEST:
            raise _Unclear("it is nested too deeply")
        self._text = text
        self._found = found
        self._depth = depth
        self._at = 0
        self._documents: list[tuple[str, bool, bool]] = []
        """Here-documents that begin at the next line: end word, whether tabs are dropped, whether text is literal."""

    def _sees(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    # -- lists -----------------------------------------------------------------------------------

    def read_list(self, *, closing: bool = False) -> None:
        """Read commands to the end, or to the `)` that closes a substitution."""
        open_parens = 0
        cases: list[int] = []
        while True:
            self._skip_blanks()
            sign = self._next()
            if not sign:
                if closing or self._documents:
                    raise _Unclear("a substitution or here-document has no end")
                return
            if sign == "\n":
                self._at += 1
                self._read_documents()
            elif sign == ")":
                self._at += 1
                if cases and cases[-1] == open_parens:
                    raise _Unclear("a case has no end")
                if not open_parens:
                    if closing and not self._documents:
                        return
                    raise _Unclear("a `)` closes nothing")
                open_parens -= 1
            elif sign == "(":
                if self._sees("(("):
                    raise _Unclear("it calculates")
                self._at += 1
                open_parens += 1
            elif self._sees(";;") or self._sees(";&"):
                if not cases:
                    raise _Unclear("a `;;` is outside of a case")
                self._at += 3 if self._sees(";;&") else 2
                self._skip_patterns()
            elif sign in ";|" or (sign == "&" and not self._sees("&>")):
                self._at += 1
            elif word := _RESERVED.match(self._text, self._at):
                self._at = word.end()
                if word[0] == "case":
                    cases.append(open_parens)
                    self._skip_blanks()
                    self._word()
                    self._skip_lines()
                    if self._word().source != "in":
                        raise _Unclear("a case has no `in`")
                    self._skip_patterns()
                elif word[0] == "esac":
                    if not cases or cases.pop() != open_parens:
                        raise _Unclear("an `esac` ends nothing")
                elif word[0] == "for":
                    self._read_for()
                elif word[0] in ("function", "select", "coproc", "[["):
                    raise _Unclear(f"it uses `{word[0]}`")
            else:
                self._read_command()

    def _read_for(self) -> None:
        self._skip_blanks()
        if self._next() == "(" or not (_LOCAL.fullmatch(self._word().source)):
            raise _Unclear("a loop counts, or sets a variable that programs may know")
        self._skip_lines()
        if re.compile(r"in(?=[ \t\n;])").match(self._text, self._at):
            self._at += 2
            self._skip_blanks()
            while self._next() and self._next() not in ";\n":
                self._word()
                self._skip_blanks()

    def _skip_patterns(self) -> None:
        """Move behind the `)` of the next branch of a case, or to its `esac`."""
        self._skip_lines()
        if (word := _RESERVED.match(self._text, self._at)) and word[0] == "esac":
            return
        self._at += self._next() == "("
        while True:
            self._skip_lines()
            if self._next() == ")":
                self._at += 1
                return
            if self._next() == "|":
                self._at += 1
            else:
                self._word()

    # -- one command -----------------------------------------------------------------------------

    def _read_command(self) -> None:
        words: list[Word] = []
        assigned: list[str] = []
        while True:
            self._skip_blanks()
            sign = self._next()
            if not sign or sign in "\n;|)" or (sign == "&" and not self._sees("&>")):
                break
            if sign == "(":
                raise _Unclear("it defines a function or an array")
            if self._sees("<(") or self._sees(">("):
                words.append(self._substituted_file())
            elif sign in "<>&":
                self._redirect()
            else:
                word = self._word()
                if self._next() in ("<", ">") and word.source.isdecimal():
                    continue  # the number of a file descriptor
                if not words and _ASSIGNMENT.match(word.source):
                    assigned.append(word.source)
                else:
                    words.append(word)
        known = [item for item in assigned if not _is_harmless(item, bool(words))]
        if words:
            self._add(ShellCommand(tuple(words), tuple(known)))
        elif known:
            self._found.commands.append(ShellCommand((), tuple(known)))

    def _substituted_file(self) -> Word:
        start = self._at
        self._at += 2
        self._substitute()
        if self._next() not in _WORD_ENDS:
            raise _Unclear(_GLUED)
        self._refuse_glued()
        source = self._text[start : self._at]
        return Word(source, source, literal=False)

    def _refuse_glued(self) -> None:
        if self._sees("<(") or self._sees(">("):
            raise _Unclear(_GLUED)

    def _redirect(self) -> None:
        sign = _REDIRECTION.match(self._text, self._at)
        assert sign is not None
        self._at = sign.end()
        if sign[0] in (">&", "<&") and self._next() == "-":
            self._at += 1  # closes the descriptor; the next word may begin here, without a blank
            return
        self._skip_blanks()
        if self._sees("<(") or self._sees(">("):
            self._substituted_file()
            return
        word = self._word()
        match sign[0]:
            case "<<" | "<<-":
                if "$" in word.source or "`" in word.source:
                    raise _Unclear("the end of a here-document is not known")
                self._documents.append((word.value, sign[0] == "<<-", word.value != word.source))
            case ">&" | "<&" if re.fullmatch(r"\d+-?|-", word.source, re.ASCII):
                pass
            case "<&":
                raise _Unclear("it copies a file descriptor that is not known")
            case "<":
                self._found.reads.append(word)
            case "<<<":
                pass
            case _:
                self._found.writes.append(word)

    def _read_documents(self) -> None:
        """Read the here-documents that begin at this line. Substitutions in them run."""
        for end_word, drops_tabs, literal in self._documents:
            lines = []
            while True:
                if self._at >= len(self._text):
                    raise _Unclear("a here-document has no end")
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = min(end + 1, len(self._text))
                if (line.lstrip("\t") if drops_tabs else line) == end_word:
                    break
                lines.append(line)
            if not literal:
                _Reader("\n".join(lines), self._found, self._depth + 1)._quoted("")
        self._documents.clear()

    # -- words -----------------------------------------------------------------------------------

    def _skip_blanks(self) -> None:
        while True:
            if self._next() in (" ", "\t"):
                self._at += 1
            elif self._sees("\\\n"):
                if self._documents:
                    raise _Unclear("a here-document begins in a line that goes on")
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
                raise _Unclear("a here-document begins in the head of a compound command")
            self._at += 1
            self._skip_blanks()

    def _word(self) -> Word:
        start, value, literal = self._at, "", True
        while (sign := self._next()) and sign not in _WORD_ENDS:
            if sign == "'":
                end = self._text.find("'", self._at + 1)
                piece = self._text[self._at + 1 : end]
                if end < 0 or ("\n" in piece and self._documents):
                    raise _Unclear("a quote has no end in its line")
                self._at, value = end + 1, value + piece
            elif sign == '"' or self._sees('$"'):
                self._at += 1 if sign == '"' else 2
                piece, plain = self._quoted('"')
                value, literal = value + piece, literal and plain
            elif sign == "\\":
                escaped = self._text[self._at + 1 : self._at + 2]
                if escaped in ("", "\n"):
                    raise _Unclear("a word is broken over two lines")
                self._at, value = self._at + 2, value + escaped
            elif self._sees("$'"):
                quoted = re.compile(r"(?s)\$'((?:[^'\\]|\\.)*)'").match(self._text, self._at)
                if quoted is None:
                    raise _Unclear("a quote has no end")
                self._at, value, literal = quoted.end(), value + quoted[1], literal and "\\" not in quoted[1]
            elif sign in "$`":
                before = self._at
                literal = self._expansion() and literal
                value += self._text[before : self._at]
            else:
                size = 2 if self._sees("{}") else 1
                if (sign in "*?[{" and size == 1) or (sign == "~" and self._at == start):
                    literal = False
                value += self._text[self._at : self._at + size]
                self._at += size
        source = self._text[start : self._at]
        if not source:
            raise _Unclear("a word is missing")
        self._refuse_glued()
        return Word(source, value, literal or source == "[")

    def _quoted(self, end: str) -> tuple[str, bool]:
        """Read to `end` (or the end of the text) as in double quotes. Returns the value, and whether it is literal."""
        value, literal = "", True
        while (sign := self._next()) != end:
            if not sign or (sign == "\n" and self._documents):
                raise _Unclear("a quote has no end in its line")
            if sign == "\\":
                escaped = self._text[self._at + 1 : self._at + 2]
                if escaped in ("", "\n"):
                    raise _Unclear("a quoted text is broken over two lines")
                value += escaped if escaped in '$`"\\' else sign + escaped
                self._at += 2
            elif sign in "$`":
                before = self._at
                literal = self._expansion() and literal
                value += self._text[before : self._at]
            else:
                piece = _QUOTED_PIECE.match(self._text, self._at)
                value += piece[0] if piece else sign
                self._at += len(piece[0]) if piece else 1
        self._at += len(end)
        return value, literal

    def _expansion(self) -> bool:
        """Read an expansion, at a `$` or a backtick. Returns whether the characters stand for themselves."""
        if found := _VARIABLE.match(self._text, self._at) or _NUMBERS_ONLY.match(self._text, self._at):
            self._at = found.end()
        elif self._sees("$(("):
            raise _Unclear("it calculates with names")
        elif self._sees("$("):
            self._at += 2
            self._substitute()
        elif self._sees("${") or self._sees("$[") or self._sees("$\\\n"):
            raise _Unclear("it expands a variable in a way that may run commands")
        elif self._next() == "$":
            self._at += 1
            return True
        else:
            end = self._text.find("`", self._at + 1)
            inside = self._text[self._at + 1 : end]
            if end < 0 or "\\" in inside or self._documents:
                raise _Unclear("backticks are nested")
            self._at = end + 1
            _Reader(inside, self._found, self._depth + 1).read_list()
        return False

    def _substitute(self) -> None:
        if self._documents:
            raise _Unclear("a substitution follows a here-document")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unclear("it is nested too deeply")
        self.read_list(closing=True)
        self._depth -= 1

    # -- commands in commands --------------------------------------------------------------------

    def _add(self, command: ShellCommand) -> None:
        words, name = command.words, command.name
        if not words[0].literal:
            raise _Unclear(f"the command `{words[0].source}` is not known before it runs")
        inner: list[tuple[Word, ...]] = []
        script: str | None = None
        free = name in _FREE
        if _UNCLEAR.fullmatch(name) or (name in _EVALUATING and _evaluates(words)):
            raise _Unclear(f"`{name}` may change or run other commands")
        if name == "set":
            free = all(re.fullmatch("-[euox]+|pipefail", word.value) for word in words[1:])
        elif name == "eval":
            free, script = True, _joined(words[1:])
        elif name in _SHELLS:
            script = _script(words)
            free = script is not None
        elif name == "find":
            inner = _found_commands(words)
        elif name in _WRAPPERS and not (name == "command" and len(words) > 1 and words[1].value in ("-v", "-V")):
            wrapped = _wrapped(words, name, _WRAPPERS[name])
            inner = [wrapped] if wrapped else []
            free = not _WRAPPERS[name].needs_rule
            if name == "watch":
                inner, script = [], _joined(wrapped)
        # A path may lead to another program of that name, and a variable may change which program runs.
        free = free and words[0].value == name and not command.assigned
        self._found.commands.append(ShellCommand(words, command.assigned, free))
        for part in inner:
            self._add(ShellCommand(part))
        if script is not None:
            _Reader(script, self._found, self._depth + 1).read_list()


def _is_harmless(assignment: str, has_command: bool) -> bool:
    name = assignment.partition("=")[0].rstrip("+")
    return _HARMLESS.fullmatch(name) is not None or (not has_command and _LOCAL.fullmatch(name) is not None)


def _evaluates(words: tuple[Word, ...]) -> bool:
    takes_names = words[0].value in ("read", "unset", "getopts", "wait")
    return any(
        word.value == "-v"
        or (takes_names and not word.literal)
        or ("[" in word.value and re.search("[$`]", word.value))
        for word in words[1:]
    )


def _joined(words: tuple[Word, ...]) -> str:
    if not all(word.literal for word in words):
        raise _Unclear("it runs a text that is not known before")
    return " ".join(word.value for word in words)


def _script(words: tuple[Word, ...]) -> str | None:
    """Return the text that a shell is given to run; None: it runs a file."""
    first = words[1].value if len(words) > 1 and words[1].literal else "-"
    if re.fullmatch("-[eluvx]*c", first) and len(words) > 2:
        return _joined(words[2:3])
    if first[:1] in ("-", "+", ""):
        raise _Unclear("a shell reads commands from elsewhere")
    return None


def _found_commands(words: tuple[Word, ...]) -> list[tuple[Word, ...]]:
    if any("$" in word.source or "`" in word.source for word in words if not word.literal):
        raise _Unclear("not all arguments of find are known")
    parts = []
    for index, word in enumerate(words):
        if word.value in ("-exec", "-execdir", "-ok", "-okdir"):
            rest = words[index + 1 :]
            end = next((number for number, item in enumerate(rest) if item.value in (";", "+")), len(rest))
            parts += [rest[:end]] if end else []
    return parts


def _wrapped(words: tuple[Word, ...], name: str, wrapper: _Wrapper) -> tuple[Word, ...]:
    """Return the command behind the options of a wrapper."""
    at = 1
    while at < len(words) and words[at].value.startswith("-") and words[at].value != "-":
        option = words[at].value
        at += 1
        if option == "--":
            break
        for index, letter in enumerate(option[1:], 2):
            if letter in wrapper.valued:
                at += index == len(option)
                break
            if letter not in wrapper.flags:
                raise _Unclear(f"the option {option} of {name} is not known")
    while name in ("env", "sudo") and at < len(words) and _ASSIGNMENT.match(words[at].value):
        at += 1
    at += wrapper.arguments
    if not all(word.literal for word in words[:at]):
        raise _Unclear(f"the command that {name} runs is not known")
    rest = words[at:]
    return (*rest, Word("{}", "{}")) if name == "xargs" and rest else rest
