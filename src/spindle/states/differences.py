"""How two states of a folder differ, and the way from one to the other."""

import asyncio
import os
import re
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spindle.states.git import GitError
from spindle.states.recorder import Recorder
from spindle.states.state import Change, Copy, Detail, State, read_differences
from spindle.workspace.states import (
    file_content,
    ignored_then,
    keep_content,
    put_files_back,
    run_git,
    tree_of,
)

_HEAD = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")
_LS_TREE = ("--literal-pathspecs", "ls-tree")
"""A file may have the name ":(glob)x"."""
_NO_NEWLINE = "\\"


class Differences:
    """Differences of the states that a recorder has recorded. The methods raise `GitError` and `OSError`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._root = recorder.root

    async def _git(self, *arguments: str, data: bytes = b"") -> bytes:
        return await self._recorder.do(run_git, list(arguments), data)

    async def compare(self, a: State, b: State, left_out: list[Change] | None = None) -> list[Change]:
        """Return the paths that differ, but those that one of the states does not cover. They go into `left_out`.

        Raises `GitError`, `OSError`.
        """
        shared = sorted(a.copies.keys() & b.copies.keys())
        changes = [
            Change(self.inside(path), a.copies[path], b.copies[path])
            for path in shared
            if a.copies[path] != b.copies[path]
        ]
        if a.tree is None or b.tree is None:
            return changes
        seen = set(map(self.inside, shared))
        raw: list[bytes] = []
        if a.tree != b.tree:
            raw = (await self._git("diff-tree", "-r", "-z", "--raw", "--no-renames", a.tree, b.tree)).split(b"\0")
        for facts, name in zip(raw[::2], raw[1::2], strict=False):
            path, words = os.fsdecode(name), facts.decode().lstrip(":").split()
            before, after = self._form(a, path, words[0], words[2]), self._form(b, path, words[1], words[3])
            if path in seen:
                continue
            seen.add(path)
            if a.covers(path) and b.covers(path):
                changes.append(Change(path, before, after))
            elif left_out is not None:
                left_out.append(Change(path, before, after))
        changes += [change for change in await self._mode_changes(a, b) if change.path.rstrip("/") not in seen]
        return changes + self._folder_changes(a, b, changes)

    async def _mode_changes(self, a: State, b: State) -> list[Change]:
        """Return files with the same content, and folders, that have other permissions."""
        modes = {path: (self._bits(a, b, path), self._bits(b, a, path)) for path in a.modes.keys() | b.modes.keys()}
        differing = sorted(path for path, (old, new) in modes.items() if old != new)
        folders = [path for path in differing if path.endswith("/")]
        common = await self._folders_in(a, folders) & await self._folders_in(b, folders) if folders else set()
        return [
            Change(path, Copy(kind | modes[path][0]), Copy(kind | modes[path][1]))
            for path in differing
            if path in common or not path.endswith("/")
            if a.knows(path) and b.knows(path)
            for kind in [stat.S_IFDIR if path.endswith("/") else stat.S_IFREG]
        ]

    async def _folders_in(self, state: State, folders: Sequence[str]) -> set[str]:
        """Return those of some folders that there are in a state."""
        names = [folder.rstrip("/") for folder in folders]
        asked = ("-z", "-d", "--name-only", "--full-tree", str(state.tree))
        listed = await self._git(*_LS_TREE, *asked, "--", *names)
        found = {f"{os.fsdecode(name)}/" for name in listed.split(b"\0") if name}
        also = (*state.folders, *state.skipped)  # empty, or closed
        return found | {folder for folder in folders if any(one.startswith(folder) for one in also)}

    def _folder_changes(self, a: State, b: State, changes: Sequence[Change]) -> list[Change]:
        """Return folders that are empty in one state, and missing in the other."""
        found: list[Change] = []
        added = {change.path for change in changes if change.before is None}
        removed = {change.path for change in changes if change.after is None}
        for one, other, full in ((a, b, added), (b, a, removed)):
            for folder in sorted(set(one.folders) - set(other.folders)):
                if not any(path.startswith(folder) for path in (*full, *other.folders)) and other.covers(folder):
                    form = Copy(stat.S_IFDIR | self._bits(one, other, folder))
                    found.append(Change(folder, form, None) if one is a else Change(folder, None, form))
        return found

    def _bits(self, state: State, other: State, path: str) -> int:
        """Return the permissions of a file or folder that has the same content in another state."""
        if path in state.modes:
            return state.modes[path]
        file, program, folder = self._recorder.usual
        return folder if path.endswith("/") else program if other.modes.get(path, 0) & 0o100 else file

    def _form(self, state: State, path: str, mode: str, oid: str) -> Copy | None:
        kind = int(mode, 8)
        if kind == 0:
            return None
        if stat.S_ISLNK(kind):
            return Copy(stat.S_IFLNK | 0o777, oid)
        usual = self._recorder.usual[1] if kind & 0o100 else self._recorder.usual[0]
        return Copy(stat.S_IFREG | state.modes.get(path, usual), oid)

    async def details(self, a: State, b: State, largest: int) -> list[Detail]:
        """Return the files that differ, with their diffs up to a number of bytes. Raises `GitError`, `OSError`."""
        found: list[Detail] = []
        if a.tree is not None and b.tree is not None and a.tree != b.tree:
            found = [one for one in await self._between(a.tree, b.tree, largest) if a.covers(one.path)]
            found = [one for one in found if b.covers(one.path)]
        found = [one for one in found if os.path.join(self._root, one.path) not in a.copies.keys() & b.copies.keys()]
        found += await self._of_copies(a, b, largest)
        told = {one.path for one in found} | {one.old_path for one in found}
        for change in await self.compare(a, b):
            if change.path not in told:
                status = "added" if change.before is None else "deleted" if change.after is None else "modified"
                found.append(Detail(change.path, status, added=0, removed=0))
        return sorted(found, key=lambda one: one.path)

    async def _of_copies(self, a: State, b: State, largest: int) -> list[Detail]:
        differing = [path for path in a.copies.keys() & b.copies.keys() if a.copies[path] != b.copies[path]]
        inside = [path for path in differing if self.inside(path) != path]
        found = await self._of_some(inside, a, b, f"{self._root}/", largest)
        outside = await self._of_some([path for path in differing if path not in inside], a, b, "/", largest)
        for one in outside:
            one.path = f"/{one.path}"
            one.old_path = one.old_path and f"/{one.old_path}"
        return found + outside

    async def _of_some(self, paths: list[str], a: State, b: State, folder: str, largest: int) -> list[Detail]:
        """Compare copies of files below one folder; paths and diffs are as seen from there."""
        if not paths:
            return []
        trees = [
            await self._tree_of({path.removeprefix(folder): state.copies[path] for path in paths}) for state in (a, b)
        ]
        return await self._between(trees[0], trees[1], largest)

    async def _tree_of(self, copies: dict[str, Copy | None]) -> str:
        listed = [(path, copy.mode, copy.oid) for path, copy in copies.items() if copy is not None]
        return await self._recorder.do(tree_of, listed)

    async def _between(self, a: str, b: str, largest: int) -> list[Detail]:
        how = ("-r", "-M", "--no-ext-diff", "--no-textconv")
        listed, patch = await asyncio.gather(
            self._git("diff-tree", *how, "-z", "--raw", "--numstat", a, b),
            self._git("diff-tree", *how, "-p", a, b),
        )
        found = read_differences(listed)
        parts = (b"\n" + patch).split(b"\ndiff --git ")[1:]
        for one in found:
            part = b"\n".join(b"diff --git " + part.rstrip(b"\n") for part in parts[: one.parts]) + b"\n"
            del parts[: one.parts]
            if one.added is not None and len(part) <= largest:
                one.diff = part.decode("utf-8", "replace")
                largest -= len(part)
        return found

    # -- putting back ----------------------------------------------------------------------------

    async def not_to_remove(self, changes: Sequence[Change], target: State) -> set[str]:
        """Return files that were ignored in the target state, so that nothing is known of them then.

        Raises `GitError`, `OSError`.
        """
        removed = [change.path for change in changes if change.after is None and not change.path.startswith("/")]
        if not removed or not any(os.path.basename(change.path) == ".gitignore" for change in changes):
            return set()
        assert target.tree is not None
        return set(await self._recorder.do(ignored_then, target.tree, removed))

    async def put_back(self, changes: Sequence[Change], target: State) -> dict[str, str]:
        """Give paths the form that they have `after` each change. Returns those that failed, with the reason."""
        listed = [
            (one.path, one.before is not None, None if one.after is None else (one.after.mode, one.after.oid))
            for one in changes
        ]
        about = {"modes": target.modes, "folders": target.folders}
        return await self._recorder.change(put_files_back, listed, about, self._recorder.usual[2])

    async def without_hunks(self, change: Change, hunks: Sequence[str]) -> Change:
        """Return a change that takes back some hunks of the diff that ends in the present state of a file.

        Raises `ValueError` if they do not fit it, and `GitError`.
        """
        path, before = change.path, change.before
        if before is None or change.after is None or not before.oid or stat.S_ISLNK(before.mode):
            raise ValueError("hunks can only be taken back of a file that was there before, and is")
        content = await self._recorder.do(file_content, path, before.oid)
        oid = await self._recorder.do(keep_content, taken_back(content, hunks))
        return Change(path, before, Copy(before.mode, oid))

    async def check_kept(self, changes: Sequence[Change]) -> None:
        """Raise `GitError` if the content that files get by these changes is lost."""
        asked = "".join(f"{change.after.oid}\n" for change in changes if change.after and change.after.oid).encode()
        said = await self._git("cat-file", "--batch-check", data=asked) if asked else b""
        if b" missing\n" in said:
            raise GitError("the content of some files is not kept any more")

    async def in_tree(self, state: State, paths: Iterable[str]) -> set[str]:
        """Return those of some absolute paths that a state has in its tree. Raises `GitError`."""
        wanted = {name: path for path in paths if not os.path.isabs(name := self.inside(path))}
        if state.tree is None or not wanted:
            return set()
        listed = await self._git(*_LS_TREE, "-z", "--name-only", "--full-tree", state.tree, "--", *wanted)
        return {wanted[name] for line in listed.split(b"\0") if (name := os.fsdecode(line)) in wanted}

    def inside(self, path: str) -> str:
        """Return an absolute path as seen from the folder, if it is in there."""
        return path.removeprefix(f"{self._root}/")


# -- hunks ---------------------------------------------------------------------------------------


class _Hunk(NamedTuple):
    at: int
    """The first of its lines in the text, counted from 0."""
    old: list[bytes]
    new: list[bytes]


def taken_back(content: bytes, hunks: Sequence[str]) -> bytes:
    """Return a text as it was before some hunks in git's form. Raises `ValueError` if they do not fit the text."""
    lines = _lines(content)
    for hunk in sorted(map(_read_hunk, hunks), key=lambda hunk: hunk.at, reverse=True):
        end = hunk.at + len(hunk.new)
        if lines[hunk.at : end] != hunk.new:
            raise ValueError(f"the lines from {hunk.at + 1} on are others")
        lines[hunk.at : end] = hunk.old
    return b"".join(lines)


def _lines(content: bytes) -> list[bytes]:
    """Return the lines with their newlines; other line ends are part of a line, as for git."""
    *whole, rest = content.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _read_hunk(text: str) -> _Hunk:
    head, _, body = text.partition("\n")
    if (found := _HEAD.match(head)) is None:
        raise ValueError(f"not a hunk: {head[:80]!r}")
    hunk = _Hunk(int(found[1]) - (found[2] != "0"), [], [])
    sides: list[list[bytes]] = []
    for line in body.removesuffix("\n").split("\n"):
        if line.startswith(_NO_NEWLINE):  # the line above is the last one
            for side in sides:
                side[-1] = side[-1].removesuffix(b"\n")
            continue
        sides = {"-": [hunk.old], "+": [hunk.new]}.get(line[:1], [hunk.old, hunk.new])
        for side in sides:
            side.append(line[1:].encode() + b"\n")
    return hunk
