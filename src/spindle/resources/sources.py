"""Where skills, prompt templates and extensions are looked for, and in which order.

The same ranking holds for all three: project settings, project directories, user settings, user directories,
packages, command line. Of two equal names the first wins. Packages are used where pi has installed them; Spindle
installs none.
"""

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from spindle.base.agent_dir import expand_home
from spindle.base.settings import SettingsStore
from spindle.base.user_files import BadFile, Diagnostic, read_object
from spindle.shapes.messages import Wire

Kind = Literal["skills", "prompts", "extensions"]


class SourceInfo(Wire):
    """Where a resource or an extension came from, as the wire tells it."""

    path: str
    source: str
    """`auto` (a conventional directory), `local` (named in settings), `cli`, `inline`, or a package's name."""
    scope: str
    """`user`, `project` or `temporary`."""
    origin: str
    """`top-level` or `package`."""
    base_dir: str | None = None


class CommandItem(Wire):
    """One entry of `get_commands`, with the keys of old clients (`location`, `path`) and of new ones."""

    name: str
    source: Literal["extension", "prompt", "skill"]
    source_info: SourceInfo
    location: str
    """`user`, `project` or `path`."""
    path: str
    description: str | None = None

    @classmethod
    def of(
        cls, name: str, source: Literal["extension", "prompt", "skill"], info: SourceInfo, description: str
    ) -> "CommandItem":
        location = "path" if info.scope == "temporary" else info.scope
        return cls(name, source, info, location, info.path, description or None)


class Selection(Struct, frozen=True):
    """Which files of a source are wanted: `!glob` leaves out, `+path` and `-path` decide about one file."""

    base: Path
    rules: tuple[str, ...] = ()

    def allows(self, path: Path) -> bool:
        wanted = not any(rule[0] == "!" and self._matches(path, rule[1:]) for rule in self.rules)
        for rule in self.rules:
            if rule[0] in "+-" and self._is(path, rule[1:]):
                wanted = rule[0] == "+"
        return wanted

    def _matches(self, path: Path, pattern: str) -> bool:
        names = [relative_name(item, self.base) for item in _with_folder(path)]
        return any(fnmatch(name, pattern) or fnmatch(os.path.basename(name), pattern) for name in names)

    def _is(self, path: Path, named: str) -> bool:
        target = (self.base / expand_home(named)).resolve()
        return any(item.resolve() == target for item in _with_folder(path))


def _with_folder(path: Path) -> tuple[Path, ...]:
    # A skill is its folder as much as its SKILL.md.
    return (path, path.parent) if path.name == "SKILL.md" else (path,)


def relative_name(path: Path, base: Path) -> str:
    return (path.relative_to(base) if path.is_relative_to(base) else path).as_posix()


class Source(Struct, frozen=True):
    """A file or directory that may hold resources."""

    path: Path
    source: str
    scope: Literal["user", "project", "temporary"]
    origin: Literal["top-level", "package"] = "top-level"
    base_dir: Path | None = None
    nested_only: bool = False
    """An `.agents` directory: loose Markdown files count below it, not directly in it."""
    selection: Selection = field(default_factory=lambda: Selection(Path()))
    explicit: bool = False
    """The user named this very path, so it must exist."""

    def info(self, path: Path) -> SourceInfo:
        base = str(self.base_dir) if self.base_dir and self.source != "local" else None
        return SourceInfo(str(path), self.source, self.scope, self.origin, base)


