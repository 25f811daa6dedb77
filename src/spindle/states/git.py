"""Git, as we run it: the user's own, and one that a repository cannot make run anything.

`git` is the user's git, with their configuration, for repositories that no agent has worked in. `Shadow` records the
state of a folder that an agent works in. It has a git directory of its own outside of that folder, with configuration
and attributes that we write; of the repository in the folder it takes only plain facts, before the agent begins. A
batch uses it for one attempt (`adopt`), checkpoints keep it (`keep`). No key is in the environment of either.
"""

import asyncio
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from spindle.base import limits
from spindle.programs import process
from spindle.programs.children import environment
from spindle.workspace.rules_files import LOOK_AFTER, why_git_waits
from spindle.workspace.states import CONFIG, GIT_CWD, OFFLINE, git_environment, git_program, last_line

_SETTINGS: Final = (
    "advice.detachedHead=false",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.safecrlf=false",
    "core.splitIndex=false",
    "gc.auto=0",
    "worktree.useRelativePaths=false",
)
"""These replace settings of the user, which are meant for their own use of git: they would run programs, fail, or
confuse us."""
_PLAIN: Final = [word for setting in _SETTINGS for word in ("-c", setting)]
_LOCAL_VARIABLES: Final = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
)
"""If a git hook started us, these name the hook's repository; we work on another one."""

_FACTS: Final = {
    "core.autocrlf": r"true|false|input",
    "core.eol": r"lf|crlf|native",
    "core.filemode": r"true|false",
    "core.ignorecase": r"true|false",
    "core.symlinks": r"true|false",
    "core.precomposeunicode": r"true|false",
    "core.trustctime": r"true|false",
    "core.checkstat": r"default|minimal",
    "core.sparsecheckout": r"true|false",
    "core.sparsecheckoutcone": r"true|false",
}
"""Settings that say how files on this disk relate to files in the repository, with their possible values."""
_SPELLING: Final = ("core.ignorecase", "core.precomposeunicode")
"""Those that say which names mean the same file."""
_SAME: Final = {"": "true", "yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}
"""Other words of git for true and false."""
_OWN_CONFIG: Final = f"""\
{CONFIG}[core]
\tsplitIndex = false
\tuntrackedCache = false
[submodule]
\trecurse = false
[diff]
\tignoreSubmodules = dirty
"""
_CONVERSIONS: Final = ("text", "eol", "crlf", "ident", "working-tree-encoding", "diff")
"""Attributes that change how git stores or shows a file, without running a program."""
_PINNED: Final = (*_CONVERSIONS, "filter", "merge")
_MACROS: Final = {"binary": ["-diff", "-merge", "-text"]}
_MANY: Final = 200
_INTO_PACK: Final = ("-c", "core.bigFileThreshold=1", "-c", "core.compression=1")
"""Git puts all files of a command into one pack: half the time of a file for each, which matters from `_MANY` on."""
_LARGEST_TEXT: Final = 1 << 20
"""Bytes of a file with attributes or excludes; larger ones are ignored."""


class GitError(Exception):
    """Git cannot be run, or has failed."""


class GitHangs(GitError):
    """Git was killed: it waited, or took too long."""


async def _run(
    name: str,
    arguments: Sequence[str],
    *,
    settings: Sequence[str] = (),
    cwd: str | None,
    env: Mapping[str, str],
    ok: Sequence[int] = (0,),
    input: bytes | None = None,
) -> bytes:
    """Return the output of a command of git. Raises `GitError` with the last line of its messages."""
    argv = [git_program(), *settings, name, *arguments]
    running = asyncio.ensure_future(process.run(argv, cwd=cwd, env=env, timeout=limits.GIT, input=input))
    try:
        ended, _ = await asyncio.wait([running], timeout=LOOK_AFTER)
        folder = env.get("GIT_WORK_TREE") or cwd
        if not ended and folder and (why := await asyncio.to_thread(why_git_waits, folder)):
            raise GitHangs(why)
        done = await running
    except OSError as error:
        raise GitError(f"Cannot run git in {cwd or '.'}: {error.strerror}") from None
    finally:
        if running.cancel():
            await asyncio.wait([running])
    if done.timed_out:
        raise GitHangs(f"git {name} took more than {limits.GIT:g} s")
    if done.code not in ok:
        raise GitError(f"git {name}: {last_line(done.errors, done.code)}")
    return done.output


async def git(
    name: str,
    *arguments: str,
    cwd: str | None = None,
    withheld: Collection[str] = (),
    env: Mapping[str, str] | None = None,
    ok: Sequence[int] = (0,),
) -> bytes:
    """Run the user's git and return its output; the variables in `withheld` are not in its environment.

    Raises `GitError`.
    """
    extra = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(env or {})}
    variables = environment({*_LOCAL_VARIABLES, *withheld}, extra)
    return await _run(name, arguments, settings=_PLAIN, cwd=cwd, env=variables, ok=ok)


