"""The gate that all work behind a sandbox passes: protected files are compared before and after each command or tool.

`PutBack` (`guard.py`) keeps files that may not change at all, `GitGuard` what git would run. To protect more names,
give their paths to `Gate` in `places`, or write a guard with `remember` and `wrong`, as `GitGuard` has. While anything
runs, the state before it is kept in a note in the agent directory: if the agent is killed, the next sandbox over the
same folders finds the note and repairs. While other agents are at work, what their notes say is right, not what they
have made of it.
"""

import fcntl
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from spindle.base.agent_dir import agent_dir
from spindle.shapes.protected_files import obeyed_below
from spindle.workspace.git_guard import GitGuard, Known, is_below
from spindle.workspace.guard import Kept, PutBack

NOTES: Final = "fences"
_BUSY, _IDLE = b"!", b"."
_ROUNDS: Final = 3
"""Repairs of repairs: one brings to light what the next one has to look at."""
Behind = Callable[[Callable[[], None]], None]
"""Does work of ours behind the fence, so that links which appear meanwhile lead it nowhere."""


class _Note(Struct, frozen=True):
    cwd: str
    kept: dict[str, dict[str, Kept]]
    git: dict[str, Known]
    links: dict[str, str] = {}
    obeyed: list[str] = []
    tops: list[str] = []


