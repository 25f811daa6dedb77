"""A stand-in for ripgrep on a far side that has none: the options that our tools use, the same output.

It is a program of its own, because a pattern may keep Python's matcher busy for ever: then it is killed.

Runs on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from typing import Any, Iterator, List, Tuple

from spindle.base.globs import GlobError, IgnoreFile, PathGlob, expand_braces

Places = List[Tuple[int, IgnoreFile]]
"""Ignore files, the deepest last, each with the number of parts of its folder's path."""

_KINDS = (".rgignore", ".ignore", ".gitignore")
"""Ignore files; a verdict of an earlier kind counts more, whatever its folder."""
_BINARY_HEAD = 1 << 16
_CLASSES = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s"}
_CLASSES["punct"] = r"!-/:-@\[-`{-~"


class SearchOptions:
    def __init__(self, words: list[str]) -> None:
        self.flags = set()
        self.globs: list[str] = []
        self.columns = 0
        self.rest: list[str] = []
        words = list(words)
        while words:
            word = words.pop(0)
            if word == "--":
                self.rest += words
                break
            if word == "--glob":
                self.globs.append(words.pop(0))
            elif word.startswith("--glob="):
                self.globs.append(word[7:])
            elif word.startswith("--max-columns="):
                self.columns = int(word[14:])
            elif word == "-e":
                self.rest.append(words.pop(0))
            else:
                self.flags.add(word)


class FolderTree:
    """The files below a folder that are not ignored."""

    def __init__(self, options: SearchOptions) -> None:
        self._hidden = "--hidden" in options.flags
        self._needs_git = "--no-require-git" not in options.flags
        self._globs = [_Override(glob) for glob in options.globs]
        self._wants = any(not glob.excludes for glob in self._globs)

    def files(self, root: str) -> Iterator[str]:
        top = os.path.abspath(root)
        parts = [part for part in top.split("/") if part]
        ignores: dict[str, Places] = {kind: [] for kind in _KINDS}
        in_git = not self._needs_git or _repository_of(top) is not None
        repository = _repository_of(top)
        for count in range(len(parts)):
            folder = "/" + "/".join(parts[:count])
            self._learn(folder, count, ignores, in_git and (repository is None or folder.startswith(repository)))
        yield from self._below(root, parts, len(parts), ignores, in_git)

    def _learn(self, folder: str, depth: int, ignores: dict[str, Places], in_git: bool) -> None:
        for kind in _KINDS:
            if kind != ".gitignore" or in_git:
                for name in (kind, ".git/info/exclude") if kind == ".gitignore" else (kind,):
                    try:
                        with open(os.path.join(folder, name), encoding="utf-8", errors="surrogateescape") as file:
                            ignores[kind].append((depth, IgnoreFile(file.read().split("\n"))))
                    except (OSError, ValueError):
                        pass

    def _below(
        self, folder: str, parts: list[str], top: int, ignores: dict[str, Places], in_git: bool
    ) -> Iterator[str]:
        in_git = in_git or os.path.lexists(os.path.join(folder, ".git"))
        here = {kind: list(places) for kind, places in ignores.items()}
        self._learn(folder, len(parts), here, in_git)
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            complain(f"{folder}: {error.strerror} (os error {error.errno})")
            return
        for entry in entries:
            path = [*parts, entry.name]
            is_folder = entry.is_dir(follow_symlinks=False)
            if self._is_left_out(path, top, is_folder, here):
                continue
            if is_folder:
                yield from self._below(os.path.join(folder, entry.name), path, top, here, in_git)
            elif entry.is_file(follow_symlinks=False):
                yield os.path.join(folder, entry.name)

    def _is_left_out(self, path: list[str], top: int, is_folder: bool, ignores: dict[str, Places]) -> bool:
        for glob in reversed(self._globs):
            if glob.match(path[top:], is_folder):
                return glob.excludes
        if self._wants and not is_folder:
            return True
        for kind in _KINDS:
            for depth, file in reversed(ignores[kind]):
                verdict = file.verdict(path[depth:], is_folder)
                if verdict is not None:
                    return verdict
        return not self._hidden and path[-1].startswith(".")