class Rules(Struct, frozen=True):
    """What only a repository says of the files that count in its folder."""

    local: bytes = b""
    """Its `info/exclude`."""
    forced: set[bytes] = set()
    """Files that it has although it ignores them."""


class Shadow:
    """Records the states of a folder as tree objects, in a git directory outside of the folder.

    The repository that the folder may be, or hold, is neither changed nor asked after `adopt`.
    """

    def __init__(self, git_dir: Path, work_tree: Path, warn: Callable[[str], None]) -> None:
        """`warn` is called with the names of files that cannot be recorded."""
        self._git_dir = git_dir
        self._work_tree = work_tree
        self._warn = warn
        self._config = _OWN_CONFIG
        self._info = {"attributes": b"", "exclude": b"", "sparse-checkout": b""}
        """Files below `info`."""
        self._objects: list[str] = []
        """Folders with objects of the repository; they are only read."""
        self._filtered: dict[bytes, tuple[int, ...] | None] = {}
        """Files that a filter of the user has written: their content says nothing, so their times say if they changed.
        Such a file is recorded as it is once an agent has written it."""
        self._tree: str | None = None
        """The last tree; None: the index is not in a tree yet."""
        self.unrecorded: dict[bytes, str] = {}
        """Files that the last tree has not as they are, because git could not read or convert them, with the reason."""

    async def adopt(
        self,
        withheld: Collection[str] = (),
        *,
        is_repository: bool,
        is_clean: bool,
        has_only_copy: bool = False,
    ) -> None:
        """Take over what git has to know to see the folder as the user's git does. Raises `GitError`, `OSError`.

        With `is_clean` the folder is a fresh checkout, so all attributes are in files that git knows. With
        `has_only_copy` no other repository on this disk has its objects, so they are kept here, too.
        """
        self._make()
        facts = await self._facts(withheld)
        local = b""
        if is_repository:
            local = await self._take_repository(withheld)
            if has_only_copy:
                kept = self._git_dir / "objects"
                shutil.copytree(self._objects[0], kept, copy_function=_link, dirs_exist_ok=True)
        plain = [(key, value) for key, value in facts if re.fullmatch(_FACTS.get(key, "-"), value)]
        self._config += "".join(f"[core]\n\t{key[5:]} = {value}\n" for key, value in plain)
        self._info["exclude"] = self._of_user(facts, "excludesfile", "ignore") + b"\n" + self._info["exclude"]
        shared = self._of_user(facts, "attributesfile", "attributes")
        listed = () if is_clean else ("-o", "--exclude-standard")
        found = await self._run("ls-files", "-z", "-c", *listed, "--", ":(glob)**/.gitattributes")
        names = sorted(dict.fromkeys(_names(found)), key=lambda name: name.count("/"))
        own = [(os.path.dirname(name), _content(self._work_tree / name, os.O_NOFOLLOW)) for name in names]
        if any(b"filter" in data for data in (shared, local, *(data for _, data in own))):
            self._info["attributes"] = shared + b"\n" + local
            filtered = await self._run("ls-files", "-z", "--", ".", ":(exclude,attr:!filter)")
            self._filtered = {name: self._signs(name) for name in filtered.split(b"\0") if name}
        pinned = "\n".join(_pinned([("", shared), *own, ("", local)]))
        self._info["attributes"] = os.fsencode(f"{pinned}\n")

    async def keep(self, withheld: Collection[str] = (), *, rules: "Rules | None") -> "Rules":
        """Record files byte for byte, in a git directory that outlives this process.

        It has objects of its own, so that nothing in the repository can break it. `rules` are those of a repository
        that is not there any more. Returns the present ones. Raises `GitError`, `OSError`.
        """
        self._make()
        self._info["attributes"] = ("\n".join(_pinned([])) + "\n").encode()
        asked = self._facts(withheld), self._excludes(withheld, rules is None), self._forced(withheld, rules is None)
        facts, local, forced = await asyncio.gather(*asked)
        rules = rules or Rules(local, forced)
        plain = [(key, value) for key, value in facts if key in _SPELLING and re.fullmatch(_FACTS[key], value)]
        self._config += "".join(f"[core]\n\t{key[5:]} = {value}\n" for key, value in plain)
        self._info["exclude"] = b"\n".join([self._of_user(facts, "excludesfile", "ignore"), rules.local, b""])
        return rules

    async def _excludes(self, withheld: Collection[str], is_repository: bool) -> bytes:
        if not is_repository:
            return b""
        asked = ("--git-path", "info/exclude")
        # A `.git` that leads nowhere, as that of a worktree in a container, says nothing.
        said = await git("rev-parse", *asked, cwd=str(self._work_tree), withheld=withheld, env=OFFLINE, ok=(0, 128))
        return _content(self._work_tree / os.fsdecode(said).rstrip("\n")) if said else b""

    async def _forced(self, withheld: Collection[str], is_repository: bool) -> set[bytes]:
        if not is_repository:
            return set()
        asked = ("-z", "-c", "-i", "--exclude-standard")
        # An index that git cannot read, as in a partial clone that lacks objects, says nothing.
        said = await git("ls-files", *asked, cwd=str(self._work_tree), withheld=withheld, env=OFFLINE, ok=(0, 128))
        return {name for name in said.split(b"\0") if name}

    def rules(self) -> bytes:
        """Return all that says which names are ignored, but the files in the folder."""
        return self._config.encode() + self._info["exclude"]

    async def ignored(self, names: Collection[bytes]) -> set[bytes]:
        """Return those of some files and folders that are ignored. Raises `GitError`, `OSError`."""
        # With a slash at the end, rules inside of a folder count for it. A name may look like a pattern: ":(glob)x".
        plain = {b"./" + name.removesuffix(b"/"): name for name in names}
        asked = b"".join(name + b"\0" for name in plain)
        said = await self._run("check-ignore", "-z", "--stdin", "--no-index", input=asked, ok=(0, 1))
        return {plain[name] for name in said.split(b"\0") if name}

    def _make(self) -> None:
        for name in ("info", "objects", "refs"):
            (self._git_dir / name).mkdir(parents=True, mode=0o700, exist_ok=True)
        _put(self._git_dir / "HEAD", b"ref: refs/heads/main\n")

    def _of_user(self, facts: Sequence[tuple[str, str]], key: str, name: str) -> bytes:
        """Return a file of the user that a setting names, or the one in its usual place."""
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        return _content(self._work_tree / (dict(facts).get(f"core.{key}") or home / "git" / name))

    async def _facts(self, withheld: Collection[str]) -> list[tuple[str, str]]:
        """Return settings of the repository, or of the user."""
        wanted = "|".join(key[5:] for key in (*_FACTS, "core.excludesfile", "core.attributesfile"))
        asked = ("-z", "--get-regexp", rf"^core\.({wanted})$")
        config = partial(git, "config", *asked, withheld=withheld, env=OFFLINE, ok=(0, 1))
        try:
            said = await config(cwd=str(self._work_tree))
        except (GitError, OSError):  # the folder may be gone, or its `.git` lead nowhere
            said = await config(cwd=str(self._git_dir.parent))
        pairs = [os.fsdecode(pair).partition("\n") for pair in said.split(b"\0") if pair]
        return [
            (key, os.path.expanduser(value) if key.endswith("file") else _SAME.get(value.lower(), value.lower()))
            for key, _, value in pairs
        ]

    async def _take_repository(self, withheld: Collection[str]) -> bytes:
        """Copy the index and the excludes of the repository; return its own attributes."""
        kept = ("index", "objects", "info/exclude", "info/sparse-checkout", "info/attributes")
        asked = ["--show-object-format", *(word for name in kept for word in ("--git-path", name))]
        said = await git("rev-parse", *asked, cwd=str(self._work_tree), withheld=withheld, env=OFFLINE)
        form, *lines = os.fsdecode(said).rstrip("\n").split("\n")
        index, objects, exclude, sparse, attributes = (self._work_tree / line for line in lines)
        if form == "sha256":
            self._config += "[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tobjectFormat = sha256\n"
        # With the index git need not read every file; by its time git knows which files may have changed since.
        for file in (index, *index.parent.glob("sharedindex.*")):
            if file.is_file():
                shutil.copy2(file, self._git_dir / file.name)
        self._objects = list(_object_folders(objects.resolve()))
        self._info |= {"exclude": _content(exclude), "sparse-checkout": _content(sparse)}
        return _content(attributes)

    async def tree(self) -> str:
        """Put all files that git does not ignore into a tree, and return its name. Raises `GitError`, `OSError`."""
        changed, others = await asyncio.gather(
            self._run("diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=dirty"),
            self._run("ls-files", "-z", "-o", "--exclude-standard"),
        )
        raw, new = changed.split(b"\0"), [name for name in others.split(b"\0") if name]
        facts = dict(zip(raw[1::2], raw[::2], strict=False))
        gone = {name for name, about in facts.items() if about.endswith(b" D")}
        for name in new:
            if name.endswith(b"/"):
                self._warn(f"{os.fsdecode(name)} is a repository of its own: its files are not recorded")
        there = dict.fromkeys(name for name in (*facts, *new) if not name.endswith(b"/"))
        return await self.record(list(gone), [name for name in there if name not in gone and self._is_changed(name)])

    def last(self, tree: str | None) -> None:
        """Learn the tree of the index, which another process has made; None if there is none."""
        self._tree = tree

    async def record(self, gone: Sequence[bytes], there: Sequence[bytes]) -> str:
        """Return a tree without some files of the last one, and with others as they are now.

        Raises `GitError`, `OSError`.
        """
        self.unrecorded = {}
        for option, names in (("--force-remove", gone), ("--replace", there)):
            if names:
                await self._record(option, names)
                self._tree = None
        if self._tree is None:
            self._tree = (await self._run("write-tree", "--missing-ok")).decode().strip()
        return self._tree

    async def _record(self, option: str, names: Sequence[bytes]) -> None:
        """Put files into the index, but those that git cannot read or convert: they would keep out all others."""
        try:
            asked = ("-z", "--add", "--remove", option, "--stdin")
            how = _INTO_PACK if len(names) > _MANY else ()
            await self._run("update-index", *asked, input=b"\0".join([*names, b""]), settings=how)
        except GitHangs:
            raise
        except GitError as error:
            if len(names) == 1:
                # If nothing can be written, there is no state to speak of.
                await self._run("hash-object", "-w", "--stdin", input=str(time.time_ns()).encode())
                self.unrecorded[names[0]] = str(error)
                self._warn(f"{os.fsdecode(names[0])} is not recorded: {error}")
                return
            half = len(names) // 2
            await self._record(option, names[:half])
            await self._record(option, names[half:])

    async def write_diff(self, before: str, after: str, target: Path, folder: str = "") -> None:
        """Write the difference of two trees to a file, which may be larger than our memory.

        `folder` stands before all names, with a slash at its end. Raises `GitError`, `OSError`.
        """
        prefixes = (f"--output={target}", f"--src-prefix=a/{folder}", f"--dst-prefix=b/{folder}")
        how = ("-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-renames")
        await self._run("diff-tree", *how, *prefixes, before, after, "--")

    def _signs(self, name: bytes) -> tuple[int, ...] | None:
        """Return what changes with every change of a file; None if there is no such file."""
        try:
            about = os.lstat(os.path.join(os.fsencode(self._work_tree), name))
        except OSError:
            return None
        return about.st_ino, about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns

    def _is_changed(self, name: bytes) -> bool:
        return name not in self._filtered or self._filtered[name] != self._signs(name)

    def guard(self) -> None:
        """See to it that the files which git obeys are ours: an agent may have found the directory."""
        _put(self._git_dir / "config", self._config.encode())
        for file, data in self._info.items():
            _put(self._git_dir / "info" / file, data)

    async def _run(
        self,
        name: str,
        *arguments: str,
        input: bytes | None = None,
        settings: Sequence[str] = (),
        ok: Sequence[int] = (0,),
    ) -> bytes:
        self.guard()
        own = str(self._git_dir)
        variables = {
            **git_environment(own, str(self._work_tree)),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(map(_quoted, self._objects)),
        }
        return await _run(name, arguments, settings=settings, cwd=GIT_CWD, env=variables, input=input, ok=ok)