class Sources:
    """Lists the sources of each kind for one working directory."""

    def __init__(self, agent_dir: Path, cwd: Path, store: SettingsStore, *, project_trusted: bool) -> None:
        self.agent_dir = agent_dir
        self.cwd = cwd
        self.store = store
        self.project_trusted = project_trusted
        self.diagnostics: list[Diagnostic] = []

    def of(self, kind: Kind, named: Iterable[str], *, discover: bool) -> list[Source]:
        """Return the sources in order; paths `named` on the command line come last and survive `discover=False`."""
        found: list[Source] = []
        if discover:
            if self.project_trusted:
                found += self._scope(kind, self.cwd / ".pi", project=True)
            found += self._scope(kind, self.agent_dir, project=False)
            for project in (True, False) if self.project_trusted else (False,):
                base = self.cwd / ".pi" if project else self.agent_dir
                for entry in self.store.resource_list("packages", project=project):
                    found += self._package(kind, entry, base, project)
        found += [Source(self.cwd / expand_home(path), "cli", "temporary", explicit=True) for path in named]
        return found

    def _scope(self, kind: Kind, base: Path, *, project: bool) -> Iterator[Source]:
        scope: Literal["user", "project"] = "project" if project else "user"
        listed = self.store.resource_list(kind, project=project)
        entries = [entry for entry in listed if isinstance(entry, str) and entry]
        selection = Selection(base, tuple(entry for entry in entries if entry[0] in "!+-"))
        for entry in entries:
            if entry[0] not in "!+-":
                path = base / expand_home(entry)
                yield Source(path, "local", scope, base_dir=base, selection=selection, explicit=True)
        directory = base / kind
        if kind == "prompts" and not os.path.exists(directory):
            directory = base / "commands"  # its name in old versions
        yield Source(directory, "auto", scope, base_dir=base, selection=selection)
        if kind == "prompts" and project:  # where the example of the RPC document has them
            yield Source(base / "agent" / "prompts", "auto", scope, base_dir=base, selection=selection)
        if kind == "skills":
            for agents in self._agents_directories(project):
                yield Source(agents / "skills", "auto", scope, base_dir=agents, nested_only=True, selection=selection)

    def _agents_directories(self, project: bool) -> list[Path]:
        home = Path(os.path.expanduser("~")) / ".agents"
        if not project:
            return [home]
        found = []
        for directory in ancestors(self.cwd):
            if (directory / ".agents") != home:
                found.append(directory / ".agents")
            if os.path.exists(directory / ".git"):
                break
        return found

    def _package(self, kind: Kind, entry: Any, base: Path, project: bool) -> Iterator[Source]:
        name = entry.get("source") if isinstance(entry, dict) else entry
        if not isinstance(name, str):
            return
        root = _find_package(name, base)
        if root is None:
            if kind == "skills":
                self.diagnostics.append(Diagnostic("warning", f"Package {name} is not installed below {base}"))
            return
        rules: tuple[str, ...] = ()
        if isinstance(entry, dict) and isinstance(wanted := entry.get(kind), list):
            if not wanted:
                return
            rules = tuple(rule for rule in wanted if isinstance(rule, str) and rule[:1] in ("!", "+", "-"))
        scope: Literal["user", "project"] = "project" if project else "user"
        for path in _package_entries(root, kind):
            yield Source(path, name, scope, "package", root, selection=Selection(root, rules))


def ancestors(directory: Path) -> list[Path]:
    """Return the directory and all above it, innermost first."""
    return [directory, *directory.parents]


def _find_package(source: str, base: Path) -> Path | None:
    """Return the directory of a package: `npm:` and `git:` ones where pi puts them below `base`, else a path."""
    if source.startswith("npm:"):
        name = source[4:]
        # A version follows the last @, but a scope begins with one.
        at = name.rfind("@")
        path = base / "npm" / "node_modules" / (name[:at] if at > 0 else name)
    elif source.startswith(("git:", "https://", "http://", "ssh://", "git@")):
        address = source.removeprefix("git:").split("://", 1)[-1].removeprefix("git@").replace(":", "/")
        path = base / "git" / address.split("@", 1)[0].removesuffix(".git")
    else:
        path = base / expand_home(source)
    return path if os.path.isdir(path) else None


def _package_entries(root: Path, kind: str) -> list[Path]:
    """Return the paths of one kind in a package: those that its manifest lists, else the directory of that name."""
    try:
        manifest = (read_object(root / "package.json") or {}).get("pi")
    except BadFile:
        manifest = None
    listed = manifest.get(kind) if isinstance(manifest, dict) else None
    if not isinstance(listed, list):
        return [root / kind]
    found: list[Path] = []
    for entry in listed:
        if isinstance(entry, str) and not entry.startswith("!"):
            pattern = entry.removeprefix("./").rstrip("/")
            found += sorted(root.glob(pattern)) if any(c in pattern for c in "*?[") else [root / pattern]
    return found
