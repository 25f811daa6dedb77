"""Decides which tool calls may run, by rules and a mode.

A rule is `Tool` or `Tool(pattern)`, the notation that Claude Code has made known. Deny wins over ask, ask over allow;
where no rule fits, the mode decides. This module asks no questions and stores nothing; it reads the disk only to
resolve links.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from spindle.agent.fences import rule_paths
from spindle.agent.fences.links import from_home, home, is_far, real_path
from spindle.agent.fences.shell.forms import hidden_effect, is_known
from spindle.agent.fences.shell.gaps import ANY, PLACE, WORDS, Pattern, has_gap
from spindle.agent.fences.shell.lines import ShellCommand, ShellLine, read_line
from spindle.agent.fences.shell.outputs import files, foreign_repository, unknown_output
from spindle.agent.fences.shell.programs import Word, runs_others
from spindle.agent.fences.shell.reach import guessed, mentioned, places, spellings
from spindle.base.globs import GlobError
from spindle.base.spelling import letters_apart
from spindle.shapes.approvals import Behavior, Decision
from spindle.shapes.builtin_tools import KILL_TOOL, OUTPUT_TOOL, TODO_TOOL, TOOLS, Effect, of_kind, only_reads
from spindle.shapes.permission_modes import PERMISSION_MODES, PermissionMode
from spindle.shapes.protected_files import is_protected, names_protected
from spindle.tools.base import ToolError
from spindle.tools.files import resolve_path
from spindle.workspace.disk import existing

_READING: Final = of_kind("read", "search")
_EDITING: Final = of_kind("edit")
_BY_PATH: Final = (*_READING, *_EDITING)
_FAMILIES: Final = {"read": _READING, "edit": _EDITING}
"""A rule for the key holds for all of these tools."""
_OTHER_NAMES: Final = {
    "glob": "find",
    "multiedit": "edit",
    "todowrite": TODO_TOOL,
    "bashoutput": OUTPUT_TOOL,
    "killshell": KILL_TOOL,
}
_RULE_NAMES: Final = (*TOOLS, *_OTHER_NAMES)
_FOREIGN: Final = ("skill", "agent")
"""Tools of other programs whose names are near to ours."""
_SINKS: Final = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")
NO_RULE: Final = "no rule allows it"
"""A reason that says nothing about the call."""


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


class _JudgedCall(Struct, frozen=True, dict=True):
    """A call, prepared once for all rules."""

    tool: str
    arguments: Mapping[str, Any]
    cwd: str
    paths: tuple[str, ...] = ()
    """The path that the call names, then the same path with links resolved."""
    command: str | None = None
    line: ShellLine = ShellLine(())
    places: tuple[str, ...] = ()
    """Folders in which the commands may run: the working directory and the targets of `cd`; may have gaps."""

    @cached_property
    def texts(self) -> list[str]:
        return list(dict.fromkeys(spellings(self.command or "", self.line)))

    @cached_property
    def guesses(self) -> list[str]:
        return list(dict.fromkeys(guessed(self.line)))

    @cached_property
    def read_files(self) -> list[str]:
        return list(dict.fromkeys(mentioned("read", self.command or "", self.line, self.places)))

    @cached_property
    def changed_files(self) -> list[str]:
        return list(dict.fromkeys(mentioned("edit", self.command or "", self.line, self.places)))


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
    if pattern is not None and not pattern.strip():
        raise ValueError(
            f'Not a permission rule ({source}): "{text}" has an empty pattern. A rule for every call is {match[1]}'
        )
    if pattern is not None and pattern.strip() == "*":
        pattern = None
    if pattern is not None and tool in _BY_PATH:
        try:
            rule_paths.check(pattern)
        except GlobError as error:
            raise ValueError(f'Not a permission rule ({source}): "{text}": {error}') from None
    return Rule(behavior, tool, pattern, text.strip(), source)


@lru_cache(1000)
def misspelt(tool: str) -> str | None:
    """Return the built-in tool that the name in a rule was meant to be, if it is within two letters of one."""
    if tool in _RULE_NAMES or tool in _FOREIGN or "*" in tool or tool.startswith("mcp__"):
        return None
    near = {name: letters_apart(tool, name) for name in _RULE_NAMES}
    name = min(near, key=lambda one: near[one])
    return name if near[name] <= (2 if len(name) > 2 else 1) else None


def unknown_tools(rules: Iterable[Rule], tools: Iterable[str]) -> list[str]:
    """Return the rules whose tool is neither built in nor one of these."""
    names = [*_RULE_NAMES, *(name.lower() for name in tools)]
    return [rule.text for rule in rules if not any(_is_for(rule, name) for name in names)]


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


def _asked_anyway(policy: Policy, call: _JudgedCall, agreed: Sequence[str]) -> Decision | None:
    """Ask about a call that would be allowed, unless the user has agreed to the rules that allow it."""
    always, allowed = _allowing(policy, call)
    if allowed and not always and all(rule.text in agreed for rule in allowed):
        return None
    whole = call.tool if call.command is None else _exactly(call.command.strip())
    always = always or [rule.text for rule in allowed] or ([whole] if whole != _exactly("") else [])
    return Decision("ask", reason="every tool call is asked about", always=tuple(always))


def _unless_denied(policy: Policy, call: _JudgedCall, reads: bool) -> Decision:
    if rule := _first(policy, "ask", call):
        return Decision("ask", rule.text, rule.source)
    always, allowed = _allowing(policy, call)
    if (doubt := _doubt(policy, call)) and not any(_is_exact(rule, call.command or "") for rule in allowed):
        return Decision("ask", reason=doubt, always=(_exactly((call.command or "").strip()),))
    if allowed:
        return Decision("allow", ", ".join(rule.text for rule in allowed), ", ".join({r.source: 0 for r in allowed}))
    if not always:
        return Decision("allow", reason="it does nothing")
    if policy.mode == "bypass":
        return Decision("allow", reason="mode bypass")
    if reads and (not call.paths or _inside(call.paths[1], policy, (*policy.folders, *policy.readable))):
        return Decision("allow", reason="reading is free")
    if policy.mode == "acceptEdits" and call.tool in _EDITING and call.paths and _may_edit(call.paths, policy):
        return Decision("allow", reason="mode acceptEdits")
    return Decision("ask", reason=_why_not_allowed(policy, call), always=tuple(always))


def _why_not_allowed(policy: Policy, call: _JudgedCall) -> str:
    if call.line.unclear:
        return f"the command cannot be checked: {call.line.unclear}"
    if any(_is_git_elsewhere(command, call) for command in call.line.commands):
        return "git would obey the settings of another repository"
    return _hidden_effect(call, certain=False) or _hidden_output(policy, call) or NO_RULE


def _first(policy: Policy, behavior: Behavior, call: _JudgedCall) -> Rule | None:
    return next((rule for rule in policy.rules if rule.behavior == behavior and _names(rule, call)), None)


def _look_at(tool: str, arguments: Any, cwd: str) -> _JudgedCall:
    name = tool.lower()
    given = arguments if isinstance(arguments, Mapping) else {}
    if name == "bash" and isinstance(command := given.get("command"), str):
        line = read_line(command)
        return _JudgedCall(name, given, cwd, (), command, line, places(line, cwd))
    if name in _BY_PATH and isinstance(path := given.get("path", "."), str):
        try:
            meant = resolve_path(path or ".", cwd, home())
            if name == "read" and not is_far():
                meant = existing(meant)
            return _JudgedCall(name, given, cwd, (meant, real_path(meant)))
        except (ToolError, ValueError):
            pass  # the tool will refuse the path
    return _JudgedCall(name, given, cwd)


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


def _names(rule: Rule, call: _JudgedCall) -> bool:
    if _is_about_files(rule, call):
        return any(not has_gap(path) and _path_fits(rule, path, call) for path in _files(rule, call))
    shows = rule.tool == "read" and call.tool == "edit"  # its errors and its diff show what is in the file
    if not shows and not _is_for(rule, call.tool):
        return False
    if rule.pattern is None:
        return True
    if call.command is not None:
        return any(not has_gap(text) and _fits(rule.pattern, text) for text in call.texts)
    if call.paths:
        return any(_path_fits(rule, path, call) for path in call.paths)
    return any(_fits(rule.pattern, text) for text in _texts(call.arguments))


def _texts(value: Any) -> Iterator[str]:
    """Yield every text of the arguments of a call, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _is_about_files(rule: Rule, call: _JudgedCall) -> bool:
    """Say whether the rule is about files, and the call a shell line that may name them."""
    return call.command is not None and rule.pattern is not None and rule.tool in ("read", *_EDITING)


