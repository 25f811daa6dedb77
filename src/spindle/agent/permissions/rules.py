"""Decides which tool calls may run, by rules and a mode.

A rule is `Tool` or `Tool(pattern)`, the notation that Claude Code has made known. Deny wins over ask, ask over allow;
where no rule fits, the mode decides. This module asks no questions and stores nothing; it reads the disk only to
resolve links.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from spindle.agent.permissions.shell_lines import ShellCommand, ShellLine, Word, read_line
from spindle.base.globs import GlobError, PathGlob, expand_braces
from spindle.shapes.builtin_tools import TODO_TOOL, Effect, of_kind, only_reads
from spindle.shapes.events import Behavior, Decision
from spindle.shapes.permission_modes import PERMISSION_MODES, PermissionMode
from spindle.shapes.protected_files import is_protected
from spindle.tools.base import ToolError
from spindle.tools.files import resolve_existing, resolve_path

_READING: Final = of_kind("read", "search")
_EDITING: Final = of_kind("edit")
_BY_PATH: Final = (*_READING, *_EDITING)
_FAMILIES: Final = {"read": _READING, "edit": _EDITING}
"""A rule for the key holds for all of these tools."""
_OTHER_NAMES: Final = {"glob": "find", "multiedit": "edit", "todowrite": TODO_TOOL}
_SINKS: Final = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")
_ONLY_NAMING: Final = ("echo", "printf", "test", "[", "ls", "stat", "mkdir", "basename", "dirname", "cd")
"""Commands that do not open the files they are given."""
_ONLY_READING: Final = (
    "cat",
    "head",
    "tail",
    "less",
    "more",
    "grep",
    "egrep",
    "fgrep",
    "rg",
    "wc",
    "diff",
    "cmp",
    "file",
)
_IGNORE_CASE: Final = sys.platform == "darwin"


class Rule(Struct, frozen=True):
    behavior: Behavior
    tool: str
    """In lower case; may have `*` in it."""
    pattern: str | None
    """None: every call."""
    text: str
    source: str
    """Where the rule comes from, in words for the user."""


class Policy(Struct, frozen=True):
    cwd: str
    mode: PermissionMode = "bypass"
    rules: Sequence[Rule] = ()
    folders: Sequence[str] = ()
    """Folders besides the working directory where reading is free, and editing too if the mode says so."""
    readable: Sequence[str] = ()
    """Folders where only reading is free: those of skills."""


class _Call(Struct, frozen=True):
    """A call, prepared once for all rules."""

    tool: str
    arguments: Mapping[str, Any]
    cwd: str
    paths: tuple[str, ...] = ()
    """The path that the call names, then the same path with links resolved."""
    command: str | None = None
    line: ShellLine = ShellLine(())
    places: tuple[str, ...] = ()
    """Folders in which the commands may run: the working directory and the targets of `cd`."""


def mode_named(text: str) -> PermissionMode:
    """Return the mode with this name. Raises `ValueError` if there is none."""
    for mode in PERMISSION_MODES:
        if text == mode or text == f"{mode}Permissions":
            return mode
    raise ValueError(f'Unknown permission mode "{text}". There are: {", ".join(PERMISSION_MODES)}')


def rules_of(behavior: Behavior, texts: Iterable[str], source: str) -> list[Rule]:
    """Read rules. Raises `ValueError` for an invalid rule, which must not be skipped in silence."""
    return [_parse(behavior, text, source) for text in texts]


@lru_cache(1000)
def _parse(behavior: Behavior, text: str, source: str) -> Rule:
    match = re.fullmatch(r"(?s)\s*([\w*.:-]+)(?:\((.*)\))?\s*", text)
    if match is None:
        raise ValueError(f'Not a permission rule ({source}): "{text}". A rule is Tool or Tool(pattern)')
    tool, pattern = match[1].lower(), match[2]
    tool = _OTHER_NAMES.get(tool, tool)
    if pattern is not None and pattern.strip() in ("", "*"):
        pattern = None
    if pattern is not None and tool in _BY_PATH:
        try:
            _globs(_anchored(pattern, "/", wide=True)[1])
        except GlobError as error:
            raise ValueError(f'Not a permission rule ({source}): "{text}": {error}') from None
    return Rule(behavior, tool, pattern, text.strip(), source)


# -- the decision --------------------------------------------------------------------------------


def decide(
    policy: Policy,
    tool: str,
    arguments: Any,
    *,
    ask: bool = False,
    effect: Effect | None = None,
    agreed: Sequence[str] = (),
) -> Decision:
    """Decide about a call. `effect` is what the tool declares about itself.

    With `ask`, a call that would be allowed is asked about too, unless all rules that allow it are in `agreed`.
    """
    call = _look_at(tool, arguments, policy.cwd)
    if rule := _first(policy, "deny", call):
        return Decision("deny", rule.text, rule.source)
    reads = only_reads(call.tool) or effect == "reads"
    if policy.mode == "plan" and not reads:
        return Decision("deny", reason="plan mode: only reading is allowed")
    decision = _unless_denied(policy, call, reads)
    if effect == "destroys" and decision.behavior == "ask" and decision.rule is None:
        decision = msgspec.structs.replace(decision, reason=f"{decision.reason}, and it says that it may destroy data")
    if ask and decision.behavior == "allow":
        decision = _asked_anyway(policy, call, agreed) or decision
    if decision.behavior == "ask" and policy.mode == "dontAsk":
        return Decision(
            "deny", decision.rule, decision.source, f"mode dontAsk: {decision.reason or 'it would be asked'}"
        )
    return decision


def _asked_anyway(policy: Policy, call: _Call, agreed: Sequence[str]) -> Decision | None:
    """Ask about a call that would be allowed, unless the user has agreed to the rules that allow it."""
    always, allowed = _allowing(policy, call)
    if allowed and not always and all(rule.text in agreed for rule in allowed):
        return None
    whole = call.tool if call.command is None else _exactly(call.command.strip())
    always = always or [rule.text for rule in allowed] or [whole]
    return Decision("ask", reason="every tool call is asked about", always=tuple(always))


def _unless_denied(policy: Policy, call: _Call, reads: bool) -> Decision:
    if rule := _first(policy, "ask", call):
        return Decision("ask", rule.text, rule.source)
    always, allowed = _allowing(policy, call)
    if allowed:
        return Decision("allow", ", ".join(rule.text for rule in allowed), ", ".join({r.source: 0 for r in allowed}))
    if not always:
        return Decision("allow", reason="it does nothing")
    unclear = call.line.unclear
    if policy.mode == "bypass":
        if unclear and any(rule.tool == "bash" and rule.behavior != "allow" for rule in policy.rules):
            return Decision("ask", reason=f"the command cannot be checked: {unclear}", always=tuple(always))
        return Decision("allow", reason="mode bypass")
    if reads and (not call.paths or _inside(call.paths[1], policy, (*policy.folders, *policy.readable))):
        return Decision("allow", reason="reading is free")
    if policy.mode == "acceptEdits" and call.tool in _EDITING and call.paths and _may_edit(call.paths, policy):
        return Decision("allow", reason="mode acceptEdits")
    reason = f"the command cannot be checked: {unclear}" if unclear else "no rule allows it"
    return Decision("ask", reason=reason, always=tuple(always))


def _first(policy: Policy, behavior: Behavior, call: _Call) -> Rule | None:
    return next((rule for rule in policy.rules if rule.behavior == behavior and _names(rule, call)), None)


def _look_at(tool: str, arguments: Any, cwd: str) -> _Call:
    name = tool.lower()
    given = arguments if isinstance(arguments, Mapping) else {}
    if name == "bash" and isinstance(command := given.get("command"), str):
        line = read_line(command)
        return _Call(name, given, cwd, (), command, line, _places(line, cwd))
    if name in _BY_PATH and isinstance(path := given.get("path", "."), str):
        try:
            meant = resolve_existing(path or ".", cwd) if name == "read" else resolve_path(path or ".", cwd)
            return _Call(name, given, cwd, (meant, os.path.realpath(meant)))
        except (ToolError, ValueError):
            pass  # the tool will refuse the path
    return _Call(name, given, cwd)


def _is_for(rule: Rule, tool: str) -> bool:
    return (
        _fits(rule.tool, tool)
        or tool in _FAMILIES.get(rule.tool, ())
        or (rule.tool.startswith("mcp__") and rule.tool.count("__") == 1 and tool.startswith(f"{rule.tool}__"))
    )


def _fits(pattern: str, text: str) -> bool:
    r"""Say whether a pattern fits: `*` stands for anything, `\*` for itself. A final ` *` (or `:*`) may fit nothing."""
    if pattern.endswith(":*"):
        pattern = f"{pattern[:-2]} *"
    first, *rest = (piece.replace("\\*", "*") for piece in re.split(r"(?<!\\)\*", pattern))
    if not rest:
        return text == first
    if pattern.endswith(" *") and len(rest) == 1 and text == first[:-1]:
        return True
    at = len(first) if text.startswith(first) else -1
    for piece in rest[:-1]:
        at = text.find(piece, at) + len(piece) if at >= 0 and piece in text[at:] else -1
    return at >= 0 and text.endswith(rest[-1]) and len(text) - len(rest[-1]) >= at


# -- deny and ask: does a rule name any part of the call? ----------------------------------------


def _names(rule: Rule, call: _Call) -> bool:
    if call.command is not None and rule.pattern is not None and rule.tool in ("read", *_EDITING):
        return any(_path_fits(rule.pattern, path, call.cwd, wide=True) for path in _mentioned(rule.tool, call))
    if not _is_for(rule, call.tool):
        return False
    if rule.pattern is None:
        return True
    if call.command is not None:
        return any(_fits(rule.pattern, text) for text in _spellings(call.command, call.line))
    if call.paths:
        return any(_path_fits(rule.pattern, path, call.cwd, wide=True) for path in call.paths)
    return any(_fits(rule.pattern, value) for value in call.arguments.values() if isinstance(value, str))


def _spellings(command: str, line: ShellLine) -> Iterator[str]:
    """Yield every text that a rule may mean: each command as it was written, without quotes, without its folder."""
    yield command.strip()
    for part in line.commands:
        values = [word.value for word in part.words]
        yield part.text
        yield " ".join(values)
        yield " ".join([part.name, *values[1:]])
    for text in _fragments(command) if line.unclear else ():
        first, blank, rest = text.partition(" ")
        yield text
        yield first.rpartition("/")[2] + blank + rest


def _fragments(command: str) -> Iterator[str]:
    """Yield every text that may be a command in a line that cannot be read."""
    for piece in re.split(r"[\n;&|(){}`<>=$]+", re.sub(r"[\"'\\]", "", command)):
        words = piece.split()
        for start in range(len(words)):
            yield " ".join(words[start : start + 50])


def _mentioned(tool: str, call: _Call) -> Iterator[str]:
    """Yield the files that a shell line names and may open, as far as the line shows them."""
    line, texts = call.line, []
    if line.unclear:
        texts = re.findall(r"[^\s\"'`;&|<>()=@{},\\]+", call.command or "")
    else:
        texts = [word.value for word in (line.reads if tool == "read" else line.writes)]
        for command in line.commands:
            if command.name not in _ONLY_NAMING and (tool == "read" or command.name not in _ONLY_READING):
                for word in command.words[1:]:
                    texts += [word.value, *re.split("[=@]", word.value)[1:]]
    for text in dict.fromkeys(texts):
        for named in _braces(re.sub(r"\$HOME|\$\{HOME\}", "~", text)):
            for place in call.places if len(named) < 4096 else ():
                try:
                    path = resolve_path(named, place)
                except ToolError:
                    continue
                yield path
                yield os.path.realpath(path)


def _braces(text: str) -> list[str]:
    try:
        return expand_braces(text)
    except GlobError:
        return [text]


def _places(line: ShellLine, cwd: str) -> tuple[str, ...]:
    places = [cwd]
    for command in line.commands:
        if command.name in ("cd", "pushd") and len(command.words) > 1:
            places.append(os.path.normpath(os.path.join(places[-1], os.path.expanduser(command.words[-1].value))))
    return tuple(places)


# -- allow: do rules cover all parts of the call? ------------------------------------------------


def _allowing(policy: Policy, call: _Call) -> tuple[list[str], list[Rule]]:
    """Return the rules that are missing for this call to be allowed, or if none is missing, the rules that allow it."""
    rules = [rule for rule in policy.rules if rule.behavior == "allow"]
    own = [rule for rule in rules if _is_for(rule, call.tool)]
    if whole := next((rule for rule in own if rule.pattern is None), None):
        return [], [whole]
    if call.command is not None:
        return _allowing_shell(policy, call, rules)
    if fit := next((rule for rule in own if _covers(rule.pattern or "", call)), None):
        return [], [fit]
    return [_path_rule(call.tool, call.paths[1], call.cwd) if call.paths else call.tool], []


def _covers(pattern: str, call: _Call) -> bool:
    """Say whether a pattern fits the file of a call, or else its only argument if that is a text."""
    if call.paths:
        return _path_fits(pattern, call.paths[1], call.cwd)
    values = list(call.arguments.values())
    return len(values) == 1 and isinstance(values[0], str) and _fits(pattern, values[0])


def _allowing_shell(policy: Policy, call: _Call, rules: list[Rule]) -> tuple[list[str], list[Rule]]:
    own = [rule for rule in rules if _is_for(rule, "bash")]
    exact = _exactly((call.command or "").strip())
    for rule in own:  # a rule for this very line, which the user has read
        if f"Bash({rule.pattern})" == exact:
            return [], [rule]
    if call.line.unclear:
        return [exact], []
    found = dict.fromkeys([*_for_commands(policy, call, own), *_for_redirections(policy, call, rules, exact)])
    missing = [rule for rule in found if isinstance(rule, str)]
    return missing, [] if missing else [rule for rule in found if isinstance(rule, Rule)]


def _for_commands(policy: Policy, call: _Call, rules: list[Rule]) -> Iterator[Rule | str]:
    """Yield, for each command of a line, the rule that allows it, or else the text of a rule that would."""
    for command in call.line.commands:
        if not command.free and not _stays_inside(command, policy):
            fit = next((rule for rule in rules if _fits(rule.pattern or "", command.text)), None)
            yield fit or _command_rule(command)


def _for_redirections(policy: Policy, call: _Call, rules: list[Rule], exact: str) -> Iterator[Rule | str]:
    """Yield the same for each file that a line writes to. `exact` is the rule for just this line."""
    editing = [rule for rule in rules if _is_for(rule, "write")]
    for word in call.line.writes:
        if word.value in _SINKS:
            continue
        paths = _written(word, call)
        if not paths:
            yield exact
        for path in paths:
            if fit := next((r for r in editing if r.pattern is None or _path_fits(r.pattern, path, call.cwd)), None):
                yield fit
            elif not (policy.mode == "acceptEdits" and _may_edit((path,), policy)):
                yield _path_rule("write", path, call.cwd)


def _stays_inside(command: ShellCommand, policy: Policy) -> bool:
    """Say whether the command only changes to a folder below the working directory."""
    words = command.words
    if command.assigned or len(words) != 2 or words[0].source != "cd" or not words[1].literal:
        return False
    return words[1].value != "-" and _inside(os.path.realpath(os.path.join(policy.cwd, words[1].value)), policy, ())


def _written(word: Word, call: _Call) -> list[str]:
    """Return the files that a redirection may write to; none if that is not known."""
    moves = [command for command in call.line.commands if command.name in ("cd", "pushd", "popd")]
    known = all(len(c.words) == 2 and c.words[1].literal and c.words[1].value != "-" for c in moves)
    if not word.literal or not (known or os.path.isabs(word.value)):
        return []
    return [os.path.realpath(os.path.join(place, word.value)) for place in call.places]


def _command_rule(command: ShellCommand) -> str:
    """Suggest a rule: the command with the words behind it that look like sub-commands."""
    names = []
    for word in command.words[:3]:
        if not re.fullmatch(r"[a-z][\w:.-]*", word.source, re.ASCII):
            break
        names.append(word.source)
    if command.assigned or not names or command.name in ("sudo", "doas", "env", "xargs", "find", "exec", "rm"):
        return _exactly(command.text)
    return f"Bash({' '.join(names)} *)"


def _exactly(text: str) -> str:
    return f"Bash({text})".replace("*", "\\*")


# -- paths ---------------------------------------------------------------------------------------


def _inside(path: str, policy: Policy, folders: Sequence[str]) -> bool:
    roots = [os.path.realpath(os.path.join(policy.cwd, os.path.expanduser(root))) for root in (policy.cwd, *folders)]
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _may_edit(paths: Sequence[str], policy: Policy) -> bool:
    """Say whether a file may be edited freely: `paths` is its path, last with links resolved."""
    root = os.path.realpath(policy.cwd)
    return _inside(paths[-1], policy, policy.folders) and not any(is_protected(path, root) for path in paths)


def _anchored(pattern: str, cwd: str, *, wide: bool) -> tuple[str, str]:
    """Return the folder that a pattern begins at, and the part of the pattern from its first wildcard on."""
    if pattern.startswith("//"):
        base, pattern = "/", pattern[2:]
    elif pattern == "~" or pattern.startswith("~/"):
        base, pattern = os.path.expanduser("~"), pattern[2:]
    elif "/" not in pattern.rstrip("/") and pattern not in (".", "..", "/", "./", "../"):
        base, pattern = "/" if wide else cwd, f"**/{pattern}"  # a mere name, at any depth
    else:
        base, pattern = cwd, pattern.lstrip("/")
    if pattern.endswith("/") or pattern in ("", ".", ".."):
        pattern = f"{pattern.rstrip('/')}/**".lstrip("/")
    parts = pattern.split("/")
    plain = next((i for i, part in enumerate(parts) if re.search(r"[*?\[{\\]", part)), len(parts))
    return os.path.normpath(os.path.join(base, *parts[:plain])), "/".join(parts[plain:])


@lru_cache(1000)
def _globs(pattern: str) -> list[PathGlob]:
    return [PathGlob(one, _IGNORE_CASE) for one in expand_braces(pattern)] if pattern else []


def _path_fits(pattern: str, path: str, cwd: str, *, wide: bool = False) -> bool:
    """Say whether a pattern fits an absolute path. `wide`: a parent folder fits too, a mere name fits everywhere."""
    folder, rest = _anchored(pattern, cwd, wide=wide)
    globs = _globs(rest)
    for base in {folder, os.path.realpath(folder)}:
        if wide and not rest and re.search(r"[*?\[]", path) and _is_glob_for(path, base):
            return True
        parts = _below(base, path)
        if parts is None:
            continue
        if (not rest and (wide or not parts)) or (wide and not parts and rest == "**"):
            return True
        ends = range(1, len(parts) + 1) if wide else (len(parts),)
        if any(glob.match(parts[:end]) for glob in globs for end in ends):
            return True
    return False


def _below(base: str, path: str) -> list[str] | None:
    if _IGNORE_CASE:
        base, path = base.lower(), path.lower()
    if path == base:
        return []
    prefix = base.rstrip("/") + "/"
    return path[len(prefix) :].split("/") if path.startswith(prefix) else None


def _is_glob_for(word: str, path: str) -> bool:
    """Say whether a word with wildcards, as a shell would expand it, may mean this file."""
    try:
        return PathGlob(word, _IGNORE_CASE).match(path.split("/"))
    except GlobError:
        return False


def _path_rule(tool: str, path: str, cwd: str) -> str:
    """Suggest a rule: the folder of the file, or the file itself if it lies directly in the working directory."""
    kind = "Read" if tool in _READING else "Edit"
    inside = _below(os.path.realpath(cwd), path)
    shown = [re.sub(r"([*?\[{\\])", r"\\\1", part) for part in (path.split("/")[1:] if inside is None else inside)]
    start = "//" if inside is None else "./"
    if len(shown) > 1:
        return f"{kind}({start}{'/'.join(shown[:-1])}/**)"
    return f"{kind}({start}{'/'.join(shown)})"
