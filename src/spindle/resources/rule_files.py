"""Stream rules: Markdown files that say what a model must not write, and what to tell it when it does.

The front matter has the pattern (`condition`), where to look for it (`scope`, `globs`) and whether to stop the model
in mid-sentence (`interruptMode`); the body is what the model is told. Files without a usable condition are no stream
rules and are ignored.
"""

import os
import re
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from spindle.base.user_files import Diagnostic, read_text
from spindle.resources.frontmatter import BadFrontMatter, split_front_matter
from spindle.resources.sources import ancestors
from spindle.shapes.messages import Wire

InterruptMode = Literal["never", "prose-only", "tool-only", "always"]
_MODES = get_args(InterruptMode)
_CLINERULES = ".clinerules"
"""A folder, or one file."""
_SCOPE = r"(?P<name>[\w-]+)(?::(?P<tool>[\w-]+))?(?:\((?P<glob>[^)]*)\))?"


class RuleScope(msgspec.Struct, frozen=True):
    """One place where a rule looks: `text`, `thinking`, or the arguments of a tool call."""

    kind: Literal["text", "thinking", "tool"]
    tool: str | None = None
    """None: any tool."""
    glob: str | None = None
    """A path argument of the call must match."""


class StreamRule(Wire, kw_only=True):
    name: str
    path: str
    content: str
    """What the model is told."""
    condition: list[str]
    """Regular expressions; one match is enough."""
    scope: list[str] | None = None
    globs: list[str] | None = None
    always_apply: bool = msgspec.field(default=False)
    description: str | None = None
    interrupt_mode: InterruptMode | None = None
    """None: as the settings say."""
    source: dict[str, str] = msgspec.field(name="_source")

    def patterns(self) -> list[re.Pattern[str]]:
        return [re.compile(pattern) for pattern in self.condition]

    def scopes(self) -> list[RuleScope]:
        """Return where to look; by default the text and any tool call, not the thinking."""
        if not self.scope:
            return [RuleScope("text"), RuleScope("tool")]
        return [found for token in self.scope if (found := _parse_scope(token)) is not None]


def load_rules(cwd: Path, agent_dir: Path, *, project_trusted: bool) -> tuple[list[StreamRule], list[Diagnostic]]:
    """Return the stream rules that hold in `cwd`; the first of two equal names wins."""
    rules: dict[str, StreamRule] = {}
    problems: list[Diagnostic] = []
    of_project = [cwd / ".pi" / "rules", *_foreign_places(cwd)] if project_trusted else []
    places = [(place, "project") for place in of_project]
    places += [(place, "user") for place in (agent_dir / "rules", *_user_places())]
    for place, level in places:
        for path in _in(place):
            if path.stem not in rules and (rule := _read(path, level, problems)):
                rules[rule.name] = rule
    return list(rules.values()), problems


def foreign_rule_places(cwd: Path) -> list[Path]:
    """Return the folders of other programs in which a project has stream rules.

    A folder counts only if a stream rule is in it: most hold instructions for the other program alone.
    """
    users = _user_places()
    return [
        place
        for place in _foreign_places(cwd)
        if place not in users and any(_read(path, "project", []) for path in _in(place))
    ]


def _foreign_places(cwd: Path) -> list[Path]:
    places = [cwd / ".xcsh" / "rules", cwd / ".omp" / "rules"]
    for directory in ancestors(cwd):
        places += [directory / ".agent" / "rules", directory / ".agents" / "rules"]
    return [*places, cwd / ".cursor" / "rules", cwd / ".windsurf" / "rules", cwd / _CLINERULES]


def _user_places() -> list[Path]:
    home = Path(os.path.expanduser("~"))
    return [home / folder / "rules" for folder in (".xcsh", ".omp", ".agent", ".agents")]


def _in(place: Path) -> list[Path]:
    if place.name == _CLINERULES and os.path.isfile(place):
        return [place]
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return []
    return [place / name for name in names if name.endswith((".md", ".mdc")) and not name.startswith(".")]


def _read(path: Path, level: str, problems: list[Diagnostic]) -> StreamRule | None:
    try:
        front, body = split_front_matter(read_text(path))
    except (OSError, BadFrontMatter) as error:
        problems.append(Diagnostic("warning", f"Cannot read rule: {error}", str(path)))
        return None
    wanted = front.get("condition") or front.get("ttsr_trigger") or front.get("ttsrTrigger")
    scope = _tokens(front.get("scope"))
    condition: list[str] = []
    for token in _list(wanted):
        if _is_file_glob(token):
            scope += [f"tool:edit({token})", f"tool:write({token})"]
            continue
        try:
            re.compile(token)
            condition.append(token)
        except (re.error, OverflowError, RecursionError) as error:
            problems.append(Diagnostic("warning", f"Invalid condition {token!r}: {error}", str(path)))
    if wanted and not condition and scope:
        condition = [".*"]
    mode = front.get("interruptMode")
    rule = StreamRule(
        name=path.stem,
        path=str(path),
        content=body,
        condition=condition,
        scope=scope or None,
        globs=_list(front.get("globs")) or None,
        always_apply=front.get("alwaysApply") is True,
        description=front.get("description") if isinstance(front.get("description"), str) else None,
        interrupt_mode=mode if mode in _MODES else None,
        source={"provider": "files", "providerName": "Files", "path": str(path), "level": level},
    )
    return rule if condition and rule.scopes() else None


def _list(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str) and item]


def _tokens(value: Any) -> list[str]:
    """Split at commas outside brackets; quotes around a token are removed."""
    tokens: list[str] = []
    for item in _list(value):
        tokens += [token.strip().strip("\"'") for token in re.split(r",(?![^(\[]*[)\]])", item)]
    return [token for token in tokens if token]


def _is_file_glob(token: str) -> bool:
    if not any(c in token for c in "?*[]{}") or any(c in token for c in "\\^$+|()"):
        return False
    return "/" in token or re.fullmatch(r"\*\.\w+", token) is not None


def _parse_scope(token: str) -> RuleScope | None:
    match = re.fullmatch(_SCOPE, token)
    if match is None:
        return None
    name, tool, glob = match["name"], match["tool"], match["glob"] or None
    if name in ("text", "thinking") and not tool and not glob:
        return RuleScope("text" if name == "text" else "thinking")
    if name in ("tool", "toolcall"):
        return RuleScope("tool", tool, glob)
    return RuleScope("tool", name, glob) if not tool else None
