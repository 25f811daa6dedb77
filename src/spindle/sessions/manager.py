"""`SessionManager`: sessions under the names that pi's documents use.

A thin shell: `session` does the work. Where pi's object turns into another session, the shell takes another `Session`.
"""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar, Unpack

from spindle.sessions import index
from spindle.sessions import open as opening
from spindle.sessions.entries import Entry, Header
from spindle.sessions.load import Damage
from spindle.sessions.session import Saving, Session, StrPath
from spindle.sessions.tree import TreeNode

# Inside the class the name `list` is taken by one of its methods.
Entries: TypeAlias = list[Entry]
Nodes: TypeAlias = list[TreeNode]
Damages: TypeAlias = list[Damage]

P = ParamSpec("P")
T = TypeVar("T")


def _inner(method: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate["SessionManager", P], T]:
    """Return a method that does what `method` does, to the session that the manager holds at the time."""

    @functools.wraps(method)
    def call(self: "SessionManager", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self.session, *args, **kwargs)

    return call


class SessionManager:
    """Make one with `create`, `open`, `continue_recent`, `in_memory` or `fork_from`; `close` it in the end."""

    def __init__(self, session: Session) -> None:
        self.session = session

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
        return cls(opening.create(cwd, session_dir, id=id, parent=parent_session, **saving))

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
        """Open a session file; a missing one is a new session at exactly that place. Raises as `open.load` does."""
        return cls(opening.load(path, cwd, session_dir, read_only=read_only, **saving))

    @classmethod
    def continue_recent(
        cls, cwd: StrPath, session_dir: StrPath | None = None, **saving: Unpack[Saving]
    ) -> "SessionManager":
        """Open the project's session that was written to last, or begin one. Raises as `open` does."""
        return cls(opening.recent(cwd, session_dir, **saving))

    @classmethod
    def in_memory(cls, cwd: StrPath | None = None) -> "SessionManager":
        """Begin a session that is never written anywhere."""
        return cls(opening.in_memory(cwd))

    @classmethod
    def fork_from(
        cls, source: StrPath, target_cwd: StrPath, session_dir: StrPath | None = None, **saving: Unpack[Saving]
    ) -> "SessionManager":
        """Copy a session with all its branches into a project. The source may be in use. Raises `SessionError`."""
        return cls(opening.forked_from(source, target_cwd, session_dir, **saving))

    list = staticmethod(index.list_sessions)
    list_all = staticmethod(index.list_all_sessions)
    find_by_id = staticmethod(index.find_by_id)

    # -- changing to another ---------------------------------------------------------------------

    def new_session(self, *, id: str | None = None, parent_session: StrPath | None = None) -> str | None:
        """Leave the current session and begin an empty one. Returns its future path. Raises `SessionError`."""
        return self._use(opening.following(self.session, id=id, parent=parent_session))

    def set_session_file(self, path: StrPath) -> None:
        """Leave the current session and go on with a file, keeping working and session directory. Raises as `open`."""
        if self.session.is_same_file(path):
            self.session.close()
        self._use(opening.loaded_after(self.session, path))

    def create_branched_session(self, leaf_id: str) -> str | None:
        """Go on in a new session that holds only the path to `leaf_id`. Returns its path. Raises `EntryNotFound`."""
        return self._use(opening.branched(self.session, leaf_id))

    def _use(self, other: Session) -> str | None:
        self.session.close()
        self.session = other
        return self.get_session_file()

    # -- growing and moving ----------------------------------------------------------------------

    append_message = _inner(Session.append_message)
    append_thinking_level_change = _inner(Session.append_thinking_level)
    append_model_change = _inner(Session.append_model_change)
    append_compaction = _inner(Session.append_compaction)
    append_custom_entry = _inner(Session.append_custom)
    append_custom_message_entry = _inner(Session.append_custom_message)
    append_session_info = _inner(Session.append_name)
    append_label_change = _inner(Session.append_label)
    branch = _inner(Session.move)
    branch_with_summary = _inner(Session.branch_with_summary)

    def reset_leaf(self) -> None:
        """Move before the first entry; what is appended next becomes a root."""
        self.session.move(None)

    # -- asking ----------------------------------------------------------------------------------

    get_entry = _inner(Session.entry)
    get_children = _inner(Session.children)
    get_branch = _inner(Session.branch)
    get_label = _inner(Session.label)
    get_thinking_level = _inner(Session.thinking_level)
    get_model = _inner(Session.model)
    has_messages = _inner(Session.has_messages)
    build_session_context = _inner(Session.context)
    tree_json = _inner(Session.tree_json)
    entries_json = _inner(Session.entries_json)
    export_branch = _inner(Session.export_branch)
    is_same_file = _inner(Session.is_same_file)

    def get_leaf_id(self) -> str | None:
        return self.session.leaf_id

    def get_leaf_entry(self) -> Entry | None:
        return self.session.entry(self.session.leaf_id)

    def get_entries(self) -> Entries:
        """Return all entries in file order."""
        return self.session.entries

    def get_header(self) -> Header:
        return self.session.header

    def get_tree(self) -> Nodes:
        """Return the roots with everything below them."""
        return self.session.tree.nodes()

    def get_session_name(self) -> str | None:
        return self.session.name

    def get_session_id(self) -> str:
        return self.session.id

    def get_session_file(self) -> str | None:
        """Return where the session is saved, or will be; None if it lives in memory only."""
        return str(self.session.path) if self.session.path is not None else None

    def get_session_dir(self) -> str:
        """Return where new and branched sessions go; empty if nowhere."""
        return str(self.session.directory or "")

    def get_cwd(self) -> str:
        return self.session.cwd

    def is_persisted(self) -> bool:
        return self.session.directory is not None

    def uses_default_session_dir(self) -> bool:
        return self.session.directory == index.session_dir_for(self.session.cwd)

    @property
    def damage(self) -> Damages:
        """What was wrong with the file when it was opened."""
        return self.session.damage

    # -- the file --------------------------------------------------------------------------------

    @property
    def write_error(self) -> str | None:
        """Why the file is behind what is in memory; None as long as it is not."""
        return self.session.write_error

    on_write_error = _inner(Session.on_write_error)
    sync = _inner(Session.sync)
    begin_sync = _inner(Session.begin_sync)
    sync_failed = _inner(Session.sync_failed)
    close = _inner(Session.close)

    def __enter__(self) -> "SessionManager":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
