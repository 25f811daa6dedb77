"""States of a folder at the far side: its files as a tree of git, in a git directory outside of the folder.

The same as `base/snapshots.py` does here, in fewer steps: git compares all files for each state.

Runs on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import Any, Iterator

from spindle.base.put_back import RESTORING, Folder, kept_form
from spindle.base.rules_files import LOOK_AFTER, why_git_waits
from spindle.base.workspace.disk import Cancel, ToolError

CONFIG = """\
[core]
\tbare = false
\tfsmonitor = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tsafecrlf = false
[gc]
\tauto = 0
"""
"""What git is told in a directory of ours, here and there: it obeys nothing that an agent could have written."""
_OWN_CONFIG = "[core]\n\tautocrlf = false\n"
_ATTRIBUTES = "* -text -filter -ident -eol -working-tree-encoding\n"
"""Files are kept byte for byte."""
HASH_OBJECT = ("hash-object", "-w", "--stdin", "--no-filters")
"""The command of git that keeps a file outside of a tree."""
_LOOK = 0.1
"""Seconds between two looks at a git that runs."""
_LONGEST = 600.0
"""Seconds for one command of git."""


def git_place(cancel: Cancel, name: str) -> str:
    """Return the git directory for the states of a folder, which has this name among others."""
    place = os.path.join(os.path.expanduser("~"), ".cache", "spindle", "checkpoints", name)
    os.makedirs(os.path.join(place, "info"), mode=0o700, exist_ok=True)
    for folder in ("objects", "refs"):
        os.makedirs(os.path.join(place, folder), exist_ok=True)
    return place


def git_there(cancel: Cancel, git_dir: str, root: str, arguments: list[str], data: bytes = b"") -> bytes:
    """Return the output of git. Raises `ToolError` with the last line of its messages."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env.update(git_environment(git_dir, root))
    pipe = subprocess.PIPE
    try:
        child = subprocess.Popen(["git", *arguments], cwd=git_dir, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
    except FileNotFoundError:
        raise ToolError("there is no git on the far side") from None
    try:
        output, errors = _ended(cancel, child, root, data)
    except BaseException:
        child.kill()
        child.communicate()
        raise
    if child.returncode:
        raise ToolError(f"git {arguments[0]}: {last_line(errors, child.returncode)}")
    return output


def _ended(cancel: Cancel, child: subprocess.Popen[bytes], root: str, data: bytes | None) -> tuple[bytes, bytes]:
    """Return the output of a git that runs. Raises `ToolError` if it waits for something that never comes."""
    began, has_looked = time.monotonic(), False
    while True:
        try:
            return child.communicate(data, timeout=_LOOK)
        except subprocess.TimeoutExpired:
            data = None  # it is on its way
        cancel.check()
        seconds = time.monotonic() - began
        why = None
        if seconds > LOOK_AFTER and not has_looked:
            has_looked, why = True, why_git_waits(root)
        if why or seconds > _LONGEST:
            raise ToolError(why or f"git took more than {_LONGEST:g} s")


@contextmanager
def _alone(cancel: Cancel, git_dir: str) -> Iterator[None]:
    """Keep other agents out of a git directory: they may come by other ways, and this one may have been aborted."""
    with open(os.path.join(git_dir, "lock"), "wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                cancel.check()
                time.sleep(_LOOK)
        yield


def last_line(errors: bytes, code: int) -> str:
    """Return the last line of what a program has written to stderr; its exit code if that is nothing."""
    return (errors.decode("utf-8", "replace").strip().splitlines() or [f"exit code {code}"])[-1]


def git_environment(git_dir: str, root: str) -> dict[str, str]:
    return {
        "LC_ALL": "C",
        "GIT_DIR": git_dir,
        "GIT_WORK_TREE": root,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_TERMINAL_PROMPT": "0",
    }


def take_state(cancel: Cancel, git_dir: str, root: str, bounds: list[int], is_known: bool) -> dict[str, Any]:
    """Put all files that git does not ignore into a tree.

    `bounds`: bytes of a file, files, and bytes of all that are covered. Returns the tree, what a tree does not hold,
    and the names in it: all, or if they are known the changed ones. Raises `ToolError`, `OSError`.
    """
    with _alone(cancel, git_dir):
        return _state(cancel, git_dir, root, bounds, is_known)


def _state(cancel: Cancel, git_dir: str, root: str, bounds: list[int], is_known: bool) -> dict[str, Any]:
    largest, most_files, most_bytes = bounds
    _prepare(git_dir, root)
    known = set(_names(git_there(cancel, git_dir, root, ["ls-files", "-z"])))
    there, gone = _changed(cancel, git_dir, root)
    others = _names(git_there(cancel, git_dir, root, ["ls-files", "-z", "-o", "--exclude-standard"]))
    skipped = {os.fsdecode(name): "a repository of its own" for name in others if name.endswith(b"/")}
    taken, left_out, size = _sift(
        cancel, root, [*there, *(name for name in others if not name.endswith(b"/"))], largest
    )
    gone += [name for name in left_out if name in known]
    skipped.update((os.fsdecode(name), why) for name, why in left_out.items() if why)
    if len(known) + len(taken) > most_files or size > most_bytes:
        return {"tree": None}
    tree = _write_tree(cancel, git_dir, root, gone, taken)
    now = known.difference(gone).union(taken)
    usual = _usual(git_dir)
    folders = _names(git_there(cancel, git_dir, root, ["ls-files", "-z", "-o", "--directory", "--exclude-standard"]))
    empty = [name for folder in folders if folder.endswith(b"/") for name in _hollow(root, os.fsdecode(folder))]
    modes = dict(_modes(root, now, empty, usual))
    decoded = [list(map(os.fsdecode, names)) for names in ((now, ()) if not is_known else (taken, gone))]
    return {
        "tree": tree,
        "files": len(now),
        "modes": modes,
        "folders": empty,
        "skipped": skipped,
        "there": decoded[0],
        "gone": decoded[1],
        "usual": list(usual),
    }


def _changed(cancel: Cancel, git_dir: str, root: str) -> tuple[list[bytes], list[bytes]]:
    """Return the names of known files that differ from the last state: those that are there, those that are gone."""
    raw = git_there(cancel, git_dir, root, ["diff-files", "--raw", "-z", "--no-renames"]).split(b"\0")
    pairs = list(zip(raw[::2], raw[1::2]))
    gone = [name for about, name in pairs if about.endswith(b" D")]
    return [name for about, name in pairs if not about.endswith(b" D")], gone


def _write_tree(cancel: Cancel, git_dir: str, root: str, gone: list[bytes], taken: list[bytes]) -> str:
    for option, names in (("--force-remove", gone), ("--replace", taken)):
        if names:
            asked = ["update-index", "-z", "--add", "--remove", option, "--stdin"]
            git_there(cancel, git_dir, root, asked, b"\0".join([*names, b""]))
    return git_there(cancel, git_dir, root, ["write-tree"]).decode().strip()


def _sift(cancel: Cancel, root: str, names: list[bytes], largest: int) -> tuple[list[bytes], dict[bytes, str], int]:
    """Return the names of files to cover, the others with the reasons, and how many bytes there are."""
    taken: list[bytes] = []
    left_out: dict[bytes, str] = {}
    size = 0
    for name in names:
        cancel.check()
        why, length = _reason(os.path.join(os.fsencode(root), name), largest)
        size += length
        if why is None:
            taken.append(name)
        else:
            left_out[name] = why
    return taken, left_out, size


def _prepare(git_dir: str, root: str) -> None:
    for name in os.listdir(git_dir):
        if name == "index.lock" or name.startswith("copies-"):  # the process that made it has ended
            os.unlink(os.path.join(git_dir, name))
    exclude = b""
    with suppress(OSError), open(os.path.join(root, ".git/info/exclude"), "rb") as file:
        exclude = file.read(1 << 20)
    texts = {
        "HEAD": b"ref: refs/heads/main\n",
        "config": (CONFIG + _OWN_CONFIG).encode(),
        "info/attributes": _ATTRIBUTES.encode(),
        "info/exclude": exclude + f"\n/{RESTORING}\n".encode(),
    }
    for name, data in texts.items():
        with open(os.path.join(git_dir, name), "wb") as file:
            file.write(data)


def _names(listed: bytes) -> list[bytes]:
    return [name for name in listed.split(b"\0") if name]


def _reason(path: bytes, largest: int) -> tuple[str | None, int]:
    """Return why a file is not covered, None if it is, empty if it is gone again; and its size."""
    try:
        about = os.lstat(path)
    except OSError:
        return "", 0
    if stat.S_ISLNK(about.st_mode):
        return None, 0
    if about.st_size > largest:
        return f"larger than {largest >> 20} MB", 0
    return (None, about.st_size) if os.access(path, os.R_OK) else ("not readable", 0)


def _usual(git_dir: str) -> tuple[int, int, int]:
    """Return the permissions that new files, programs and folders get."""
    probe = os.path.join(git_dir, "probe")
    os.close(os.open(probe, os.O_CREAT, 0o777))
    mode = stat.S_IMODE(os.stat(probe).st_mode)
    os.unlink(probe)
    return mode & 0o666, mode, mode


def _hollow(root: str, folder: str) -> list[str]:
    """Return the folders at or below this one that have nothing in them; none if there is a file somewhere."""
    found = []
    for where, folders, files in os.walk(os.path.join(root, folder)):
        if files or any(os.path.islink(os.path.join(where, one)) for one in folders):
            return []
        if not folders:
            found.append(os.path.relpath(where, root) + "/")
    return sorted(found)


def _modes(root: str, names: set[bytes], empty: list[str], usual: tuple[int, int, int]) -> Iterator[tuple[str, int]]:
    """Yield the permissions that are not the usual ones."""
    folders = {*empty}
    for name in names:
        path = os.fsdecode(name)
        with suppress(OSError):
            mode = os.lstat(os.path.join(root, path)).st_mode
            bits = stat.S_IMODE(mode)
            if stat.S_ISREG(mode) and bits != (usual[1] if bits & 0o100 else usual[0]):
                yield path, bits
        while "/" in path:
            path = path.rpartition("/")[0]
            folders.add(f"{path}/")
    for folder in folders:
        with suppress(OSError):
            bits = stat.S_IMODE(os.lstat(os.path.join(root, folder)).st_mode)
            if bits != usual[2]:
                yield folder, bits


def keep_file(cancel: Cancel, git_dir: str, root: str, path: str, largest: int) -> tuple[int, str] | None:
    """Keep a file outside of a tree. Returns its mode and its object; None if there is none. Raises `OSError`."""
    found = kept_form(path, largest)
    if found is None:
        return None
    with _alone(cancel, git_dir):
        _prepare(git_dir, root)
        said = git_there(cancel, git_dir, root, [*HASH_OBJECT], found[1])
    return found[0], said.decode().strip()


def put_files_back(
    cancel: Cancel,
    git_dir: str,
    root: str,
    changes: list[tuple[str, bool, tuple[int, str] | None]],
    about: dict[str, Any],
    usual: int,
) -> dict[str, str]:
    """Give paths the form that they have after each change: path, whether it was there, its new mode and object.

    `about`: the modes and the empty folders of the state. Returns the paths that failed, with the reason.
    """
    failed: dict[str, str] = {}
    folder = Folder(root, about["modes"], about["folders"], usual)
    form = {path: after for path, _, after in changes if after is not None}

    def attempt(work: Any, path: str, *rest: Any) -> None:
        try:
            work(path, *rest)
        except OSError as error:
            failed[path] = error.strerror or str(error)

    for path in form:
        if path.endswith("/"):  # so that files can be written into folders that are closed now
            folder.unlock(path)
    for path in sorted((path for path, _, after in changes if after is None), key=len, reverse=True):
        attempt(folder.remove, path)
    for path, was_there, _ in changes:
        if not was_there and path.endswith("/"):
            attempt(folder.make, path)
    for path, (mode, oid) in form.items():
        if oid:
            attempt(folder.write, path, mode, git_there(cancel, git_dir, root, ["cat-file", "blob", oid]))
        else:
            attempt(folder.set_mode, path, mode)
    folder.finish()
    return failed