class _Override:
    """A pattern of `--glob`: like a line of an ignore file, for names at any depth if it has no slash."""

    def __init__(self, glob: str) -> None:
        self.excludes = glob.startswith("!")
        pattern = glob[self.excludes :]
        self._folders_only = pattern.endswith("/")
        pattern = pattern.rstrip("/")
        self._anchored = "/" in pattern
        self._globs = [PathGlob(one[one.startswith("/") :]) for one in expand_braces(pattern)]

    def match(self, parts: list[str], is_folder: bool) -> bool:
        if self._folders_only and not is_folder:
            return False
        return any(glob.match(parts if self._anchored else parts[-1:]) for glob in self._globs)


def _repository_of(folder: str) -> str | None:
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == "/":
            return None
        folder = os.path.dirname(folder)
    return folder


def as_python(pattern: str) -> str:
    """Return a pattern of ripgrep as one of Python."""
    pattern = re.sub(r"\[:(\^?)(\w+):\]", lambda found: _CLASSES.get(found[2], found[0]), pattern)
    pattern = pattern.replace(r"\z", r"\Z").replace(r"\h", "[0-9a-fA-F]")
    # Python has flags for the whole pattern only at its beginning; ripgrep from where they are on.
    if not re.match(r"\(\?[ims]+\)", pattern) and re.search(r"\(\?[ims]+\)", pattern):
        return re.sub(r"\(\?([ims]+)\)", r"(?\1:", pattern, count=1) + ")"
    return pattern


def compiled(options: SearchOptions) -> Any:
    """Return the pattern. Raises `re.error`."""
    pattern = options.rest[0]
    text = re.escape(pattern) if "--fixed-strings" in options.flags else as_python(pattern)
    return re.compile(text, re.IGNORECASE if "--ignore-case" in options.flags else 0)


def search(options: SearchOptions) -> int:
    try:
        pattern = compiled(options)
    except (re.error, OverflowError, RecursionError) as error:
        complain(f"regex parse error:\n    {options.rest[0]}\nerror: {error}")
        return 2
    root = options.rest[1]
    quiet, text = "--quiet" in options.flags, "--text" in options.flags
    found = False
    for path in FolderTree(options).files(root) if os.path.isdir(root) else [root]:
        for number, line in matches(path, pattern, text):
            found = True
            if quiet:
                return 0
            if options.columns and len(line) > options.columns:
                line = line[: options.columns] + b" [... omitted end of long line]"
            out(os.fsencode(path) + b"\0%d:" % number + line + b"\n")
    return 0 if found else 1


def matches(path: str, pattern: Any, text: bool) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that match. A binary file has none, unless it is to be taken as text."""
    try:
        with open(path, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return
            if not text and b"\0" in file.read(_BINARY_HEAD):
                return
            file.seek(0)
            for number, line in enumerate(file, 1):
                if not text and b"\0" in line:
                    return
                line = line[:-1] if line.endswith(b"\n") else line
                if pattern.search(line.decode("utf-8", "replace")):
                    yield number, line
    except OSError as error:
        complain(f"{path}: {error.strerror} (os error {error.errno})")


def listing(options: SearchOptions) -> int:
    code = 1
    for path in FolderTree(options).files("."):
        code = 0
        out(os.fsencode(path[2:]) + b"\n")
    return code


_waiting = bytearray()


def out(data: bytes) -> None:
    _waiting.extend(data)
    if len(_waiting) > 1 << 14:
        flush()


def flush() -> None:
    view = memoryview(bytes(_waiting))
    _waiting.clear()
    while view:
        view = view[os.write(1, view) :]


def complain(text: str) -> None:
    os.write(2, f"rg: {text}\n".encode("utf-8", "replace"))


def main() -> None:
    try:
        options = SearchOptions(sys.argv[1:])
        code = listing(options) if "--files" in options.flags else search(options)
        flush()
    except GlobError as error:
        complain(str(error))
        code = 2
    except BrokenPipeError:
        code = 2
    os._exit(code)