def _doubt(policy: Policy, call: _JudgedCall) -> str | None:
    """Return why a shell line may do what a deny or ask rule is about, though it does not say so."""
    if call.command is None:
        return None
    about_files = [rule for rule in policy.rules if rule.behavior != "allow" and _is_about_files(rule, call)]
    about_commands = [rule for rule in policy.rules if rule.behavior != "allow" and _is_for(rule, "bash")]
    if not about_files and not about_commands:
        return None
    if call.line.unclear:
        return f"the command cannot be checked: {call.line.unclear}"
    if rule := next((rule for rule in about_commands if _may_fit(rule, call)), None):
        return f"parts of the command are not known before it runs, and {_in_words(rule)} may be about it"
    if rule := next((rule for rule in about_commands if _may_be_run(rule, call)), None):
        return f"it may run another command, and {_in_words(rule)} is about that"
    if rule := next((rule for rule in about_files if _may_fit_file(rule, call)), None):
        return f"a file is not known before the command runs, and {_in_words(rule)} may be about it"
    return _hidden_effect(call, certain=True)


def _hidden_effect(call: _JudgedCall, *, certain: bool) -> str | None:
    effects = (hidden_effect(command.words, certain=certain) for command in call.line.commands)
    return next((effect for effect in effects if effect), None)


