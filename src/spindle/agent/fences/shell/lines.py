"""Finds the commands that a shell line would run, without running it.

The reader knows the part of bash that hides nothing: lists, pipes, subshells, substitutions, loops, `if`, `case`,
tests, functions, redirections and here-documents. `programs` says which programs run other programs. The values of
variables are followed as far as the line shows them: a variable may have any value that the line gives it anywhere.
What is not known becomes a gap in a word. The reader does not check the grammar: it does no harm to read more commands
than the shell would run. At everything else (aliases, arithmetic with unknown names, an unknown word in the place of a
command, …) the reader stops and says why the line is unclear.
"""

import os
import re
from itertools import product
from math import prod
from typing import Final

from msgspec import Struct

from spindle.agent.fences.shell.gaps import ANY, NUMBER, PLACE, WORDS, has_gap
from spindle.agent.fences.shell.programs import (
    ASSIGNMENT,
    Inside,
    Unclear,
    Words,
    look_inside,
    program,
)
from spindle.agent.fences.shell.words import (
    DEEPEST,
    GLUED,
    MOST_VALUES,
    NAME,
    NUMERIC,
    WORD_ENDS,
    ShellFindings,
    Value,
    WordReader,
)

_LONGEST: Final = 200_000
"""Characters of a line that is read."""
_MOST_WORDS: Final = 3000
"""Words of all commands of a line that is read, those of loops counted for each value."""
_PASSES: Final = 4
_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|while|until|do|done|\{|\}|!|time(?:[ \t]+-p)?(?:[ \t]+--)?|"
    r"for|case|esac|function|select|coproc|\[\[)"
    r"(?=[ \t\n;&|<>()]|$)"
)
_REDIRECTION = re.compile(r"&>>?|<<<|<<-?|<>|<&|>>|>\||>&|>|<")
_REGEX = re.compile(r"[^\s'\"`\\]+(?=[ \t])")
_COMMAND_END = re.compile(r"[\n;|)]|&(?!>)|\Z")
_DESCRIPTOR = re.compile(rf"[0-9]+|\{{{NAME}\}}", re.ASCII)
"""What may stand directly before a redirection."""
_FUNCTION = re.compile(rf"({NAME}(?:-\w+)*)[ \t]*\([ \t]*\)", re.ASCII)
_FUNCTION_LOOP: Final = 1000
_PRINTS_NUMBERS = re.compile(r"nproc|seq [\d ]+|date \+%[sYmdHMS%]+|id -u|wc -[lcw](?: .*)?")
_HARMLESS = re.compile(
    "CI|DEBUG|LANG|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|NODE_ENV|PYTHONUNBUFFERED|"
    "PYTHONDONTWRITEBYTECODE|RUST_LOG|RUST_BACKTRACE|GOOS|GOARCH"
)
"""Variables that no program takes a command, a path or an option from."""
_LOCAL = re.compile("[a-z][a-z0-9_]*")
"""Names that environments do not use: to set such a variable changes nothing for programs."""

_FREE = frozenset({":", "true", "false", "exit", "break", "continue", "return", "shift", "wait"})
_UNCLEAR = re.compile(
    "alias|unalias|let|mapfile|readarray|bind|complete|compgen|enable|hash|parallel|shopt|fc|history|"
    "command_not_found_handle|at|batch"
)
"""Commands that change what later commands mean, or that take a text to run in too many ways."""
_DECLARING = frozenset({"export", "declare", "typeset", "local", "readonly"})
_COPYING = frozenset({"cp", "mv", "ln", "install", "tee"})
"""Programs with which a line makes another file of one that it may run then."""
_EVALUATING = frozenset({"test", "[", "printf", "read", "unset", "getopts", "wait", *_DECLARING})
"""Builtins that run a substitution in the index of a name they are given."""


