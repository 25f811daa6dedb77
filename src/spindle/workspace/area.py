"""The area of a sandbox: what was asked for, whether this machine can give it, and the places that it comes to."""

import os
import re
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Final

from msgspec import Struct

from spindle.base.agent_dir import agent_dir, expand_home
from spindle.programs.fence import Area, Support
from spindle.shapes.protected_files import PROTECTED_FILES, PROTECTED_FOLDERS
from spindle.shapes.sandbox import OPEN_OF_AGENT, PRIVATE, SECRETS, Network, SandboxLevel
from spindle.workspace.git_guard import path_folders
from spindle.workspace.sockets import sockets_to_hide
from spindle.workspace.texts import KEPT_PREFIXES, kept_folder

_GIT_FILES: Final = ("hooks", "info/attributes", "commondir")
"""Files of a git directory that make git run programs, or read such files elsewhere. In configurations the gate looks
at lines: submodules, remotes and branches write there."""
_SHARED_BY_WORKTREES: Final = ("objects", "refs", "logs")
_GATED: Final = (".git", ".gitmodules")
_RUN_BY_NAME: Final = (
    *("git", "git-lfs", "bwrap", "ssh", "gpg", "sh", "bash"),
    *("less", "more", "pager", "editor", "vi", "vim", "nano", "emacs"),
)
"""Programs that git runs, and those that we run outside of the fence."""
_OFTEN_ON_PATH: Final = (".venv/bin", "venv/bin", "node_modules/.bin")
"""Folders of a project that are in the PATH of its users, if not in ours."""
_MOST_KEPT: Final = 20


class SandboxError(Exception):
    """A sandbox that was asked for is not possible here. The text says why, and what there is to choose."""


class Wanted(Struct, frozen=True):
    """A sandbox as it was asked for: everything that its area depends on."""

    level: SandboxLevel
    cwd: str
    writable: tuple[str, ...] = ()
    network: Network = "on"
    denied: tuple[str, ...] = ()
    """Files that a rule forbids to read."""
    others: tuple[str, ...] = ()
    """What belongs to other users of the server: there is no sandbox unless it can be hidden."""


def check(wanted: Wanted, using: Support) -> None:
    """Raise `SandboxError` for a level or a network that this machine cannot give."""
    choices = (
        'Choices: the level "off"; a kernel with Landlock ABI 3 (Linux 6.2); bubblewrap, where user namespaces work. '
        f"Here: {using.told()}"
    )
    if not using.works:
        where = "" if sys.platform in ("linux", "darwin") else f" on {sys.platform}"
        raise SandboxError(f'The sandbox "{wanted.level}" cannot be had here{where}. {choices}')
    if isinstance(wanted.network, list) and using.landlock < 4 and not using.seatbelt:
        raise SandboxError(
            "A sandbox with some ports open needs Landlock ABI 4 (Linux 6.7). "
            f'Choices: network "on" or "off". Here: {using.told()}'
        )
    if wanted.network == "off" and not (using.bwrap or using.filters or using.landlock >= 4 or using.seatbelt):
        raise SandboxError(
            f'The network of the sandbox cannot be switched off here. Choices: network "on". Here: {using.told()}'
        )


def area_of(wanted: Wanted, cwd: str, temporary: str, using: Support) -> Area:
    named = [os.path.realpath(os.path.join(cwd, expand_home(path))) for path in wanted.writable]
    writable, protected = [temporary], list[str]()
    if wanted.level == "workspace-write":
        more, protected = _written(dict.fromkeys([cwd, *named]))
        writable += more
        protected = [path for path in dict.fromkeys(protected) if not inside(path, named, without=cwd)]
    home = str(agent_dir())
    uid = str(os.getuid())
    named_secrets = (path.replace("$UID", uid) for path in SECRETS)
    secrets = [_placed(expand_home(path)) for path in (*named_secrets, home, *wanted.denied, *wanted.others)]
    hidden = [path for path in dict.fromkeys(secrets) if not inside(path, named, without=cwd)]
    opened = [os.path.join(_placed(home), name) for name in OPEN_OF_AGENT]
    opened += [cwd] if inside(cwd, hidden) else []
    private: list[str] = []
    if using.bwrap:
        expanded = [os.path.expandvars(path) for path in PRIVATE]
        private = [os.path.realpath(path) for path in expanded if path.startswith("/")]
        needed = [cwd, os.path.expanduser("~"), *map(_prefix, os.environ.get("PATH", "").split(os.pathsep))]
        opened = [*(path for path in needed if inside(path, private) and path not in private), *opened]
    shown_empty = tuple(dict.fromkeys(path for path in private if path not in writable))
    return Area(
        writable=tuple(dict.fromkeys(writable)),
        protected=tuple(protected),
        secrets=tuple(hidden),
        opened=tuple(opened),
        private=shown_empty,
        sockets=partial(sockets_to_hide, tuple(writable), shown_empty),
        kept=partial(_kept_outputs, time.time()),
        network=wanted.network,
    )