class Gate:
    def __init__(
        self,
        cwd: str,
        places: list[str],
        tops: list[str],
        temporary: str,
        behind: Behind,
        after: "Gate | None" = None,
    ) -> None:
        """`places`: files and folders that stay as they are. `tops`: folders whose git directories are looked after.

        `after`: the gate before this one, whose commands have left processes.
        """
        self.aside = os.path.join(temporary, "put-back")
        self._cwd = cwd
        self._files = PutBack(places, self.aside)
        self._tops = tops
        self._obeyed: set[str] = set()
        """Names below the tops that agents obey, as they were before the work."""
        self._git = GitGuard(tops, temporary)
        self._behind = behind
        self._lock = threading.RLock()
        self._active = 0
        """Commands and tools at work."""
        self.is_left = after is not None
        """Whether processes that commands have left may have changed something since the last look."""
        self._before = [] if after is None else [after._what_was()]
        self._notes = os.fspath(agent_dir() / NOTES)
        self._note, self._name = -1, ""
        self._noted: tuple[object, object] | None = None
        self.unsaid: list[str] = []
        """What was found at the start, until somebody is told."""
        self._remember()
        self._told = set(self._git.too_many)
        """Places with too many folders that somebody was told of."""
        if self.is_left:
            self._write_note()

    # -- before and after --------------------------------------------------------------------------

    def begin(self, *, left: bool = False) -> list[str]:
        """Take what is there for right; if other work goes on, or processes that a command has `left`, compare it."""
        with self._lock:
            is_free = not self._active and not left
            said = self.unsaid if is_free and not self.is_left else self.check()
            if is_free:
                self.unsaid, self.is_left, self._before = [], False, []
                self._remember()
            self._active += 1
            self._write_note()
            return said

    def end(self, *, left: bool = False) -> list[str]:
        """Put right what the work has changed, and say so."""
        with self._lock:
            self._active -= 1
            self.is_left = left
            said = self.check()
            self._rest()
            return said

    def between(self, *, left: bool) -> bool:
        """Put right what processes have changed that a command has left, if nothing else is at work. Say whether they
        had. What was done is told with the next work. `left`: whether they go on."""
        with self._lock:
            if self._active or not self.is_left:
                return False
            before, self.unsaid = self.unsaid, []
            found = self.check()
            self.unsaid = list(dict.fromkeys(before + found))
            self.is_left = left
            self._rest()
            return bool(found)

    def _rest(self) -> None:
        if not self._active and not self.is_left and self._note >= 0:
            os.pwrite(self._note, _IDLE, 0)

    def _remember(self) -> None:
        self._git.is_quiet = not self.is_left
        self._git.remember()
        self._obeyed = set(self._git.obeyed)
        self._files.remember([*self._git.places, *sorted(self._obeyed)])
        if notes := [*self._before, *self._at_work()]:  # looked for last: who begins later finds what we have seen
            for note in notes:
                self._git.adopt(note.git, note.links, note.tops)
                self._know(note)
            self._files.remember([*self._git.places, *sorted(self._obeyed)])
            for note in notes:
                self._files.adopt(note.kept)

    def _know(self, note: _Note) -> None:
        """Take only those names that agents obey for right that another agent knew in its folders."""
        self._obeyed -= {one for one in self._obeyed - {*note.obeyed} if is_below(one, note.tops)}

    def check(self) -> list[str]:
        """Put back or put aside what may not stay. Return what was done, in words."""
        with self._lock:
            said, self.unsaid = self.unsaid, []
            self._git.is_quiet = not self._active and not self.is_left
            for _ in range(_ROUNDS):
                found = len(said)
                for text, repair in self._git.wrong(self._put_aside):
                    said.append(self._repair(text, repair))
                for place in sorted(self._git.obeyed - self._obeyed):
                    text = f"{place} is a name that agents obey, and was made"
                    said.append(self._repair(text, lambda place=place: self._put_aside(place)))  # type: ignore[misc]
                for place in self._files.changed():
                    if self._git.still_counts(place):
                        text = f"{place} is protected and was changed: it is put back as it was"
                        said.append(self._repair(text, lambda place=place: self._files.restore(place)))  # type: ignore[misc]
                if len(said) == found:
                    break
            new = set(self._git.too_many) - self._told
            self._told |= new
            said += [f"{path} has too many folders now: git is not looked after in all of them" for path in new]
            return list(dict.fromkeys(said))

    def _repair(self, text: str, repair: Callable[[], None]) -> str:
        try:
            self._behind(repair)
            kept = f", the change is in {self.aside}" if os.path.isdir(self.aside) else ""
            return f"{self._shown(text)}{kept}"
        except OSError as error:
            return f"{self._shown(text)}, but that failed: {error.strerror or error}"

    def _shown(self, text: str) -> str:
        return text.removeprefix(f"{self._cwd}/") if text.startswith(f"{self._cwd}/") else text

    def _put_aside(self, path: str) -> None:
        os.makedirs(self.aside, mode=0o700, exist_ok=True)
        shutil.move(path, os.path.join(self.aside, f"{os.path.basename(path)}.{os.urandom(3).hex()}"))

    # -- what tools ask ----------------------------------------------------------------------------

    def refuses(self, path: str) -> bool:
        """Say whether a tool may not change a file: it is part of a git directory, or one that stays as it is,
        by whatever other name."""
        if self._git.is_part(path) or self._files.is_part(path):
            return True
        if obeyed_below(
            path, max((top for top in self._tops if f"{path}/".startswith(f"{top}/")), key=len, default=path)
        ):
            return True
        try:
            status = os.stat(path)
        except OSError:
            return False
        return status.st_nlink > 1 and (status.st_dev, status.st_ino) in self._files.numbers(self._linked())

    def _linked(self) -> Iterable[str]:
        return (path for known in self._git.known.values() for path in known.configs)

    def unwatched(self) -> list[str]:
        return self._files.unwatched()

    @property
    def too_many(self) -> list[str]:
        return self._git.too_many

    # -- other agents, also dead ones --------------------------------------------------------------

    def _at_work(self) -> Iterator[_Note]:
        """Yield what agents knew before the work that they are at now."""
        with suppress(OSError):
            for name in os.listdir(self._notes):
                if name == self._name:
                    continue
                with suppress(OSError, ValueError, msgspec.MsgspecError):
                    file = os.open(f"{self._notes}/{name}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                    try:
                        if os.pread(file, 1, 0) == _BUSY and _is_locked(file):
                            yield _decoded(os.pread(file, os.fstat(file).st_size, 0)[1:])
                    finally:
                        os.close(file)

    def _what_was(self) -> _Note:
        return _Note(self._cwd, self._files.kept, self._git.known, self._git.links, sorted(self._obeyed), self._tops)

    def _write_note(self) -> None:
        state = (self._files.kept, self._git.known)
        try:
            if self._note < 0:
                os.makedirs(self._notes, mode=0o700, exist_ok=True)
                self._name = f"{hashlib.sha256(os.fsencode(self._cwd)).hexdigest()[:16]}.{os.urandom(4).hex()}"
                self._note = os.open(
                    f"{self._notes}/{self._name}", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
                )
                fcntl.flock(self._note, fcntl.LOCK_EX)
            if self._noted is None or self._noted[0] is not state[0] or self._noted[1] is not state[1]:
                os.ftruncate(self._note, 0)
                os.pwrite(self._note, _IDLE + _encoded(self._what_was()), 0)
                self._noted = state
            os.pwrite(self._note, _BUSY, 0)
        except OSError:
            pass  # a full disk, or a folder that is not ours: commands are compared all the same

    def recover(self) -> None:
        """Repair what work left in these folders whose agent was killed. What was found is told with the next work."""
        try:
            names = os.listdir(self._notes)
        except OSError:
            return
        for name in names:
            path = f"{self._notes}/{name}"
            with suppress(OSError, ValueError, msgspec.MsgspecError):
                file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if its agent lives
                    if (data := os.pread(file, os.fstat(file).st_size, 0))[:1] == _BUSY:
                        note = _decoded(data[1:])
                        if note.cwd != self._cwd and os.path.isdir(note.cwd):
                            continue
                        self._files.take(note.kept)
                        self._git.take(note.git, note.links)
                        self._know(note)
                        self.unsaid = [f"(left by a command whose agent was killed) {text}" for text in self.check()]
                    os.unlink(path)
                finally:
                    os.close(file)
        self._remember()

    def close(self) -> None:
        """Give the note up: nothing is at work any more."""
        if self._note >= 0:
            with suppress(OSError):
                os.unlink(os.readlink(f"/proc/self/fd/{self._note}"))
            os.close(self._note)
            self._note, self._name = -1, ""


def _encoded(note: _Note) -> bytes:
    """Names of files need not be UTF-8: of all encodings that we have only this one takes them."""
    return json.dumps(msgspec.to_builtins(note)).encode()


def _decoded(data: bytes) -> _Note:
    """Raises `ValueError`, `msgspec.ValidationError`."""
    return msgspec.convert(json.loads(data), _Note)


def _is_locked(file: int) -> bool:
    """Say whether the agent lives that a note is of."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