def _may_fit_file(rule: Rule, call: _JudgedCall) -> bool:
    paths = (path for path in _files(rule, call) if has_gap(path))
    return any(rule_paths.may_fit(rule.pattern or "", path, call.cwd) for path in paths)


def _files(rule: Rule, call: _JudgedCall) -> list[str]:
    return call.read_files if rule.tool == "read" else call.changed_files


def _in_words(rule: Rule) -> str:
    return f"rule {rule.text} of the {rule.source}"


def _path_fits(rule: Rule, path: str, call: _JudgedCall) -> bool:
    return rule_paths.fits(rule.pattern or "", path, call.cwd, wide=True)


def _may_fit(rule: Rule, call: _JudgedCall) -> bool:
    texts = [text for text in call.texts if has_gap(text)]
    return any(one.may_fit(text) for one in _patterns(rule.pattern or "*") for text in texts)


def _may_be_run(rule: Rule, call: _JudgedCall) -> bool:
    pattern = rule.pattern or "*"
    return any(
        any(one.may_fit(text) for one in _patterns(pattern)) if has_gap(text) else _fits(pattern, text)
        for text in call.guesses
        if not has_gap(text.partition(" ")[0])
    )


@lru_cache(1000)
def _patterns(pattern: str) -> list[Pattern]:
    if pattern.endswith(":*"):
        pattern = f"{pattern[:-2]} *"
    texts = [pattern, pattern[:-2]] if pattern.endswith(" *") else [pattern]
    tokens = [re.findall(r"(?s)\\\*|.", text) for text in texts]
    return [Pattern([ANY if token == "*" else token[-1] for token in one]) for one in tokens]


# -- allow: do rules cover all parts of the call? ------------------------------------------------


def _allowing(policy: Policy, call: _JudgedCall) -> tuple[list[str], list[Rule]]:
    """Return the rules that are missing for this call to be allowed, or if none is missing, the rules that allow it."""
    rules = [rule for rule in policy.rules if rule.behavior == "allow"]
    own = [rule for rule in rules if _is_for(rule, call.tool)]
    if whole := next((rule for rule in own if rule.pattern is None), None):
        return [], [whole]
    if call.command is not None:
        return _allowing_shell(policy, call, rules)
    if fit := next((rule for rule in own if _covers(rule.pattern or "", call)), None):
        return [], [fit]
    if call.paths and call.tool in _EDITING:
        return [_edit_rule(call.paths, call.cwd)], []
    return [rule_paths.suggested("Read", call.paths[1], call.cwd) if call.paths else call.tool], []