def _written(folders: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return what can be written for some folders to be written, and what in it may not change."""
    writable, protected = list[str](), list[str]()
    for folder in folders:
        writable.append(folder)
        with suppress(OSError):  # the kernel lets nothing be written to a folder that is not there
            os.makedirs(folder, exist_ok=True)
        if os.path.isdir(folder):
            more, forbidden = _git_places(folder)
            writable += more
            protected += [os.path.join(folder, name) for name in (*PROTECTED_FOLDERS, *PROTECTED_FILES)]
            protected = [path for path in protected if os.path.basename(path) not in _GATED] + forbidden
            on_path = [*path_folders([folder]), *(os.path.join(folder, name) for name in _OFTEN_ON_PATH)]
            protected += [os.path.join(one, name) for one in dict.fromkeys(on_path) for name in _RUN_BY_NAME]
    return writable, protected


def _placed(path: str) -> str:
    """Return a path without links above its last part, which may become a link later."""
    return os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(path))), os.path.basename(path))


def _prefix(folder: str) -> str:
    """Return the folder of a program: that around its `bin`."""
    return os.path.dirname(folder) if os.path.basename(folder) in ("bin", "sbin") else folder


def _kept_outputs(since: float) -> list[str]:
    """Return the newest files with whole outputs of commands, which results name; each costs bubblewrap a mount."""
    folder = os.path.realpath(kept_folder())
    return _newest(folder, os.stat(folder).st_ctime_ns, since)


@lru_cache(1)
def _newest(folder: str, changed: int, since: float) -> list[str]:
    found: dict[str, float] = {}
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(KEPT_PREFIXES) and name.endswith(".log"):
                path = os.path.join(folder, name)
                with suppress(OSError):
                    found[path] = os.stat(path, follow_symlinks=False).st_ctime
    return sorted((path for path, when in found.items() if when >= since), key=found.__getitem__)[-_MOST_KEPT:]


def _git_places(folder: str) -> tuple[list[str], list[str]]:
    """Return what git has to write outside of a folder, and the files of git that must not change."""
    git = os.path.join(folder, ".git")
    own = _worktree_directory(git) if os.path.isfile(git) else None
    if own is None:  # the gate looks after repositories to come
        return [], [os.path.join(git, name) for name in _GIT_FILES] if os.path.isdir(git) else []
    shared = os.path.dirname(os.path.dirname(own))
    return [os.path.join(shared, name) for name in (*_SHARED_BY_WORKTREES, "worktrees")], [git]


def _worktree_directory(git: str) -> str | None:
    """Return the git directory that the file `.git` of a worktree names, if that directory names the file in turn.

    Anybody can write a `.git` that names some folder; only git writes into the folder of a repository.
    """
    try:
        with open(git, encoding="utf-8") as file:
            named = re.fullmatch(r"gitdir: (.+)\n*", file.read(5000))
        if named is None:
            return None
        own = os.path.realpath(os.path.join(os.path.dirname(git), named[1]))
        with open(os.path.join(own, "gitdir"), encoding="utf-8") as file:
            back = file.read(5000).strip()
        is_mutual = os.path.realpath(os.path.join(own, back)) == os.path.realpath(git)
        return own if is_mutual and os.path.basename(os.path.dirname(own)) == "worktrees" else None
    except (OSError, UnicodeError):
        return None


def inside(path: str, places: Iterable[str], without: str | None = None) -> bool:
    """Say whether a path is one of these places, or below one; the place `without` does not count."""
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places if place != without)