class ShellCommand(Struct, frozen=True):
    words: Words
    assigned: tuple[str, ...] = ()
    """Assignments before the words, or without any words; harmless ones are left out."""
    free: bool = False
    """Whether the command needs no rule: it does nothing, or only runs commands that are listed too."""
    repeats: bool = False
    """Whether it stands in a loop or a function."""

    @property
    def text(self) -> str:
        return " ".join((*self.assigned, *(word.source for word in self.words)))

    @property
    def name(self) -> str:
        return program(self.words)


class ShellLine(Struct, frozen=True):
    commands: tuple[ShellCommand, ...]
    """All commands, also those inside of others; of an unclear line only some. A command whose words have several
    values is there once for each."""
    reads: Words = ()
    """Files that redirections read."""
    writes: Words = ()
    fed: tuple[tuple[str, str], ...] = ()
    """Texts that the line itself holds for a program to read, each behind the name of the program."""
    pipes: bool = False
    """Whether a command reads what another one of the line writes."""
    unclear: str | None = None
    """Why not all commands are known."""


def read_line(text: str) -> ShellLine:
    """Read a line as `bash -c` would."""
    if len(text) > _LONGEST or "\0" in text:
        return ShellLine((), unclear="it is too long" if len(text) > _LONGEST else "it has a null character")
    known: dict[str, set[str]] = {}
    for _ in range(_PASSES):
        found, why = _read(text, known)
        if why is not None or found.assigned == known:
            break
        known = found.assigned
    else:
        found, why = _read(text, {name: {ANY} for name in known})
    if why is None and _runs_what_it_writes(found):
        why = "it runs a file that it writes"
    commands, reads, writes, fed = tuple(found.commands), tuple(found.reads), tuple(found.writes), tuple(found.fed)
    return ShellLine(commands, reads, writes, fed, found.pipes, why)


def _runs_what_it_writes(found: ShellFindings) -> bool:
    written = {os.path.normpath(word.value) for word in found.writes}
    copied = {os.path.normpath(word.value) for one in found.commands if one.name in _COPYING for word in one.words[1:]}
    names = {os.path.basename(path) for path in written | copied}
    bare = "PATH" in found.assigned  # then a name may be a file of any folder
    for file in found.files:
        path = os.path.normpath(file)
        if path in written or (os.path.isabs(path) and path in copied):
            return True
        if not os.path.isabs(path) and (bare or "/" in file) and os.path.basename(path) in names:
            return True
    return False


def _read(text: str, known: dict[str, set[str]]) -> tuple[ShellFindings, str | None]:
    found = ShellFindings(known)
    try:
        _Reader(text, found, 0).read_list()
    except Unclear as unclear:
        return found, str(unclear)
    return found, None


class _Open:
    """What is open in a list of commands."""

    def __init__(self) -> None:
        self.parens = 0
        self.cases: list[int] = []
        """The number of open parens at the begin of each case."""


