"""What a shell line may run and open beyond its plain words, as far as the line shows it. Both may have gaps."""

import itertools
import os
import re
from collections.abc import Iterator
from typing import Final

from spindle.agent.fences import rule_paths
from spindle.agent.fences.links import home, real_path
from spindle.agent.fences.shell.forms import is_read
from spindle.agent.fences.shell.gaps import ANY, PLACE, WORDS, has_gap
from spindle.agent.fences.shell.lines import ShellCommand, ShellLine
from spindle.agent.fences.shell.programs import INTERPRETERS, found_file, runs_others

_MOST_UNCLEAR: Final = 20_000
"""Characters of a line that cannot be read in which rules are looked for. It is asked about anyway."""
_MOST_PLACES: Final = 16
_MOST_GUESSES: Final = 200
"""Words of a command that may each begin another one."""
_LONGEST_GUESS: Final = 50
"""Words of such a command."""
_ONLY_NAMING = re.compile(
    r"echo|printf|test|\[|ls|stat|mkdir|basename|dirname|realpath|readlink|cd|pushd|popd|pwd|which|type|command|exit|"
    "return|export|declare|local|readonly|typeset|unset|read|shift|set|trap|kill|sleep|seq|true|false|:|wait"
)
"""Commands that do not open the files they are given."""
_ONLY_READING = re.compile(
    r"cat|head|tail|less|more|[ef]?grep|rg|wc|diff|cmp|comm|file|md5sum|sha\d*sum|cut|jq|od|strings"
)
_ONLY_CHANGING = re.compile("rm|rmdir|touch|chmod|chown")
_TOKEN = re.compile(r"""[^\s'"`()\[\]{};,<>|]+""")
"""A part of a program that may be a file."""
_GIT_WITHOUT_FILES = re.compile(
    "checkout|switch|branch|rev-parse|rev-list|merge|rebase|commit|tag|fetch|pull|push|reset|status|describe|merge-base|"
    "remote|cherry-pick|revert|worktree|clone|init|log|stash|ls-remote|symbolic-ref|for-each-ref"
)
"""Commands of git that open none of the files they are given; only a word that says it is taken for a file."""
_RUNS_NO_WORDS = re.compile(
    f"{_ONLY_NAMING.pattern}|{_ONLY_READING.pattern}|{_ONLY_CHANGING.pattern}|cp|mv|ln|tee|sort|uniq|tr|patch|split|tree|"
    "tar|zip|unzip|gzip|gunzip|du|df|date|curl|wget|rsync|yq|man|pip3?|apt|apt-get|apk|brew|dnf|yum"
)
"""Programs that run none of the words they are given, but for forms that `programs` knows."""


def spellings(command: str, line: ShellLine) -> Iterator[str]:
    """Yield every text that a rule may mean: each command as written, without quotes, folder or first options."""
    yield command.strip()
    for part in line.commands:
        values = [word.value for word in part.words]
        yield part.text
        yield _text(values)
        yield _text([part.name, *values[1:]])
        for at in range(1, len(values) - 1):
            if not values[at].startswith("-") and not values[at - 1].startswith("-"):
                break
            yield _text([part.name, *values[at + 1 :]])
    if line.unclear:
        yield from _fragments(command[:_MOST_UNCLEAR])


def _text(values: list[str]) -> str:
    """Join words. A gap that may be no word at all takes the blanks around it."""
    return re.sub(f" ?{WORDS} ?", WORDS, " ".join(values))


def guessed(line: ShellLine) -> Iterator[str]:
    """Yield every text that may be a command which a program runs that is not known: from its words, or its input."""
    for part in line.commands:
        for text in part.assigned if part.words else ():
            yield from _fragments(text)
        if _may_run_words(part.name):
            values = [word.value for word in part.words[:_MOST_GUESSES]]
            for at in range(1, len(values)):
                yield from _with_and_without_folder(" ".join(values[at : at + _LONGEST_GUESS]))
                if re.search(r"\s", values[at]):
                    yield from _fragments(values[at][:_MOST_UNCLEAR])
    for text in _programs(line):
        yield from _fragments(text[:_MOST_UNCLEAR])


def _programs(line: ShellLine) -> Iterator[str]:
    """Yield the texts of a line that a program may read which does what they say: straight, or through a pipe."""
    piped = line.pipes and any(_reads_programs(part.name) for part in line.commands)
    for name, text in line.fed:
        if piped or _reads_programs(name):
            yield text
    for part in line.commands if piped else ():
        if part.name in ("echo", "printf"):
            text = " ".join(word.value for word in part.words[1:])
            yield from dict.fromkeys([text, re.sub(r"\\[abefnrtv]", "\n", text)])


def _may_run_words(name: str) -> bool:
    """Say whether a program may run what its words say, in a way that nothing here knows."""
    return not is_read(name) and _RUNS_NO_WORDS.fullmatch(name) is None


def _reads_programs(name: str) -> bool:
    """Say whether a program may do what a text says that it reads from its input."""
    name = name.rpartition("/")[2]
    return _may_run_words(name) or runs_others(name)


def _fragments(text: str) -> Iterator[str]:
    """Yield every text that may be a command in a text that cannot be read: a shell line, or a program."""
    for instead in dict.fromkeys(["", " "] if re.search(r"[\"'\\,\[\]]", text) else [""]):
        for piece in re.split(r"[\n:;&|(){}`<>=$!]+", re.sub(r"[\"'\\,\[\]]", instead, text)):
            words = piece.split()
            for start in range(len(words)):
                yield from _with_and_without_folder(" ".join(words[start : start + _LONGEST_GUESS]))


