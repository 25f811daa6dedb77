"""What is done with states of a folder: its files as trees of git, in a git directory outside of the folder.

Every operation gets that directory and the folder; `states/recorder.py` calls them here and on the far side of a pipe.
Only taking a state is different: there git compares all files (`take_state`), here the signs of files are remembered.

Runs on this machine and on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import subprocess
import time
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from typing import Any, Iterable, Iterator

from spindle.programs.search_path import on_path
from spindle.workspace.disk import Cancel, ToolError
from spindle.workspace.put_back import RESTORING, Folder, folders_of, kept_form
from spindle.workspace.rules_files import LOOK_AFTER, why_git_waits

CONFIG = """\
[core]
\tbare = false
\tfsmonitor = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tsafecrlf = false
\tprotectNTFS = false
\tprotectHFS = false
[gc]
\tauto = 0
"""
"""What git is told in a directory of ours, here and there: it obeys nothing that an agent could have written, and takes
names that only other systems could mistake for `.git`."""
_OWN_CONFIG = "[core]\n\tautocrlf = false\n"
_ATTRIBUTES = "* -text -filter -ident -eol -working-tree-encoding\n"
"""Files are kept byte for byte."""
OFFLINE = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
"""Variables that forbid every transport: some run programs that the repository's configuration names."""
GIT_CWD = os.sep
"""Where our git runs. It takes names as seen from there, if that is a folder of the work tree; its own directory is one
if that is a home directory."""
_SCRATCH = "index-"
"""What we need for a moment has a name that begins with this."""
_FORCED = "forced"
"""A file with the names that `_forced` returns."""
_AT_ONCE = 32
"""Files whose content is read together."""
_LOOK = 0.1
"""Seconds between two looks at a git that runs."""
_LONGEST = 600.0
"""Seconds for one command of git."""


# -- git -----------------------------------------------------------------------------------------


@lru_cache(maxsize=None)
def git_program() -> str:
    """Return the path of git, found once: later a folder of PATH may hold what an agent has written."""
    absolute = os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)))
    return on_path("git", absolute) or "git"


def git_environment(git_dir: str, root: str) -> dict[str, str]:
    """Return all variables of a git that works in a directory of ours: no key is among them."""
    return {
        **{name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ},
        **OFFLINE,
        "LC_ALL": "C",
        "HOME": git_dir,
        "XDG_CONFIG_HOME": git_dir,
        "GIT_DIR": git_dir,
        "GIT_COMMON_DIR": git_dir,
        "GIT_WORK_TREE": root if os.path.isdir(root) else git_dir,  # the folder may have been removed
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }


def run_git(
    cancel: Cancel,
    git_dir: str,
    root: str,
    arguments: list[str],
    data: bytes = b"",
    index: str | None = None,
    most_code: int = 0,
) -> bytes:
    """Return the output of git; with another index, if given. Exit codes up to `most_code` are no failure.

    Raises `ToolError` with the last line of its messages.
    """
    env = git_environment(git_dir, root)
    if index is not None:
        env["GIT_INDEX_FILE"] = index
    return _run(cancel, GIT_CWD, root, arguments, env, data, most_code)


