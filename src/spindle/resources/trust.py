"""Whether a project may bring its own settings, prompts, skills and code.

Decisions are remembered in `<agent dir>/trust.json` by real path. A yes holds for the repository, or the folder
without any, that it names: below another `.git` lie the files of somebody else. A no holds for everything below.
Without a decision, a project is not trusted. Extensions, MCP servers and settings of a trusted project run programs,
so the user agrees to their content; `<agent dir>/mcp-trust.json` has hashes.
"""

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field

from spindle.base.agent_dir import agent_dir
from spindle.base.user_files import BadFile, Diagnostic, edit_json, file_lock, read_object, read_text, write_json
from spindle.resources.agent_files import agent_places, files_in
from spindle.resources.rule_files import foreign_rule_places
from spindle.resources.sources import ancestors

_GATED = (
    "settings.json",
    "extensions",
    "skills",
    "prompts",
    "commands",
    "agent/prompts",
    "rules",
    "SYSTEM.md",
    "APPEND_SYSTEM.md",
    "mcp.json",
)


MCP_FILES = (".mcp.json", ".pi/mcp.json")
"""Files of a project with MCP servers; later files win."""
SETTINGS = ".pi/settings.json"
RUNNING = ("shellPath", "shellCommandPrefix", "checksAfterEdit")
"""Settings of a project that name programs: the user agrees to what they say."""
EXTENSIONS = ".pi/extensions"
"""The folder with extensions of a project: agreed to as a whole."""
NOT_AGREED = (
    "it is new, or has changed since you agreed to it. `spindle trust` there agrees to it as it is now, "
    "--approve for one run"
)
_MOST_FILES = 5000
_MOST_BYTES = 64 << 20
_begun_with: dict[str, str] = {}
"""For projects that are trusted for this process only: the hash of each such file when it was first seen.
What an agent writes later is not what the user agreed to."""


class TrustDecision(Struct, frozen=True):
    trusted: bool
    reason: str
    project: Path = Path()
    """The directory that the decision is about."""
    is_open: bool = False
    """Whether the user has not decided yet and may be asked."""
    for_now: bool = False
    """Whether the user, or an extension, has trusted the project as it was when this process began with it."""
    skipped: list[Path] = field(default_factory=list)
    """Paths of an untrusted project that were not loaded."""

    def notice(self) -> Diagnostic | None:
        """Say which paths were not loaded and how to allow them; None if there are none."""
        if not self.skipped:
            return None
        names = ", ".join(str(path) for path in self.skipped)
        return Diagnostic(
            "warning",
            f"Project not trusted ({self.reason}), not loaded: {names}. "
            "Use --approve for this run, or run `spindle trust` here to remember it.",
        )


class _Remembered(NamedTuple):
    trusted: bool | None
    """None: only a repository around this one is trusted."""
    directory: Path