def _with_and_without_folder(text: str) -> tuple[str, str]:
    first, blank, rest = text.partition(" ")
    return text, first.rpartition("/")[2] + blank + rest


def mentioned(tool: str, command: str, line: ShellLine, places: tuple[str, ...]) -> Iterator[str]:
    """Yield the files that a shell line names and may open, as far as the line shows them; they may have gaps."""
    texts: list[str] = []
    if line.unclear:
        texts = re.findall(r"[^\s\"'`;&|<>()=@{},\\]+", command[:_MOST_UNCLEAR])
        texts = [re.sub(r"^(?:~|\$HOME|\$\{HOME\})(?=/|$)", home(), text) for text in texts]
    else:
        texts = [word.value for word in (line.reads if tool == "read" else line.writes)]
        for part in line.commands:
            texts += _opened(part, tool)
            texts += _not_named(part) if tool == "read" else _changed_unnamed(part, places[0])
        for text in _programs(line):
            texts += [token for token in _TOKEN.findall(text[:_MOST_UNCLEAR]) if not has_gap(token)]
        if any(part.name == "ln" for part in line.commands):  # a link of this line may lead anywhere
            texts += [f"{ANY}/{text.rpartition('/')[2]}" for text in texts if "/" in text]
    for text in dict.fromkeys(texts):
        for place in places:
            try:
                yield from rule_paths.named(text, place)
            except ValueError:  # no path has a null character
                continue


def _opened(command: ShellCommand, tool: str) -> Iterator[str]:
    """Yield the words of a command that may be files it opens."""
    opens_none = _ONLY_CHANGING if tool == "read" else _ONLY_READING
    if _ONLY_NAMING.fullmatch(command.name) or opens_none.fullmatch(command.name):
        return
    values = [word.value for word in command.words]
    only_named = command.name == "git" and any(_GIT_WITHOUT_FILES.fullmatch(value) for value in values[1:4])
    only_named = only_named and not any(re.fullmatch("-[a-zA-Z]*[Ft]|--(?:file|template).*", value) for value in values)
    for word in command.words[1:]:
        if only_named and not word.literal:
            continue
        yield word.value
        if not re.search(r"\s", word.value):
            yield from re.split("[=@:]", word.value)
            yield from re.findall("^-[a-zA-Z](.+)", word.value)
        if INTERPRETERS.fullmatch(command.name):
            yield from _TOKEN.findall(word.value)
            yield from re.findall(r"[rRwW]([^\s/;]+)", word.value) if command.name == "sed" else ()
        elif not only_named:
            yield from (token for token in _TOKEN.findall(word.value) if not has_gap(token))


def _not_named(command: ShellCommand) -> list[str]:
    """Return a gap if the command reads a list of the files that it opens."""
    lists = "-[a-zA-Z]*T.*|--files0?-from.*|-files0-from" if command.name == "tar" else "--files0?-from.*|-files0-from"
    return [ANY] if any(re.fullmatch(lists, word.value) for word in command.words[1:]) else []


def _changed_unnamed(command: ShellCommand, cwd: str) -> list[str]:
    """Return what a command changes without naming it: what a patch says, or all in the working directory."""
    values = [word.value for word in command.words[1:]]
    if command.name == "patch" or (command.name == "git" and "apply" in values[:3]):
        return [ANY]
    if command.name == "git":
        return [ANY] if "clean" in values[:3] and any(re.match("-[a-zA-Z]*[xX]", value) for value in values) else []
    if command.name == "find":
        return [found_file(command.words)] if "-delete" in values else []
    if command.name != "rm" or not any(re.fullmatch("-[a-zA-Z]*[rR][a-zA-Z]*|--recursive", value) for value in values):
        return []
    folders = [os.path.normpath(os.path.join(cwd, value)) for value in values if not has_gap(value)]
    return [f"{folder}/{ANY}" for folder in folders if f"{cwd}/".startswith(f"{folder.rstrip('/')}/")]


def places(line: ShellLine, cwd: str) -> tuple[str, ...]:
    """Return the folders that the line may change to. A loop may change again and again: that is not guessed."""
    found, known = {cwd: None}, True
    for command in line.commands:
        for wanted in _targets(command):
            target = wanted.replace(PLACE, "").lstrip("/") if wanted.startswith(PLACE) else wanted
            known = known and not command.repeats and not has_gap(target)
            for place in list(found) if not has_gap(target) else ():
                path = os.path.join(place, target)
                found |= {os.path.normpath(path): None, real_path(path): None}
        if len(found) > _MOST_PLACES:
            return (cwd, ANY)
    return tuple(found) if known else (*found, ANY)


def _targets(command: ShellCommand) -> list[str]:
    """Return the folders that the command changes to, or works in."""
    values = [word.value for word in command.words[1:]]
    if command.name in ("cd", "pushd", "popd"):
        named = [value for value in values if not re.match(r"[-+]", value)]
        if command.name == "cd" and not values:
            return [home()]
        return named[:1] if named else [] if "-" in values else [".."] if command.name == "cd" else []
    found = [
        re.sub("^(?:-C|--chdir=|--directory=|--prefix=|--cwd=)", "", value)
        for value in values
        if re.match("-C.|--(?:chdir|directory)=", value)
    ]
    if command.name == "find" and any(value in ("-execdir", "-okdir") for value in values):
        found.append(ANY)
    options = ("-C", "--chdir", "--directory", *(["-D"] if command.name == "sudo" else []))
    return found + [after for value, after in itertools.pairwise(values) if value in options]