def _covers(pattern: str, call: _JudgedCall) -> bool:
    """Say whether a pattern fits the file of a call, or else its only argument if that is a text."""
    if call.paths and call.tool in _EDITING:
        return _covers_edit(pattern, call.paths, call.cwd)
    if call.paths:
        return rule_paths.fits(pattern, call.paths[1], call.cwd)
    values = list(call.arguments.values())
    return len(values) == 1 and isinstance(values[0], str) and _fits(pattern, values[0])


def _allowing_shell(policy: Policy, call: _JudgedCall, rules: list[Rule]) -> tuple[list[str], list[Rule]]:
    own = [rule for rule in rules if _is_for(rule, "bash")]
    exact = _exactly((call.command or "").strip())
    if same := next((rule for rule in own if _is_exact(rule, call.command or "")), None):
        return [], [same]
    if call.line.unclear or any("$" in word.source for command in call.line.commands for word in command.words[:1]):
        return [exact], []
    found = dict.fromkeys([*_for_commands(policy, call, own, exact), *_for_redirections(policy, call, rules, exact)])
    missing = [rule for rule in found if isinstance(rule, str)]
    return missing, [] if missing else [rule for rule in found if isinstance(rule, Rule)]


def _for_commands(policy: Policy, call: _JudgedCall, rules: list[Rule], exact: str) -> Iterator[Rule | str]:
    """Yield, for each command of a line, the rule that allows it, or else the text of a rule that would.

    `exact` is the rule for just this line.
    """
    for command in call.line.commands:
        if _is_git_elsewhere(command, call):
            yield exact
        elif not command.free and not _stays_inside(command, policy):
            more = hidden_effect(command.words, certain=False)
            fits = [rule for rule in rules if _fits(rule.pattern or "", command.text)]
            fit = next((rule for rule in fits if _is_exact(rule, command.text)), None)
            if not fit and not more:
                fit = next((rule for rule in fits if not _unasked(rule.pattern or "", command, call, policy)), None)
            yield fit or _suggested(command, call, policy, hidden=bool(more))


def _unasked(rule: str, command: ShellCommand, call: _JudgedCall, policy: Policy) -> str | None:
    """Return why a command may write a file of which this rule, that fits it, says nothing."""
    named = _named_words(rule, command)
    if why := unknown_output(command.words, named):
        return why
    for word in files(command.words, named):
        meant = _written(Word(word.source, _folder_of_names(word.value.replace(PLACE, call.cwd))), call)
        if not meant or any(not _inside(paths[-1], policy, policy.folders) for paths in meant):
            return f"`{word.source}` may be a file outside of the working directory that {command.name} writes"
        if any(_is_protected(paths, call.cwd) for paths in meant):
            return f"`{word.source}` may be a protected file that {command.name} writes"
    for word in foreign_repository(command.words):
        if word.value.startswith((".", "/")) or any(os.path.isdir(path) for _, path in _written(word, call)):
            return "git runs the hooks of a repository that it pushes to"
    return None


def _folder_of_names(path: str) -> str:
    """Return the folder of a path whose last name has wildcards, else the path."""
    folder, _, name = path.rpartition("/")
    return folder if folder and has_gap(name) and ANY not in name and WORDS not in name else path


def _named_words(rule: str, command: ShellCommand) -> int:
    """Return how many words of a command the rule says itself, before its first star."""
    known = re.split(r"(?<!\\)\*", f"{rule[:-2]} *" if rule.endswith(":*") else rule)[0].replace("\\*", "*")
    text, named = " ".join(command.assigned), 0
    for word in command.words:
        text = f"{text} {word.source}".lstrip()
        if not known.startswith(text) or known[len(text) : len(text) + 1] not in ("", " "):
            break
        named += 1
    return named


def _hidden_output(policy: Policy, call: _JudgedCall) -> str | None:
    """Return the reason of the first command of a line that a rule fits but does not cover."""
    patterns = [rule.pattern or "" for rule in policy.rules if rule.behavior == "allow" and _is_for(rule, "bash")]
    reasons = (
        _unasked(pattern, command, call, policy)
        for command in call.line.commands
        for pattern in patterns
        if _fits(pattern, command.text)
    )
    return next((reason for reason in reasons if reason), None)


def _suggested(command: ShellCommand, call: _JudgedCall, policy: Policy, *, hidden: bool) -> str:
    """Suggest a rule for a command: a wider one only if it covers what the command does."""
    rule = _command_rule(command)
    pattern = rule.removeprefix("Bash(").removesuffix(")")
    return _exactly(command.text) if hidden or _unasked(pattern, command, call, policy) else rule


