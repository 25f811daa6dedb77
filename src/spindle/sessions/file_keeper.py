"""Keeps a tree and its file in step.

A new session has no file until its first message. Problems with the file are no exceptions: the conversation
goes on in memory, `error` says why, and every later save tries again with all missing entries. Other programs
may add to the file, replace or delete it meanwhile; the tree takes in the entries they added, and entries that
they lost are written again.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from spindle.sessions.entries import Entry, SessionError
from spindle.sessions.file import (
    AppendFile,
    DirectorySync,
    beside,
    make_private_dir,
    put_side_file,
    replace_file,
    sync_directory,
)
from spindle.sessions.keeper import FsyncPolicy, is_worth_keeping
from spindle.sessions.load import load_session, parse_tail
from spindle.sessions.lock import SessionLock, try_lock
from spindle.sessions.tree import Tree


class FileKeeper:
    def __init__(
        self,
        tree: Tree,
        path: Path,
        file: AppendFile | None,
        lock: SessionLock | None,
        fsync: FsyncPolicy,
        on_write_error: Callable[[str], None],
    ) -> None:
        """Save `tree` at `path`. `file` is given if it exists and was read into the tree."""
        self.path = path
        self._write_error: str | None = None
        """Why the file lacks entries."""
        self._sync_error: str | None = None
        """Why entries may not be on the disk itself: until a later sync succeeds, whatever is written before it."""
        self._tree = tree
        self._file = file
        self._lock = lock
        self._fsync = fsync
        self._on_write_error = on_write_error
        self._has_begun = file is not None
        self._is_new_name = False
        """Whether the file's name in the directory is not on disk yet."""
        self._rewrite_due = False
        """Whether the tree was migrated, but the file still has the old version."""
        self._keep_old = False
        self._is_held = self._is_due = False
        """Whether entries are held back to be written together, and whether there are any."""
        self._beside: bytes | None = None
        """Content of the file that keeps waiting messages."""

    @property
    def error(self) -> str | None:
        """Why the file lacks entries, or the disk does; None if all are there."""
        return self._write_error or self._sync_error

    # -- saving ----------------------------------------------------------------------------------

    def save(self, entry: Entry) -> None:
        """Write an entry that was just added to the tree."""
        if not self._has_begun and not is_worth_keeping(entry):
            return
        if self._file is not None and not self._rewrite_due:
            self._file.put(entry.ended)
        if self._is_held:
            self._has_begun = self._is_due = True
        else:
            self.save_all()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Write what is saved inside at its end, at once."""
        self._is_held, self._is_due = True, False
        try:
            yield
        finally:
            self._is_held = False
            if self._is_due:
                self.save_all()

    def save_all(self) -> None:
        """Write all entries that the file lacks; make the file if there is none."""
        self._has_begun = True
        self._write()

    def rewrite(self, *, keep_old: bool) -> None:
        """Replace the file by the whole tree, after a migration."""
        self._rewrite_due, self._keep_old = True, keep_old
        self._write()

    def catch_up(self) -> None:
        """Take in changes that other programs made to the file, before we add to it."""
        if self._file is None or self._rewrite_due or (self._is_held and self._is_due):
            return  # or there was a look right before, for the entry that this one is written with
        try:
            status = os.stat(self.path)
            if self._file.is_unchanged(status):
                return
            if self._file.has_grown(status):
                self._tree.adopt(parse_tail(self._file.read_news()).entries)
                return
        except FileNotFoundError:
            self._release()
        except OSError as error:
            self._fail(error)
            return
        # The file is gone, replaced or cut short: the next save starts over and finds out which entries it lacks.
        self._drop_file()

    def sync(self) -> None:
        """Write missing entries, and wait for the disk if the policy says so."""
        if wait := self.begin_sync():
            try:
                wait()
            except OSError as error:
                self.sync_failed(error)

    def begin_sync(self) -> Callable[[], None] | None:
        """Write missing entries; return a function that waits for the disk, if the policy says so.

        It may be called in any thread; pass an `OSError` that it raises to `sync_failed`.
        """
        if self._file is None and self.error is None:
            return None
        self._write()
        if self._file is None or self._fsync == "never":
            return None
        wait = self._file.begin_sync()
        if wait is None:
            return None
        directory = DirectorySync.of(self.path.parent) if self._is_new_name else None
        self._is_new_name = False

        def wait_for_both() -> None:
            try:
                wait()
            except OSError:
                self._is_new_name = self._is_new_name or directory is not None
                raise
            self._sync_error = None
            if directory is not None:
                directory.wait()

        return wait_for_both

    def unsafe(self) -> None:
        """Return None: whatever was written survives this process."""

    def when_safe(self, then: Callable[[], None]) -> None:
        then()

    # -- before and beside the file --------------------------------------------------------------

    def claim(self) -> None:
        """Take the lock of a file that is still to be made. Raises `SessionLocked`, `SessionError`."""
        if self._has_begun or self._lock is not None:
            return
        self._take_lock()
        if os.path.exists(self.path) and os.path.getsize(self.path):
            self._release()
            raise SessionError(
                f"Another session is in this file now: {self.path}. Open it again or choose another file."
            )

    def read_beside(self) -> bytes | None:
        """Return the data of `keep_beside`, from this process or an earlier one."""
        if self._has_begun:
            try:
                self._beside = self._side_path.read_bytes()
            except OSError:
                pass
        return self._beside

    def keep_beside(self, data: bytes | None) -> None:
        """Keep data in a file beside that of the session, which is made first; None removes the data."""
        if data is not None and not self._has_begun:
            self.save_all()
        if data == self._beside or not self._has_begun:
            return
        try:
            put_side_file(self._side_path, data, is_new=self._beside is None, sync=self._fsync == "always")
        except OSError:
            return  # as with the lock: no side file can be made here
        self._beside = data

    @cached_property
    def _side_path(self) -> Path:
        return beside(self.path, "queue")

    def close(self) -> None:
        """Release the file and its lock. A later save takes them again."""
        self.sync()
        self._drop_file()
        self._release()

    # -- internals -------------------------------------------------------------------------------

    def sync_failed(self, error: OSError) -> None:
        """Record that the disk refused entries; the next sync tries again."""
        was_fine = self.error is None
        self._sync_error = self._explained(error)
        if was_fine:
            self._on_write_error(self._sync_error)

    def _fail(self, error: OSError | SessionError) -> None:
        """Record why the file lacks entries; the next save or sync tries again."""
        was_fine = self.error is None
        self._write_error = self._explained(error)
        if was_fine:
            self._on_write_error(self._write_error)

    def _explained(self, error: OSError | SessionError) -> str:
        reason = f"{error.strerror}: {self.path}" if isinstance(error, OSError) else str(error)
        return f"Session cannot be saved ({reason}). The conversation goes on in memory."

    def _write(self) -> None:
        """Bring the file up to date; an error goes to `fail`."""
        try:
            if self._rewrite_due:
                self._replace()
            elif self._file is None:
                self._begin()
            else:
                self._file.flush()
            if self._fsync == "always" and self._file is not None:
                self._file.sync()
                if self._is_new_name:
                    sync_directory(self.path.parent)
                    self._is_new_name = False
        except (OSError, SessionError) as error:
            self._fail(error)
        else:
            self._write_error = None

    def _begin(self) -> None:
        """Make the file with all entries, or add those that an existing one lacks."""
        if self._lock is None:
            self._take_lock()
        try:
            file = AppendFile.create(self.path)
        except FileExistsError:
            file = self._join()
        else:
            self._is_new_name = True
            file.put(self._everything())
        self._file = file  # also if the write fails: the next one goes on where it stopped
        file.flush()

    def _take_lock(self) -> None:
        """Lock the file's path. The folder is made only now, when there is an entry to save."""
        try:
            make_private_dir(self.path.parent)
        except OSError:
            pass  # making the file will tell what is wrong with the folder
        self._lock = try_lock(self.path)

    def _join(self) -> AppendFile:
        loaded = load_session(self.path)
        there = loaded.tree
        if there is None:
            loaded.file.put(self._everything())
        elif there.header.id != self._tree.header.id or loaded.was_migrated:
            raise SessionError(f"another session is in its file now: {self.path}")
        else:
            self._tree.adopt([entry for entry in there.entries if entry.id not in self._tree])
            missing = _lines(entry for entry in self._tree.entries if entry.id not in there)
            if missing:
                loaded.file.put(missing)
        return loaded.file

    def _replace(self) -> None:
        if self._file is None or not self._file.is_unchanged(os.stat(self.path)):
            raise SessionError(f"another program wrote to it while it was being converted: {self.path}")
        replace_file(self.path, self._everything(), keep_old=self._keep_old)
        self._file = AppendFile(self.path, os.stat(self.path))
        self._rewrite_due = False

    def _everything(self) -> bytes:
        return self._tree.header.ended + _lines(self._tree.entries)

    def _drop_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _lines(entries: Iterable[Entry]) -> bytes:
    return b"".join(entry.ended for entry in entries)
