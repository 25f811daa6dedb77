"""A session: a conversation as a tree, kept in one file that other programs can read and continue.

`SessionManager` is the door to this package: it finds, opens, grows and branches sessions. The leaf is where the
conversation stands; it is not stored, so moving it writes nothing and the next entry makes the move visible.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack

from spindle.sessions import index
from spindle.sessions.branch import branched_entries, chain
from spindle.sessions.context import (
    SessionContext,
    build_context,
    entry_message,
    model_in_force,
    thinking_level_in_force,
)
from spindle.sessions.damage import Damage
from spindle.sessions.entries import Entry, Header, new_header
from spindle.sessions.errors import SessionError
from spindle.sessions.file import AppendFile, write_new_file
from spindle.sessions.ids import check_session_id, iso_time, new_entry_id, now_ms
from spindle.sessions.load import load_session
from spindle.sessions.lock import SessionLock, try_lock
from spindle.sessions.paths import absolute, make_private_dir, session_dir_for, session_file_name
from spindle.sessions.store import FsyncPolicy, Store, is_worth_a_file
from spindle.sessions.tree import Tree, TreeNode
from spindle.shapes.content import Image, Text
from spindle.shapes.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
)
from spindle.shapes.messages import AgentMessage, Usage

__all__ = ["SessionManager"]

StrPath: TypeAlias = str | os.PathLike[str]
# Inside the class the name `list` is taken by one of its methods.
Entries: TypeAlias = list[Entry]
Nodes: TypeAlias = list[TreeNode]
Infos: TypeAlias = list[index.SessionInfo]
Content: TypeAlias = str | list[Text | Image]


class Saving(TypedDict, total=False):
    """How a session is kept on disk."""

    fsync: FsyncPolicy
    on_write_error: Callable[[str], None]
    """Told once when saving begins to fail; the session goes on in memory."""


class SessionManager:
    """Make one with `create`, `open`, `continue_recent`, `in_memory` or `fork_from`; `close` it in the end."""

    def __init__(self, cwd: str, session_dir: Path | None, **saving: Unpack[Saving]) -> None:
        """Prepare an empty session. `session_dir` None: it lives in memory only."""
        self.damage: list[Damage] = []
        """What was wrong with the file when it was opened."""
        self._cwd = cwd
        self._session_dir = session_dir
        self._fsync: FsyncPolicy = saving.get("fsync", "run")
        self._write_listeners = [saving["on_write_error"]] if "on_write_error" in saving else []
        self._is_read_only = False
        self._tree = Tree(new_header(cwd))
        self._path: Path | None = None
        """Where the session is saved, or will be."""
        self._store: Store | None = None
        """None if it is not to be saved."""

    # -- coming by one ---------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        cwd: StrPath,
        session_dir: StrPath | None = None,
        *,
        id: str | None = None,
        parent_session: StrPath | None = None,
        **saving: Unpack[Saving],
    ) -> "SessionManager":
        """Begin a session; its file comes with the first message. Raises `SessionError` for a bad id."""
        manager = cls(absolute(cwd), _directory(cwd, session_dir), **saving)
        manager.new_session(id=id, parent_session=parent_session)
        return manager

    @classmethod
    def open(
        cls,
        path: StrPath,
        session_dir: StrPath | None = None,
        cwd: StrPath | None = None,
        *,
        read_only: bool = False,
        **saving: Unpack[Saving],
    ) -> "SessionManager":
        """Open a session file; a missing one is a new session at exactly that place.

        Raises `SessionLocked` if somebody else writes to it, `InvalidSession` if it is something else (and leaves
        it alone), `SessionError` if it cannot be read.
        """
        file = Path(absolute(path))
        directory = Path(absolute(session_dir)) if session_dir else file.parent
        manager = cls(absolute(cwd or os.getcwd()), directory, **saving)
        manager._is_read_only = read_only
        manager.set_session_file(file)
        if cwd is None:
            manager._cwd = manager._tree.header.cwd or manager._cwd
        return manager

    @classmethod
    def continue_recent(
        cls, cwd: StrPath, session_dir: StrPath | None = None, **saving: Unpack[Saving]
    ) -> "SessionManager":
        """Open the project's session that was written to last, or begin one. Raises as `open` does."""
        recent = index.most_recent_session(cwd, session_dir)
        if recent is None:
            return cls.create(cwd, session_dir, **saving)
        return cls.open(recent, session_dir, cwd, **saving)

    @classmethod
    def in_memory(cls, cwd: StrPath | None = None) -> "SessionManager":
        """Begin a session that is never written anywhere."""
        return cls(absolute(cwd or os.getcwd()), None)

    @classmethod
    def fork_from(
        cls, source: StrPath, target_cwd: StrPath, session_dir: StrPath | None = None, **saving: Unpack[Saving]
    ) -> "SessionManager":
        """Copy a session with all its branches into a project. The source may be in use. Raises `SessionError`."""
        origin = Path(absolute(source))
        try:
            tree = load_session(origin).tree
        except (FileNotFoundError, SessionError):
            tree = None
        if tree is None:
            raise SessionError(f"Cannot fork: source session file is empty or invalid: {origin}")
        cwd = absolute(target_cwd)
        manager = cls(cwd, _directory(cwd, session_dir), **saving)
        manager._turn_to(Tree(new_header(cwd, parent_session=str(origin)), tree.entries))
        manager._save_all()
        return manager

    @staticmethod
    def list(cwd: StrPath, session_dir: StrPath | None = None, on_progress: index.Progress | None = None) -> Infos:
        """Return the sessions of a project, the latest first."""
        return index.list_sessions(cwd, session_dir, on_progress)

    @staticmethod
    def list_all(session_dir: StrPath | None = None, on_progress: index.Progress | None = None) -> Infos:
        """Return the sessions of all projects, the latest first."""
        return index.list_all_sessions(session_dir, on_progress)

    @staticmethod
    def find_by_id(cwd: StrPath, session_id: str, session_dir: StrPath | None = None) -> str | None:
        """Return the file of the project's session with exactly this id."""
        return index.find_by_id(cwd, session_id, session_dir)

    # -- changing to another ---------------------------------------------------------------------

    def new_session(self, *, id: str | None = None, parent_session: StrPath | None = None) -> str | None:
        """Leave the current session and begin an empty one. Returns its future path. Raises `SessionError`."""
        session_id = check_session_id(id) if id is not None else None
        parent = os.fspath(parent_session) if parent_session is not None else None
        self._turn_to(Tree(new_header(self._cwd, session_id=session_id, parent_session=parent)))
        return self.get_session_file()

    def set_session_file(self, path: StrPath) -> None:
        """Leave the current session and go on with a file, keeping working and session directory. Raises as `open`."""
        file = Path(absolute(path))
        if self.is_same_file(file):
            self.close()
        lock = None if self._is_read_only else _lock_if_there(file)
        try:
            loaded = load_session(file)
        except FileNotFoundError:
            if self._is_read_only:
                raise SessionError(f"Session file not found: {file}") from None
            self._turn_to(Tree(new_header(self._cwd)), file)
            return
        except SessionError:
            if lock is not None:
                lock.release()
            raise
        known = loaded.file if loaded.tree is not None else None
        self._turn_to(loaded.tree or Tree(new_header(self._cwd)), file, known, lock)
        self.damage = loaded.damage
        if loaded.was_migrated and self._store is not None:
            self._store.rewrite(keep_old=loaded.has_new_ids or bool(loaded.damage))

    def create_branched_session(self, leaf_id: str) -> str | None:
        """Go on in a new session that holds only the path to `leaf_id`. Returns its path. Raises `EntryNotFound`."""
        self._tree.require(leaf_id)
        entries = branched_entries(self._tree, leaf_id)
        self._turn_to(Tree(new_header(self._cwd, parent_session=self.get_session_file()), entries))
        if any(is_worth_a_file(entry) for entry in entries):
            self._save_all()
        return self.get_session_file()

    def close(self) -> None:
        """Write what is still missing and let go of the file and its lock."""
        if self._store is not None:
            self._store.close()

    def on_write_error(self, listener: Callable[[str], None]) -> None:
        """Tell one more listener when saving begins to fail."""
        self._write_listeners.append(listener)

    def sync(self) -> None:
        """Bring the file up to date, on the disk itself if the policy says so. Call it at the end of each run."""
        if self._store is not None:
            self._store.sync()

    def begin_sync(self) -> Callable[[], None] | None:
        """Like `sync`, but return what has to wait for the disk; it may be called in any thread.

        An `OSError` it raises is to be handed to `sync_failed`. None: there is nothing to wait for.
        """
        return self._store.begin_sync() if self._store is not None else None

    def sync_failed(self, error: OSError) -> None:
        """Tell that the disk refused; the next sync tries again."""
        if self._store is not None:
            self._store.sync_failed(error)

    def __enter__(self) -> "SessionManager":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- growing: each returns the id of the new entry, which becomes the leaf -------------------

    def append_message(self, message: AgentMessage | dict[str, Any]) -> str:
        return self._append(MessageEntry, message=message)

    def append_thinking_level_change(self, level: str) -> str:
        return self._append(ThinkingLevelChangeEntry, thinking_level=level)

    def append_model_change(self, provider: str, model_id: str) -> str:
        return self._append(ModelChangeEntry, provider=provider, model_id=model_id)

    def append_compaction(
        self,
        summary: str,
        first_kept_entry_id: str | None,
        tokens_before: int,
        details: Any = None,
        from_hook: bool | None = None,
        usage: Usage | None = None,
    ) -> str:
        """Replace what came before by a summary, from `first_kept_entry_id` on excepted; None keeps nothing."""
        entry_id = self._new_id()
        return self._append(
            CompactionEntry,
            id=entry_id,
            summary=summary,
            first_kept_entry_id=first_kept_entry_id or entry_id,
            tokens_before=tokens_before,
            details=details,
            from_hook=from_hook,
            usage=usage,
        )

    def append_custom_entry(self, custom_type: str, data: Any = None) -> str:
        """Keep state of an extension; no model sees it."""
        return self._append(CustomEntry, custom_type=custom_type, data=data)

    def append_custom_message_entry(
        self, custom_type: str, content: Content, display: bool, details: Any = None
    ) -> str:
        """Add a message of an extension; the model sees it, people only if `display`."""
        return self._append(
            CustomMessageEntry, custom_type=custom_type, content=content, display=display, details=details
        )

    def append_session_info(self, name: str) -> str:
        """Name the session; an empty name takes the old one away."""
        return self._append(SessionInfoEntry, name=re.sub(r"[\r\n]+", " ", name).strip())

    def append_label_change(self, target_id: str, label: str | None) -> str:
        """Label an entry; None or nothing takes the label away. Raises `EntryNotFound`."""
        self._tree.require(target_id)
        return self._append(LabelEntry, target_id=target_id, label=label)

    # -- moving ----------------------------------------------------------------------------------

    def branch(self, entry_id: str) -> None:
        """Move to an entry; what is appended next becomes its child. Raises `EntryNotFound`."""
        self._tree.leaf_id = self._tree.require(entry_id).id

    def reset_leaf(self) -> None:
        """Move before the first entry; what is appended next becomes a root."""
        self._tree.leaf_id = None

    def branch_with_summary(
        self,
        entry_id: str | None,
        summary: str,
        details: Any = None,
        from_hook: bool | None = None,
        usage: Usage | None = None,
    ) -> str:
        """Move to an entry (None: before the first) and tell there what was tried elsewhere. Raises `EntryNotFound`."""
        if entry_id is not None:
            self._tree.require(entry_id)
        return self._append(
            BranchSummaryEntry,
            parent_id=entry_id,
            from_id=self._tree.leaf_id or "root",
            summary=summary,
            details=details,
            from_hook=from_hook,
            usage=usage,
        )

    # -- asking ----------------------------------------------------------------------------------

    @property
    def write_error(self) -> str | None:
        """Why the file is behind what is in memory; None as long as it is not."""
        return self._store.error if self._store is not None else None

    def get_leaf_id(self) -> str | None:
        return self._tree.leaf_id

    def get_leaf_entry(self) -> Entry | None:
        return self._tree.get(self._tree.leaf_id)

    def get_entry(self, entry_id: str) -> Entry | None:
        return self._tree.get(entry_id)

    def get_children(self, parent_id: str | None) -> Entries:
        """Return the children in file order; of None: the roots."""
        return self._tree.children(parent_id)[:]

    def get_branch(self, from_id: str | None = None) -> Entries:
        """Return the path from the root to an entry, or to the leaf."""
        return self._tree.path_to(from_id if from_id is not None else self._tree.leaf_id)

    def get_entries(self) -> Entries:
        """Return all entries in file order."""
        return self._tree.entries[:]

    def get_header(self) -> Header:
        return self._tree.header

    def get_tree(self) -> Nodes:
        """Return the roots with everything below them."""
        return self._tree.nodes()

    def tree_json(self) -> bytes:
        """Return the tree as JSON: an array of `{entry, children, label?, labelTimestamp?}`."""
        return self._tree.to_json()

    def entries_json(self, since: str | None = None) -> bytes:
        """Return the entries (after `since`) as a JSON array. Raises `SessionError` if `since` is unknown."""
        return self._tree.entries_to_json(since)

    def get_label(self, entry_id: str) -> str | None:
        return self._tree.label(entry_id)

    def get_session_name(self) -> str | None:
        return self._tree.name

    def get_session_id(self) -> str:
        return str(self._tree.header.id)

    def get_session_file(self) -> str | None:
        """Return where the session is saved, or will be; None if it lives in memory only."""
        return str(self._path) if self._path is not None else None

    def get_session_dir(self) -> str:
        """Return where new and branched sessions go; empty if nowhere."""
        return str(self._session_dir or "")

    def get_cwd(self) -> str:
        return self._cwd

    def is_persisted(self) -> bool:
        return self._session_dir is not None

    def is_same_file(self, path: StrPath) -> bool:
        return self._path is not None and os.path.realpath(self._path) == os.path.realpath(absolute(path))

    def uses_default_session_dir(self) -> bool:
        return self._session_dir == session_dir_for(self._cwd)

    def get_thinking_level(self) -> str | None:
        """Return the level that the current path has set last, if it has set any."""
        return thinking_level_in_force(self.get_branch())

    def get_model(self) -> tuple[str, str] | None:
        """Return provider and id of the model that was last chosen, or answered, on the current path."""
        return model_in_force(self.get_branch())

    def has_messages(self) -> bool:
        """Say whether anything was said on the current path."""
        return any(entry_message(entry) is not None for entry in self.get_branch())

    def build_session_context(self) -> SessionContext:
        """Return what a model would see at the leaf."""
        return build_context(self.get_branch())

    def export_branch(self, path: StrPath) -> str:
        """Write the current path as a session file of its own. Raises `SessionError`; never overwrites."""
        target = Path(absolute(path))
        header = new_header(self._cwd, session_id=self.get_session_id())
        try:
            write_new_file(target, b"".join(line.ended for line in (header, *chain(self.get_branch()))))
        except OSError as error:
            raise SessionError(f"Cannot export session ({error.strerror}): {target}") from error
        return str(target)

    # -- how -------------------------------------------------------------------------------------

    def _turn_to(
        self, tree: Tree, path: Path | None = None, file: AppendFile | None = None, lock: SessionLock | None = None
    ) -> None:
        """Leave the current session for another; `file` is given if it is on disk already."""
        self.close()
        self._tree, self.damage, self._store = tree, [], None
        if self._session_dir is None:
            return
        self._path = path or self._session_dir / session_file_name(tree.header.timestamp, tree.header.id)
        if not self._is_read_only:
            try:
                make_private_dir(self._path.parent)
            except OSError:
                pass  # the first save will say what is wrong with the place
            self._store = Store(
                tree, self._path, file=file, lock=lock, fsync=self._fsync, on_write_error=self._tell_write_error
            )

    def _tell_write_error(self, error: str) -> None:
        for listener in self._write_listeners:
            listener(error)

    def _new_id(self) -> str:
        """Return a free id, after a look at what others added to the file."""
        if self._is_read_only:
            raise SessionError(f"Session is open read-only: {self._path}")
        if self._store is not None:
            self._store.catch_up()
        return new_entry_id(self._tree)

    def _append(self, shape: Callable[..., Any], **fields: Any) -> str:
        """Add an entry, below the leaf unless the fields name another parent."""
        fields.setdefault("parent_id", self._tree.leaf_id)
        entry_id = fields.pop("id", None) or self._new_id()
        entry = Entry.of(shape(id=entry_id, timestamp=iso_time(now_ms()), **fields))
        self._tree.add(entry)
        if self._store is not None:
            self._store.save(entry)
        return entry_id

    def _save_all(self) -> None:
        if self._store is not None:
            self._store.save_all()


def _directory(cwd: StrPath, session_dir: StrPath | None) -> Path:
    return Path(absolute(session_dir)) if session_dir else session_dir_for(cwd)


def _lock_if_there(file: Path) -> SessionLock | None:
    """Lock an existing session, where the place allows locks at all. Raises `SessionLocked`."""
    return try_lock(file) if os.path.isfile(file) else None