def _run(
    cancel: Cancel,
    cwd: str,
    root: str,
    arguments: list[str],
    env: dict[str, str],
    data: bytes = b"",
    most_code: int = 0,
) -> bytes:
    pipe = subprocess.PIPE
    try:
        argv = [git_program(), *arguments]
        child = subprocess.Popen(argv, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    except FileNotFoundError:
        raise ToolError("there is no git") from None
    try:
        output, errors = _ended(cancel, child, root, data)
    except BaseException:
        child.kill()
        child.communicate()
        raise
    if not 0 <= child.returncode <= most_code:
        command = next(word for word in arguments if not word.startswith("-"))
        raise ToolError(f"git {command}: {last_line(errors, child.returncode)}")
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


def last_line(errors: bytes, code: int) -> str:
    """Return the last line of what a program has written to stderr; its exit code if that is nothing."""
    return (errors.decode("utf-8", "replace").strip().splitlines() or [f"exit code {code}"])[-1]


# -- states of a folder on the far side ----------------------------------------------------------


def git_place(cancel: Cancel, name: str, root: str) -> str:
    """Return the git directory for the states of a folder, which has this name among others."""
    place = os.path.join(os.path.realpath(os.path.expanduser("~")), ".cache", "spindle", "checkpoints", name)
    os.makedirs(os.path.join(place, "info"), mode=0o700, exist_ok=True)
    for folder in ("objects", "refs"):
        os.makedirs(os.path.join(place, folder), exist_ok=True)
    _configure(place, root)
    if os.path.lexists(os.path.join(root, ".git")):
        with open(os.path.join(place, _FORCED), "wb") as file:
            file.write(_forced(cancel, root))
    return place


def _forced(cancel: Cancel, root: str) -> bytes:
    """Return the names of the files that the user's repository has although it ignores them."""
    env = git_environment(root, root)
    for name in ("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE"):
        del env[name]
    asked = ["-c", "core.fsmonitor=false", "ls-files", "-z", "-c", "-i", "--exclude-standard"]
    with suppress(ToolError):  # an index that git cannot read says nothing
        return _run(cancel, root, root, asked, env)
    return b""


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


def take_state(
    cancel: Cancel, git_dir: str, root: str, bounds: list[int], is_known: bool, own: list[str]
) -> dict[str, Any]:
    """Put all files that git does not ignore into a tree, but those that are ours: `own`, and our git directories.

    `bounds`: bytes of a file, files, and bytes of all that are covered. Returns the tree, what a tree does not hold,
    and the names in it: all, or if they are known the changed ones. Raises `ToolError`, `OSError`.
    """
    with _alone(cancel, git_dir):
        place = os.path.relpath(os.path.dirname(git_dir), root)
        return _state(cancel, git_dir, root, bounds, is_known, own if place.startswith("..") else [*own, place])


def _state(
    cancel: Cancel, git_dir: str, root: str, bounds: list[int], is_known: bool, own: list[str]
) -> dict[str, Any]:
    largest, most_files, most_bytes = bounds
    clear_up(git_dir)
    _configure(git_dir, root, own)
    known = set(_names(run_git(cancel, git_dir, root, ["ls-files", "-z"])))
    if not os.path.isdir(root):
        tree = _write_tree(cancel, git_dir, root, list(known), [])
        return _described(tree, 0, (), known, _usual(git_dir))
    there, gone = _changed(cancel, git_dir, root)
    others = _names(run_git(cancel, git_dir, root, ["ls-files", "-z", "-o", "--exclude-standard"]))
    others += _missed(git_dir, root, known.union(others))
    ours = tuple(os.fsencode(f"{name}/") for name in own)  # the rules of the folder may let in what ours leave out
    others = [name for name in others if not (name + b"/").startswith(ours)]
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
    folders = _names(run_git(cancel, git_dir, root, ["ls-files", "-z", "-o", "--directory", "--exclude-standard"]))
    empty = [name for folder in folders if folder.endswith(b"/") for name in _hollow(root, os.fsdecode(folder))]
    modes = dict(_modes(root, now, empty, usual))
    found = _described(tree, len(now), taken if is_known else now, gone if is_known else (), usual)
    return {**found, "modes": modes, "folders": empty, "skipped": skipped}


def _described(
    tree: str, files: int, there: Iterable[bytes], gone: Iterable[bytes], usual: tuple[int, int, int]
) -> dict[str, Any]:
    names = {"there": list(map(os.fsdecode, there)), "gone": list(map(os.fsdecode, gone))}
    return {"tree": tree, "files": files, "modes": {}, "folders": [], "skipped": {}, "usual": list(usual), **names}


def _missed(git_dir: str, root: str, seen: set[bytes]) -> list[bytes]:
    """Return the files that are covered although git ignores them, but those that were seen."""
    try:
        with open(os.path.join(git_dir, _FORCED), "rb") as file:
            forced = _names(file.read())
    except FileNotFoundError:
        return []
    return [name for name in forced if name not in seen and os.path.lexists(os.path.join(os.fsencode(root), name))]


def _changed(cancel: Cancel, git_dir: str, root: str) -> tuple[list[bytes], list[bytes]]:
    """Return the names of known files that differ from the last state: those that are there, those that are gone."""
    raw = run_git(cancel, git_dir, root, ["diff-files", "--raw", "-z", "--no-renames"]).split(b"\0")
    pairs = list(zip(raw[::2], raw[1::2]))
    gone = [name for about, name in pairs if about.endswith(b" D")]
    return [name for about, name in pairs if not about.endswith(b" D")], gone


def _write_tree(cancel: Cancel, git_dir: str, root: str, gone: list[bytes], taken: list[bytes]) -> str:
    for option, names in (("--force-remove", gone), ("--replace", taken)):
        if names:
            asked = ["update-index", "-z", "--add", "--remove", option, "--stdin"]
            run_git(cancel, git_dir, root, asked, b"\0".join([*names, b""]))
    return run_git(cancel, git_dir, root, ["write-tree"]).decode().strip()


def _sift(cancel: Cancel, root: str, names: list[bytes], largest: int) -> tuple[list[bytes], dict[bytes, str], int]:
    """Return the names of files to cover, the others with the reasons, and how many bytes there are."""
    taken: list[bytes] = []
    left_out: dict[bytes, str] = {}
    size = 0
    for name in names:
        cancel.check()
        why, length = _reason(os.fsencode(root), name, largest)
        size += length
        if why is None:
            taken.append(name)
        else:
            left_out[name] = why
    return taken, left_out, size


def _configure(git_dir: str, root: str, own: Iterable[str] = ()) -> None:
    # What a repository says holds on when its `.git` is gone.
    git = os.path.join(root, ".git")
    exclude = b""
    with suppress(OSError), open(os.path.join(git if os.path.lexists(git) else git_dir, "info/exclude"), "rb") as file:
        exclude = file.read(1 << 20)
    texts = {
        "HEAD": b"ref: refs/heads/main\n",
        "config": (CONFIG + _OWN_CONFIG).encode(),
        "info/attributes": _ATTRIBUTES.encode(),
        "info/exclude": b"\n".join([exclude, *(_rule(name) for name in [RESTORING, *own] if "\n" not in name), b""]),
    }
    for name, data in texts.items():
        beside = os.path.join(git_dir, f"{name}.{os.getpid()}")
        with open(beside, "wb") as file:
            file.write(data)
        os.replace(beside, os.path.join(git_dir, name))


def _rule(name: str) -> bytes:
    """Return the line of an exclude file that means just this name."""
    return b"/" + re.sub(rb"([^\w/.-])", rb"\\\1", os.fsencode(name))


def _names(listed: bytes) -> list[bytes]:
    return [name for name in listed.split(b"\0") if name]


def _reason(root: bytes, name: bytes, largest: int) -> tuple[str | None, int]:
    """Return why a file is not covered, None if it is, empty if it is gone again; and its size."""
    path = os.path.join(root, name)
    try:
        about = os.lstat(path)
    except PermissionError:  # its folder is closed, but for its names
        return "not readable", 0
    except OSError:
        return "", 0
    if b".git" in name.lower().split(b"/"):
        return "git keeps no file of this name", 0
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


# -- states of a folder, here and there ----------------------------------------------------------


def clear_up(git_dir: str) -> None:
    """Remove what a process left that was killed."""
    with suppress(FileNotFoundError):
        for name in os.listdir(git_dir):
            if name == "index.lock" or name.startswith(_SCRATCH):
                _remove(os.path.join(git_dir, name))


@contextmanager
def _scratch(cancel: Cancel, git_dir: str) -> Iterator[str]:
    """Give a path in the git directory that nothing has, and remove what comes there."""
    with _alone(cancel, git_dir):
        path = os.path.join(git_dir, f"{_SCRATCH}{os.getpid()}-{time.monotonic_ns()}")
        try:
            yield path
        finally:
            _remove(path)


def _remove(path: str) -> None:
    """Remove a file, or a folder without links, if it is there."""
    for where, folders, files in os.walk(path, topdown=False):
        for name in files:
            os.unlink(os.path.join(where, name))
        for name in folders:
            os.rmdir(os.path.join(where, name))
    with suppress(FileNotFoundError):
        (os.rmdir if os.path.isdir(path) else os.unlink)(path)


def tree_of(cancel: Cancel, git_dir: str, root: str, copies: list[tuple[str, int, str]]) -> str:
    """Return a tree of copies, each with its path, its mode, and its object. Raises `ToolError`."""
    lines = [b"%o %s\t%s\0" % (_git_mode(mode), oid.encode(), os.fsencode(path)) for path, mode, oid in copies]
    with _scratch(cancel, git_dir) as index:
        run_git(cancel, git_dir, root, ["update-index", "-z", "--index-info"], b"".join(lines), index)
        return run_git(cancel, git_dir, root, ["write-tree"], index=index).decode().strip()


def _git_mode(mode: int) -> int:
    return 0o120000 if stat.S_ISLNK(mode) else 0o100755 if mode & 0o100 else 0o100644


def ignored_then(cancel: Cancel, git_dir: str, root: str, tree: str, names: list[str]) -> list[str]:
    """Return those of some files that the rules in a tree ignore. Raises `ToolError`, `OSError`."""
    rules = {}
    for line in run_git(cancel, git_dir, root, ["ls-tree", "-r", "-z", tree]).split(b"\0"):
        facts, _, name = line.partition(b"\t")
        if os.path.basename(name) == b".gitignore" and facts.startswith(b"100"):
            rules[os.fsdecode(name)] = facts.split()[2].decode()
    with _scratch(cancel, git_dir) as folder:
        os.mkdir(folder, 0o700)
        for path, content in _contents(cancel, git_dir, root, rules):
            os.makedirs(os.path.join(folder, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(folder, path), "wb") as file:
                file.write(content)
        # A name may look like a pattern: ":(glob)x".
        asked = b"".join(b"./" + os.fsencode(name) + b"\0" for name in names)
        how = ["check-ignore", "-z", "--stdin", "--no-index"]
        said = run_git(cancel, git_dir, folder, how, asked, most_code=1)
    return [os.fsdecode(name)[2:] for name in _names(said)]


def file_content(cancel: Cancel, git_dir: str, root: str, path: str, oid: str) -> bytes:
    """Return the content of an object, which a state has at this path. Raises `ToolError`."""
    return next(_contents(cancel, git_dir, root, {path: oid}))[1]


def _contents(cancel: Cancel, git_dir: str, root: str, wanted: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Yield paths with the content of their objects. Raises `ToolError`."""
    rest = list(wanted.items())
    while rest:
        part, rest = rest[:_AT_ONCE], rest[_AT_ONCE:]
        asked = "".join(f"{oid}\n" for _, oid in part).encode()
        data, at = run_git(cancel, git_dir, root, ["cat-file", "--batch"], asked), 0
        for path, _ in part:
            line = data.index(b"\n", at)
            words = data[at:line].split()
            if words[-1:] == [b"missing"]:
                raise ToolError(f"the content of {path} is not kept any more")
            size = int(words[2])
            yield path, data[line + 1 : line + 1 + size]
            at = line + size + 2


def keep_content(cancel: Cancel, git_dir: str, root: str, content: bytes) -> str:
    """Keep bytes as an object, and return its name. Raises `ToolError`."""
    asked = ["hash-object", "-w", "--stdin", "--no-filters"]
    return run_git(cancel, git_dir, root, asked, content).decode().strip()


def keep_files(
    cancel: Cancel, git_dir: str, root: str, paths: list[str], largest: int
) -> tuple[dict[str, tuple[int, str] | None], dict[str, str]]:
    """Keep files outside of a tree. Returns mode and object of each, None if there is none; and why some are not kept.

    What its owner may not read is opened for a moment. Raises `ToolError`, `OSError`.
    """
    forms: dict[str, tuple[int, str] | None] = {}
    lost: dict[str, str] = {}
    plain: list[str] = []
    with _readable(root, paths) as modes:
        for path in paths:
            cancel.check()
            try:
                found = kept_form(path, largest)
            except OSError as error:
                lost[path] = error.strerror or str(error)
                continue
            forms[path] = None if found is None else (modes.get(path, found.mode), "")
            if found is None:
                continue
            if found.content is None and "\n" not in path:
                plain.append(path)
                continue
            content = found.content
            if content is None:
                with open(path, "rb") as file:
                    content = file.read()
            forms[path] = modes.get(path, found.mode), keep_content(cancel, git_dir, root, content)
        if plain:  # thousands, where a folder has become a repository of its own
            asked = ["hash-object", "-w", "--no-filters", "--stdin-paths"]
            said = run_git(cancel, git_dir, root, asked, os.fsencode("\n".join([*plain, ""])))
            for path, oid in zip(plain, said.decode().split()):
                forms[path] = forms[path][0], oid  # type: ignore[index]
    return forms, lost


@contextmanager
def _readable(root: str, paths: list[str]) -> Iterator[dict[str, int]]:
    """Let us read files, and the folders above them, that are closed to us. Gives the modes that they had."""
    modes: dict[str, int] = {}
    try:
        for path in paths:
            names = path[len(root) + 1 :] if path.startswith(f"{root}/") else ""
            for one in [*(os.path.join(root, folder[:-1]) for folder in folders_of(names)), path]:
                need, bits = (os.R_OK, 0o400) if one == path else (os.R_OK | os.X_OK, 0o500)
                with suppress(OSError):
                    about = os.lstat(one)
                    if not stat.S_ISLNK(about.st_mode) and not os.access(one, need):
                        os.chmod(one, stat.S_IMODE(about.st_mode) | bits)
                        modes[one] = about.st_mode
        yield modes
    finally:
        for one, mode in reversed(list(modes.items())):
            os.chmod(one, stat.S_IMODE(mode))


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
    Raises `ToolError` if the content of a file is not kept any more.
    """
    os.makedirs(root, exist_ok=True)
    with closing(Folder(root, about["modes"], about["folders"], usual)) as folder:
        return _put_back(cancel, git_dir, root, changes, folder)


def _put_back(
    cancel: Cancel, git_dir: str, root: str, changes: list[tuple[str, bool, tuple[int, str] | None]], folder: Folder
) -> dict[str, str]:
    failed: dict[str, str] = {}
    form = {path: after for path, _, after in changes if after is not None}

    def attempt(work: Any, path: str, *rest: Any) -> None:
        try:
            work(path, *rest)
        except OSError as error:
            failed[path] = error.strerror or str(error)

    # So that files can be written into folders that are closed now: in the end they get the modes of the state.
    for path, _, _ in changes:
        if not path.startswith("/"):
            folder.unlock(path)
    for path in sorted((path for path, _, after in changes if after is None), key=len, reverse=True):
        attempt(folder.remove, path)
    for path, was_there, _ in changes:
        if not was_there and path.endswith("/"):
            attempt(folder.make, path)
    for path, content in _contents(cancel, git_dir, root, {path: oid for path, (_, oid) in form.items() if oid}):
        attempt(folder.write, path, form[path][0], content)
    for path, (mode, oid) in form.items():
        if not oid:
            attempt(folder.set_mode, path, mode)
    folder.finish()
    return failed