class _Reader(WordReader):
    _open = _Open()
    # -- lists -----------------------------------------------------------------------------------

    def read_list(self, *, closing: bool = False) -> None:
        """Read commands to the end, or to the `)` that closes a substitution."""
        before, self._open = self._open, _Open()
        while not self._read_piece(closing):
            pass
        self._open = before

    def _read_piece(self, closing: bool) -> bool:
        """Read a command, or a sign or word between commands. Returns whether the list has ended."""
        self._skip_blanks()
        sign = self._next()
        if not sign:
            if closing or self._documents:
                raise Unclear("a substitution or here-document has no end")
            return True
        if sign == "\n":
            self._at += 1
            self._read_documents()
        elif sign == ")":
            self._at += 1
            return self._close(closing)
        elif self._sees("(("):
            self._at += 2
            self._calculate()
        elif sign == "(":
            self._at += 1
            self._open.parens += 1
        elif self._sees(";;") or self._sees(";&"):
            if not self._open.cases:
                raise Unclear("a `;;` is outside of a case")
            self._at += 3 if self._sees(";;&") else 2
            self._skip_patterns()
        elif self._sees("||"):
            self._at += 2
        elif sign in ";|" or (sign == "&" and not self._sees("&>")):
            self._at += 1
            self._found.pipes |= sign == "|"
        elif word := _RESERVED.match(self._text, self._at):
            self._at = word.end()
            self._read_compound(word[0])
        elif function := _FUNCTION.match(self._text, self._at):
            self._at = function.end()
            self._found.loops += _FUNCTION_LOOP
        else:
            self._read_command()
        return False

    def _close(self, closing: bool) -> bool:
        """Take a `)`. Returns whether it ends the list."""
        if self._open.cases and self._open.cases[-1] == self._open.parens:
            raise Unclear("a case has no end")
        if self._open.parens:
            self._open.parens -= 1
            return False
        if not closing or self._documents:
            raise Unclear("a `)` closes nothing")
        return True

    def _read_compound(self, word: str) -> None:
        """Read what follows a reserved word, up to the next list of commands."""
        match word:
            case "case":
                self._open.cases.append(self._open.parens)
                self._skip_blanks()
                self._word()
                self._skip_lines()
                if self._word()[0].source != "in":
                    raise Unclear("a case has no `in`")
                self._skip_patterns()
            case "esac":
                if not self._open.cases or self._open.cases.pop() != self._open.parens:
                    raise Unclear("an `esac` ends nothing")
            case "while" | "until":
                self._found.loops += 1
            case "for":
                self._found.loops += 1
                self._read_for()
            case "done":
                self._found.loops = max(0, self._found.loops - 1)
            case "[[":
                self._read_test()
            case "function":
                self._skip_blanks()
                self._word()
                self._found.loops += _FUNCTION_LOOP
                self._skip_blanks()
                if both := re.compile(r"\([ \t]*\)").match(self._text, self._at):
                    self._at = both.end()
            case "select" | "coproc":
                raise Unclear(f"it uses `{word}`")

    def _read_for(self) -> None:
        self._skip_blanks()
        if self._sees("(("):
            self._at += 2
            self._calculate(";")
            return
        start = self._at
        name = self._word()[0].source
        if not re.fullmatch(NAME, name, re.ASCII):
            raise Unclear("the variable of a loop is not known")
        self._skip_lines()
        values = {WORDS}
        if re.compile(r"in(?=[ \t\n;])").match(self._text, self._at):
            self._at += 2
            self._skip_blanks()
            values = set()
            while self._next() and self._next() not in ";\n":
                values.update(value for word in self._word() for value in word.values)
                self._skip_blanks()
        self._found.assign(name, values)
        if not _LOCAL.fullmatch(name):
            self._found.commands.append(ShellCommand((), (f"for {self._text[start : self._at].strip()}",)))

    def _read_test(self) -> None:
        """Read `[[ … ]]`. Comparing numbers evaluates names, and thereby substitutions in their values."""
        seen: list[Value] = []
        while True:
            self._skip_lines()
            if re.compile(r"\]\](?=[ \t\n;&|<>()]|$)").match(self._text, self._at):
                self._at += 2
                break
            if self._sees("&&") or self._sees("||"):
                self._at += 2
            elif self._next() and self._next() in "()<>":
                self._refuse_glued()
                self._at += 1
            else:
                seen += self._word()
                if seen[-1].source == "=~":
                    self._skip_blanks()
                    if (plain := _REGEX.match(self._text, self._at)) and not re.search(r"\$[\w({\[]|[<>]", plain[0]):
                        self._at = plain.end()
        for before, operator, after in zip(seen, seen[1:], seen[2:], strict=False):
            if re.fullmatch("-(?:eq|ne|lt|gt|le|ge)", operator.source):
                for value in (*before.values, *after.values):
                    if not NUMERIC.fullmatch(value):
                        raise Unclear("it compares what may be no number")
        if any(word.source == "-v" or "-v" in word.values for word in seen):
            raise Unclear("it asks for a variable that is not known")

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
        words: list[Value] = []
        assigned: list[Value] = []
        while True:
            self._skip_blanks()
            sign = self._next()
            if _COMMAND_END.match(self._text, self._at):
                break
            if sign == "(":
                raise Unclear("a `(` stands where none is expected")
            if self._sees("<(") or self._sees(">("):
                words.append(self._substituted_file())
            elif sign in "<>&":
                self._redirect(words[0].source if words else "")
            elif not words and (found := ASSIGNMENT.match(self._text, self._at)):
                assigned.append(self._assignment(found))
            else:
                more = self._word()
                if self._next() not in ("<", ">") or not _DESCRIPTOR.fullmatch(more[0].source):
                    words += more
        self._assign(assigned, words)
        known = tuple(item.source for item in assigned if not _is_harmless(item.source, bool(words)))
        readings = _readings(words)
        self._found.words += len(assigned) + sum(len(reading) for reading in readings)
        if self._found.words > _MOST_WORDS:
            raise Unclear("it is too long")
        for command in readings:
            self._add(ShellCommand(command, known, repeats=self._found.loops > 0))
        if known and not words:
            self._found.commands.append(ShellCommand((), known))

    def _assignment(self, found: re.Match[str]) -> Value:
        """Read an assignment. It has no value if that is an array."""
        start = self._at
        if self._text.startswith("(", found.end()):
            self._at = found.end() + 1
            self._read_array()
            return Value(self._text[start : self._at], ())
        return self._word()[0]

    def _assign(self, assigned: list[Value], words: list[Value]) -> None:
        for item in assigned:
            name, _, _ = item.source.partition("=")
            if name == "IFS" and words and words[0].source == "read":
                continue
            values = {value.partition("=")[2] for value in item.values}
            self._found.assign(name.rstrip("+"), {ANY} if name.endswith("+") or not values else values)

    def _read_array(self) -> None:
        while True:
            self._skip_lines()
            if not self._next() or self._next() in ";&|<>(" or self._sees("["):
                raise Unclear("an array is not plain")
            if self._next() == ")":
                self._at += 1
                break
            self._word()
        if self._next() not in WORD_ENDS:
            raise Unclear("an array is not plain")

    def _substituted_file(self) -> Value:
        start = self._at
        self._at += 2
        self._found.pipes = True
        self._substitute()
        if self._next() not in WORD_ENDS:
            raise Unclear(GLUED)
        self._refuse_glued()
        return Value(self._text[start : self._at], (f"/dev/fd/{NUMBER}",))

    def _redirect(self, command: str) -> None:
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
        start = self._at
        found = self._word()
        word = found[0]
        words = [one for value in found for one in value.words()]
        match sign[0]:
            case "<<" | "<<-":
                source = self._text[start : self._at]
                if re.search(r"[$`{*?\[~]", source):
                    raise Unclear("the end of a here-document is not known")
                self._documents.append((word.values[0], sign[0] == "<<-", word.values[0] != source, command))
            case ">&" | "<&" if re.fullmatch(r"\d+-?|-", word.source, re.ASCII):
                pass
            case "<&":
                raise Unclear("it copies a file descriptor that is not known")
            case "<" | "<>":
                self._found.reads += words
                self._found.writes += words if sign[0] == "<>" else []
            case "<<<":
                self._found.fed += [(command, one.value) for one in words]
            case _:
                self._found.writes += words

    def _read_documents(self) -> None:
        """Read the here-documents that begin at this line. Substitutions in them run."""
        for end_word, drops_tabs, literal, command in self._documents:
            lines = []
            while True:
                if self._at >= len(self._text):
                    raise Unclear("a here-document has no end")
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = min(end + 1, len(self._text))
                if (line.lstrip("\t") if drops_tabs else line) == end_word:
                    break
                lines.append(line)
            values = ["\n".join(lines)]
            if not literal:
                values = _Reader(values[0], self._found, self._depth + 1)._quoted("")
            self._found.document = values[0] if len(values) == 1 else ANY
            self._found.fed += [(command, value) for value in values]
        self._documents.clear()

    # -- words -----------------------------------------------------------------------------------

    def _substitute(self) -> str:
        """Read a substitution. Returns its value."""
        if self._documents:
            raise Unclear("a substitution follows a here-document")
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unclear("it is nested too deeply")
        before, self._found.document = len(self._found.commands), None
        self.read_list(closing=True)
        self._depth -= 1
        texts = [command.text for command in self._found.commands[before:]]
        if texts == ["cat"] and self._found.document is not None:
            del self._found.commands[before:]  # it only quotes
            return self._found.document.rstrip("\n")
        if len(texts) != 1 or self._found.loops >= _FUNCTION_LOOP:
            return ANY
        return PLACE if texts == ["pwd"] else NUMBER if _PRINTS_NUMBERS.fullmatch(texts[0]) else ANY

    # -- commands in commands --------------------------------------------------------------------

    def _add(self, command: ShellCommand) -> None:
        words, name = command.words, command.name
        if not words[0].literal:
            raise Unclear(f"the command `{words[0].source}` is not known before it runs")
        if _UNCLEAR.fullmatch(name) or (name in _EVALUATING and _evaluates(words)):
            raise Unclear(f"`{name}` may change or run other commands")
        if name in _DECLARING or name in ("read", "getopts"):
            self._declare(words)
        inside = look_inside(words)
        free = inside.free or name in _FREE
        if name == "set":
            free = all(re.fullmatch("[-+][euox]+|pipefail", word.value) for word in words[1:])
        # A path may lead to another program of that name, and a variable may change which program runs.
        free = free and words[0].value == name and not command.assigned
        self._found.commands.append(ShellCommand(words, command.assigned, free, command.repeats))
        self._found.files.add(words[0].value if inside.file is None else inside.file)
        self._add_inside(inside, command.repeats)

    def _add_inside(self, inside: Inside, repeats: bool) -> None:
        if self._depth > DEEPEST:
            raise Unclear("it is nested too deeply")
        self._depth += 1
        for part in inside.commands:
            self._add(ShellCommand(part, repeats=repeats))
        self._depth -= 1
        if inside.script is not None:
            _Reader(inside.script, self._found, self._depth + 1).read_list()

    def _declare(self, words: Words) -> None:
        """Take the variables that a builtin sets."""
        for word in words[1:]:
            if words[0].value in _DECLARING and re.match("[-+].*[nif]", word.value):
                raise Unclear(f"`{words[0].value} {word.value}` may change or run other commands")
            name, equals, value = word.value.partition("=")
            if has_gap(name):
                raise Unclear(f"the variable `{word.source}` is not known")
            if equals or words[0].value in ("read", "getopts"):
                self._found.assign(name.rstrip("+"), {value} if equals and not name.endswith("+") else {ANY})
        if words[0].value == "read":
            self._found.assign("REPLY", {ANY})


def _readings(words: list[Value]) -> list[Words]:
    """Return the commands that these words may be. An empty value without quotes is no word."""
    if prod(len(word.values) for word in words) > MOST_VALUES:
        words = [word if len(word.values) == 1 else Value(word.source, (WORDS,)) for word in words]
    readings = []
    for values in product(*(word.words() for word in words)):
        reading = tuple(word for word in values if word.value or re.search("['\"]", word.source))
        readings += [reading] if reading else []
    return readings


def _is_harmless(assignment: str, has_command: bool) -> bool:
    name = assignment.partition("=")[0].rstrip("+")
    return _HARMLESS.fullmatch(name) is not None or (not has_command and _LOCAL.fullmatch(name) is not None)


def _evaluates(words: Words) -> bool:
    takes_names = words[0].value in ("unset", "wait")
    return any(
        word.value == "-v"
        or (words[0].value == "wait" and word.value.startswith("-p"))
        or (takes_names and not word.literal)
        or ("[" in word.value and re.search("[$`\0]", word.value))
        for word in words[1:]
    )