def _for_redirections(policy: Policy, call: _JudgedCall, rules: list[Rule], exact: str) -> Iterator[Rule | str]:
    """Yield the same for each file that a line writes to."""
    editing = [rule for rule in rules if _is_for(rule, "write")]
    for word in call.line.writes:
        if word.value in _SINKS:
            continue
        written = _written(word, call)
        if not written:
            yield exact
        for paths in written:
            if fit := next((r for r in editing if r.pattern is None or _covers_edit(r.pattern, paths, call.cwd)), None):
                yield fit
            elif not (policy.mode == "acceptEdits" and _may_edit(paths, policy)):
                yield _edit_rule(paths, call.cwd)


def _stays_inside(command: ShellCommand, policy: Policy) -> bool:
    """Say whether the command only changes to a folder below the working directory."""
    words = command.words
    if command.assigned or len(words) != 2 or words[0].source != "cd" or not words[1].literal:
        return False
    return words[1].value != "-" and _inside(real_path(os.path.join(policy.cwd, words[1].value)), policy, ())


def _is_git_elsewhere(command: ShellCommand, call: _JudgedCall) -> bool:
    """Say whether git may work in another repository than that of the working directory, and obey its settings."""
    if command.name != "git" or len(call.places) == 1:
        return False
    root = real_path(call.cwd)
    for place in (real_path(place) for place in call.places if not has_gap(place)):
        parts = rule_paths.below(root, place)
        above = [os.path.join(root, *(parts or [])[:end]) for end in range(1, len(parts or []) + 1)]
        if parts is None or (parts and is_far()):
            return True
        if any(os.path.lexists(os.path.join(one, name)) for one in above for name in (".git", "HEAD")):
            return True
    return False


def _written(word: Word, call: _JudgedCall) -> list[tuple[str, str]]:
    """Return the files that a redirection may write to, as named and with links resolved; none if not known."""
    if not word.literal or not (os.path.isabs(word.value) or not any(has_gap(place) for place in call.places)):
        return []
    paths = [os.path.join(place, word.value) for place in call.places if not has_gap(place)]
    return [(os.path.normpath(path), real_path(path)) for path in paths]


def _command_rule(command: ShellCommand) -> str:
    """Suggest a rule: the command with the words behind it that look like sub-commands."""
    names = []
    for word in command.words[:3]:
        if not re.fullmatch(r"[a-z][\w:.-]*", word.source, re.ASCII):
            break
        names.append(word.source)
    name = command.name
    if command.assigned or not names or runs_others(name) or (len(names) == 1 and is_known(name)):
        return _exactly(command.text)
    return f"Bash({' '.join(names)} *)"


def _is_exact(rule: Rule, text: str) -> bool:
    """Say whether the rule is for this very text, which the user has read."""
    return f"Bash({rule.pattern})" == _exactly(text.strip())


def _exactly(text: str) -> str:
    return f"Bash({text})".replace("*", "\\*")


# -- paths ---------------------------------------------------------------------------------------


def _inside(path: str, policy: Policy, folders: Sequence[str]) -> bool:
    roots = [real_path(os.path.join(policy.cwd, from_home(root))) for root in (policy.cwd, *folders)]
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _may_edit(paths: Sequence[str], policy: Policy) -> bool:
    """Say whether a file may be edited freely: `paths` is its path, last with links resolved."""
    return _inside(paths[-1], policy, policy.folders) and not _is_protected(paths, policy.cwd)


def _is_protected(paths: Sequence[str], cwd: str) -> bool:
    return any(is_protected(path, real_path(cwd)) for path in paths)


def _covers_edit(pattern: str, paths: Sequence[str], cwd: str) -> bool:
    """Say whether an allow rule is about a file. A wildcard does not stand for protected files: a rule names them."""
    if not rule_paths.fits(pattern, paths[-1], cwd):
        return False
    return rule_paths.is_exact(pattern) or names_protected(pattern) or not _is_protected(paths, cwd)


def _edit_rule(paths: Sequence[str], cwd: str) -> str:
    return rule_paths.suggested("Edit", paths[-1], cwd, exact=_is_protected(paths, cwd))
