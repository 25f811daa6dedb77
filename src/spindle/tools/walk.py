"""Files below a folder, without those that ignore files leave out: what `rg` and `fd` see, in a fixed order.

Links are listed, never followed. Folders that cannot be read count as empty.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from spindle.tools.base import ToolError
from spindle.tools.files import require_regular
from spindle.tools.gitignore import IgnoreFile

__all__ = ["Entry", "Override", "in_git_repository", "walk"]

Override = Callable[[str, bool], bool | None]
"""`(path, is_folder)`: True keeps an entry whatever ignore files say, False drops it, None leaves it to them."""

_MAX_IGNORE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    path: str
    is_folder: bool
    is_link: bool


def in_git_repository(folder: str) -> bool:
    return any(os.path.lexists(os.path.join(above, ".git")) for above in _upwards(folder))


def walk(
    root: str, own_ignore_name: str, *, require_git: bool, skip_git: bool = False, override: Override | None = None
) -> Iterator[Entry]:
    """Yield what lies below the absolute path `root`, folder by folder, names sorted.

    `own_ignore_name` is the strongest ignore file (`.rgignore`, `.fdignore`), then come `.ignore`, `.gitignore`, git's
    `info/exclude` and the user's global file. Git's count only inside a repository if `require_git`. `skip_git`
    leaves out `.git` itself.
    """
    rules = _Rules(own_ignore_name, require_git, weakest=_global_rules(root))
    for above in reversed(list(_upwards(os.path.dirname(root)))):
        rules = rules.enter(above, None)
    stack = [_entries(root, rules)]
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            continue
        entry, rules = step
        if skip_git and os.path.basename(entry.path) == ".git":
            continue
        kept = override(entry.path, entry.is_folder) if override else None
        if kept is False or (kept is None and rules.ignore(entry)):
            continue
        yield entry
        if entry.is_folder:
            stack.append(_entries(entry.path, rules))


@dataclass(frozen=True, slots=True)
class _Rules:
    """The ignore files that count in one folder; of each kind the deepest first."""

    own_name: str
    require_git: bool
    own: tuple[tuple[int, IgnoreFile], ...] = ()
    """Each with how many components of a path lead to its folder."""
    plain: tuple[tuple[int, IgnoreFile], ...] = ()
    git: tuple[tuple[int, IgnoreFile], ...] = ()
    exclude: tuple[tuple[int, IgnoreFile], ...] = ()
    weakest: tuple[tuple[int, IgnoreFile], ...] = ()
    in_repository: bool = False

    def enter(self, folder: str, names: Iterable[str] | None) -> "_Rules":
        """Return the rules inside `folder`; `names` lists what is in it, if that is known."""
        wanted = {self.own_name, ".ignore", ".gitignore", ".git"}
        present = wanted.intersection(names) if names is not None else wanted
        if not present:
            return self
        rules = self
        if ".git" in present and os.path.lexists(os.path.join(folder, ".git")):
            # What lies above a repository says nothing about it.
            exclude = _load(folder, os.path.join(".git", "info", "exclude"))
            rules = replace(rules, git=(), exclude=exclude, in_repository=True)
        if self.own_name in present:
            rules = replace(rules, own=_load(folder, self.own_name) + rules.own)
        if ".ignore" in present:
            rules = replace(rules, plain=_load(folder, ".ignore") + rules.plain)
        if ".gitignore" in present:
            rules = replace(rules, git=_load(folder, ".gitignore") + rules.git)
        return rules

    def ignore(self, entry: Entry) -> bool:
        files = self.own + self.plain
        if self.in_repository or not self.require_git:
            files += self.git + self.exclude + self.weakest
        if not files:
            return False
        parts = _parts(entry.path)
        for depth, file in files:
            verdict = file.verdict(parts[depth:], entry.is_folder)
            if verdict is not None:
                return verdict
        return False


def _entries(folder: str, rules: _Rules) -> Iterator[tuple[Entry, _Rules]]:
    try:
        with os.scandir(folder) as listing:
            found = sorted(listing, key=lambda item: item.name)
    except OSError:
        return
    rules = rules.enter(folder, (item.name for item in found))
    for item in found:
        yield Entry(item.path, item.is_dir(follow_symlinks=False), item.is_symlink()), rules


def _upwards(folder: str) -> Iterator[str]:
    """Yield the folder and all above it."""
    while True:
        yield folder
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def _parts(path: str) -> list[str]:
    return [part for part in path.split(os.sep) if part]


def _load(folder: str, name: str) -> tuple[tuple[int, IgnoreFile], ...]:
    path = os.path.join(folder, name)
    try:
        require_regular(path)
        with open(path, "rb") as file:
            data = file.read(_MAX_IGNORE_BYTES)
    except (OSError, ToolError):
        return ()
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    rules = IgnoreFile(text.split("\n"))
    return ((len(_parts(folder)), rules),) if rules else ()


def _global_rules(root: str) -> tuple[tuple[int, IgnoreFile], ...]:
    """Return the user's own ignore file, where git's configuration says it is."""
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    path = os.path.join(config, "git", "ignore")
    for settings in (os.path.join(home, ".gitconfig"), os.path.join(config, "git", "config")):
        try:
            require_regular(settings)
            with open(settings, encoding="utf-8", errors="replace") as file:
                named = re.search(
                    r'^\s*excludesfile\s*=\s*"?([^"\n]+?)"?\s*$', file.read(), re.IGNORECASE | re.MULTILINE
                )
        except (OSError, ToolError):
            continue
        if named:
            path = os.path.expanduser(named[1])
            break
    folder, name = os.path.split(path)
    return tuple((len(_parts(root)), rules) for _, rules in _load(folder, name))