class TrustStore:
    def __init__(self, agent_dir: Path) -> None:
        self.path = agent_dir / "trust.json"
        self._contents = agent_dir / "mcp-trust.json"
        self.problem: Diagnostic | None = None

    def lookup(self, cwd: Path) -> _Remembered | None:
        """Return the decision of the nearest directory that has one."""
        try:
            decisions = read_object(self.path) or {}
        except BadFile as error:
            self.problem = Diagnostic("error", f"Cannot use {self.path}: {error}", str(self.path))
            return None
        around: _Remembered | None = None
        is_same = True
        for directory in ancestors(cwd.resolve()):
            decision = decisions.get(str(directory))
            if isinstance(decision, bool) and (is_same or not decision):
                return _Remembered(decision, directory)
            if decision is True and around is None:
                around = _Remembered(None, directory)
            is_same = is_same and not os.path.lexists(directory / ".git")
        return around

    def remember(self, directory: Path, trusted: bool, code: Mapping[str, str] | None = None) -> None:
        """Keep a decision, and agree to the code of a trusted project; without `code`, as it is now.

        Raises `BadFile`, `OSError`.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_lock(self.path):
            decisions = (read_object(self.path) or {}) | {str(directory.resolve()): trusted}
            write_json(self.path, dict(sorted(decisions.items())))
        agreed = {} if not trusted else code_of(directory) if code is None else code
        for name, text in agreed.items():
            if text:
                self.agree(directory / name, text)

    def agree(self, path: Path, text: str) -> None:
        """Remember that the user agrees to this content of a file or folder. Raises `BadFile`, `OSError`."""
        if _key(path) in _begun_with:
            _begun_with[_key(path)] = _digest(text)
        edit_json(self._contents, lambda known: known.update({_key(path): _digest(text)}), 0o600)

    def is_agreed(self, path: Path, text: str, decision: TrustDecision) -> bool:
        """Say whether the user has agreed to this content of a file or folder of a trusted project."""
        if decision.for_now:
            return _begun_with.setdefault(_key(path), _digest(text)) == _digest(text)
        try:
            known = read_object(self._contents) or {}
        except BadFile:
            return False
        return known.get(_key(path)) == _digest(text)


def code_of(directory: Path) -> dict[str, str]:
    """Return what stands for the code of a project, by name; "" for what is not there, or cannot be read."""
    code = {EXTENSIONS: content_of(directory / EXTENSIONS), SETTINGS: ""}
    for name in MCP_FILES:
        code[name] = ""
        with suppress(BadFile, OSError):
            code[name] = read_text(directory / name)
    with suppress(BadFile):
        code[SETTINGS] = programs_of(read_object(directory / SETTINGS) or {})
    return code


def programs_of(settings: Mapping[str, Any]) -> str:
    """Return what stands for the programs that settings of a project name; "" if there are none."""
    import json

    named = {key: settings[key] for key in RUNNING if settings.get(key)}
    return json.dumps(named, sort_keys=True) if named else ""


def begin_with(project: Path, code: Mapping[str, str]) -> None:
    """Trust this code of a project for this process. What is there later is other code, also if there is none now."""
    _begun_with.update({_key(project / name): _digest(text) for name, text in code.items()})


def _key(path: Path) -> str:
    return str(path.parent.resolve() / path.name)


def _digest(text: str) -> str:
    from _blake2 import blake2b  # `hashlib` would load OpenSSL

    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()


def content_of(path: Path) -> str:
    """Return a text that is another one if a file, or anything in a folder, is another; "" if it cannot be read.

    What Python keeps of compiled files does not count: it is removed before they are loaded.
    """
    from _blake2 import blake2b

    whole, left = blake2b(digest_size=32), _MOST_BYTES
    try:
        files = _files_of(path)
        for name in files:
            data = _content(path / name, left)
            left -= len(data)
            whole.update(f"{os.fsencode(name)!r} {len(data)}\n".encode() + data)
    except OSError:
        return ""
    return whole.hexdigest() if files else ""


def _content(path: Path, most: int) -> bytes:
    """Raises `OSError` for what is no file, as a pipe or a link to a device, and for a file that is too large."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise OSError("not a file, or too large")
        return file.read(most)


def _files_of(path: Path) -> list[str]:
    """Return the files of a folder, also behind links. Raises `OSError` if there are too many."""
    if not path.is_dir():
        return [""]
    found: list[str] = []
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [os.path.relpath(os.path.join(folder, name), path) for name in names]
        if len(found) > _MOST_FILES or folder.count("/") > 200:
            raise OSError("too many files")
    return sorted(found)


def gated_paths(cwd: Path) -> list[Path]:
    own = os.path.realpath(agent_dir() / "prompts")  # in a home directory, templates of a project may be there, too
    found = [path for name in _GATED if os.path.exists(path := cwd / ".pi" / name) and os.path.realpath(path) != own]
    if os.path.exists(path := cwd / MCP_FILES[0]):
        found.append(path)
    home = Path.home()
    for directory in ancestors(cwd):
        if directory != home and os.path.isdir(path := directory / ".agents" / "skills"):
            found.append(path)
        if os.path.exists(directory / ".git"):
            break
    found += [place for place in agent_places(cwd, home=home) if files_in(place)]
    return found + foreign_rule_places(cwd)


def decide(
    cwd: Path,
    store: TrustStore,
    *,
    approve: bool | None = None,
    default: str = "ask",
    ask: Callable[[Path], bool | None] | None = None,
    source: Path | None = None,
) -> TrustDecision:
    """Decide for a working directory: the command line, then `ask`, then the remembered decision, then the default.

    `source`: the directory that `cwd` is a checkout or a copy of; what is remembered of it counts.
    """
    paths, project = gated_paths(cwd), source or cwd

    def decision(trusted: bool, reason: str, *, for_now: bool = False, is_open: bool = False) -> TrustDecision:
        if trusted and for_now and _key(project / EXTENSIONS) not in _begun_with:
            begin_with(project, code_of(cwd))
        return TrustDecision(trusted, reason, project, is_open, for_now, [] if trusted else paths)

    if not paths:
        return decision(bool(approve), "nothing to trust", for_now=bool(approve))
    if approve is not None:
        return decision(approve, "--approve" if approve else "--no-approve", for_now=True)
    if ask is not None and (answer := ask(cwd)) is not None:
        return decision(answer, "the user or an extension said so for this session", for_now=True)
    found = store.lookup(project)
    if found is not None and found.trusted is not None:
        return decision(found.trusted, f"remembered for {found.directory}")
    if found is not None and default == "ask":
        return decision(False, f"the trust of {found.directory} ends at this repository", is_open=True)
    if default == "ask":
        return decision(False, "nobody has decided yet", is_open=True)
    return decision(default == "always", f"defaultProjectTrust is {default}")