# -- files of a repository -----------------------------------------------------------------------


def _content(path: Path, flags: int = 0) -> bytes:
    """Return the content of a file; nothing if there is none, or a pipe or the like."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags), "rb") as file:
            about = os.fstat(file.fileno())
            return file.read() if stat.S_ISREG(about.st_mode) and about.st_size <= _LARGEST_TEXT else b""
    except OSError:
        return b""


def _link(one: str, other: str) -> None:
    try:
        os.link(one, other)
    except OSError:  # not every file system can
        shutil.copy2(one, other)


def _put(path: Path, data: bytes) -> None:
    """Give a file this content, in one step, if it has another."""
    if path.is_symlink() or _content(path) != data or not path.exists():
        beside = path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        beside.write_bytes(data)
        beside.replace(path)


def _names(listed: bytes) -> list[str]:
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def _object_folders(objects: Path) -> Iterator[str]:
    """Yield the folder and those that it borrows objects from, which stay if an agent breaks the first one."""
    yield str(objects)
    for line in os.fsdecode(_content(objects / "info/alternates")).splitlines():
        if line and not line.startswith("#"):
            yield os.path.normpath(objects / line)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# -- attributes ----------------------------------------------------------------------------------


def _pinned(files: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    """Yield lines for `info/attributes` that mean what these files mean, and leave other files no say.

    Each file comes with its folder; later files win. Git obeys `info/attributes` before all other files. A macro in
    another file could still act through the name of an attribute, so those names are macros that do nothing.
    """
    yield from (f"[attr]{name}" for name in _PINNED)
    yield "* " + " ".join(f"!{name}" for name in _PINNED)
    macros = dict(_MACROS)
    for folder, data in files:
        for line in os.fsdecode(data.removeprefix(b"\xef\xbb\xbf")).splitlines():
            pattern, words = _split(line.strip(" \t\r"))
            if pattern.startswith("[attr]"):
                macros[pattern[6:]] = words
                continue
            kept = [word for word in _expanded(words, macros) if word.lstrip("-!").partition("=")[0] in _CONVERSIONS]
            if kept and pattern:
                yield f"{_quoted(_below(folder, pattern))} {' '.join(kept)}"


def _split(line: str) -> tuple[str, list[str]]:
    """Return the pattern of a line, without quotes, and its attributes; no pattern if the line says nothing."""
    if line.startswith("#"):
        return "", []
    if line.startswith('"') and (match := re.match(r'"((?:[^"\\]|\\.)*)"', line)):
        return _unquoted(match[1]), line[match.end() :].split()
    pattern, *words = line.split() or [""]
    return ("" if pattern.startswith("!") else pattern), words


def _unquoted(text: str) -> str:
    """Undo the escapes that git writes in quoted names."""

    def plain(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return (
            bytes([int(code, 8)])
            if code.isdigit()
            else dict(zip(b"abtnvfr", b"\a\b\t\n\v\f\r", strict=True)).get(code[0], code[0]).to_bytes(1, "big")
        )

    return os.fsdecode(re.sub(rb"\\([0-3][0-7]{2}|.)", plain, os.fsencode(text)))


def _expanded(words: Iterable[str], macros: Mapping[str, list[str]], depth: int = 5) -> Iterator[str]:
    for word in words:
        yield word
        if depth and word in macros:
            yield from _expanded(macros[word], macros, depth - 1)


def _below(folder: str, pattern: str) -> str:
    """Return the pattern as seen from the top."""
    if not folder:
        return pattern
    above = re.sub(r"([\\*?\[])", r"\\\1", folder)
    inside = pattern.lstrip("/") if "/" in pattern.rstrip("/") else f"**/{pattern}"
    return f"/{above}/{inside}"
