"""`SessionManager`: sessions under the names that pi's documents use.

A thin wrapper: `session` does the work. Where pi's object changes to another session, this one takes another `Session`.
Every name has the documents' camelCase as an alias.
"""

import functools
import re
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from spindle.sessions import index
from spindle.sessions import open as opening
from spindle.sessions.file import StrPath, session_dir_for
from spindle.sessions.session import Session

P = ParamSpec("P")
T = TypeVar("T")


def _made(make: Callable[P, Session]) -> Callable[P, "SessionManager"]:
    """Return a function that wraps the session of `make` in a manager."""

    @functools.wraps(make)
    def call(*args: P.args, **kwargs: P.kwargs) -> "SessionManager":
        return SessionManager(make(*args, **kwargs))

    return call


def _inner(method: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate["SessionManager", P], T]:
    """Return a method that calls `method` on the manager's current session."""

    @functools.wraps(method)
    def call(self: "SessionManager", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self.session, *args, **kwargs)

    return call


class SessionManager:
    """Made with `create`, `open`, `continue_recent`, `in_memory` or `fork_from`; `close` it in the end."""

    def __init__(self, session: Session) -> None:
        self.session = session

    create = staticmethod(_made(opening.create))
    open = staticmethod(_made(opening.load))
    continue_recent = staticmethod(_made(opening.recent))
    in_memory = staticmethod(_made(opening.in_memory))
    fork_from = staticmethod(_made(opening.forked_from))
    list = staticmethod(index.list_sessions)
    list_all = staticmethod(index.list_all_sessions)
    find_by_id = staticmethod(index.find_by_id)

    # -- changing the session --------------------------------------------------------------------

    def new_session(self, *, id: str | None = None, parent_session: StrPath | None = None) -> str | None:
        """Leave the current session and begin an empty one. Returns the path it will have. Raises `SessionError`."""
        return self._use(opening.following(self.session, id=id, parent=parent_session))

    def set_session_file(self, path: StrPath) -> None:
        """Leave the current session and open a file, in the same working and session directory. Raises as `open`."""
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
    reset_leaf = _inner(lambda session: session.move(None))

    # -- asking ----------------------------------------------------------------------------------

    get_entry = _inner(Session.entry)
    get_children = _inner(Session.children)
    get_branch = _inner(Session.branch)
    get_label = _inner(Session.label)
    get_thinking_level = _inner(Session.thinking_level)
    get_model = _inner(Session.model)
    build_session_context = _inner(Session.context)
    has_messages = _inner(Session.has_messages)
    tree_json = _inner(Session.tree_json)
    entries_json = _inner(Session.entries_json)
    export_branch = _inner(Session.export_branch)
    is_same_file = _inner(Session.is_same_file)
    get_leaf_id = _inner(lambda session: session.leaf_id)
    get_leaf_entry = _inner(lambda session: session.entry(session.leaf_id))
    get_entries = _inner(lambda session: session.entries)
    get_header = _inner(lambda session: session.header)
    get_tree = _inner(lambda session: session.tree.nodes())
    get_session_name = _inner(lambda session: session.name)
    get_session_id = _inner(lambda session: session.id)
    get_session_file = _inner(lambda session: str(session.path) if session.path is not None else None)
    get_session_dir = _inner(lambda session: str(session.directory or ""))
    get_cwd = _inner(lambda session: session.cwd)
    is_persisted = _inner(lambda session: session.directory is not None)
    uses_default_session_dir = _inner(lambda session: session.directory == session_dir_for(session.cwd))
    damage = property(_inner(lambda session: session.damage))

    # -- the file --------------------------------------------------------------------------------

    write_error = property(_inner(lambda session: session.write_error))
    on_write_error = _inner(Session.on_write_error)
    sync = _inner(Session.sync)
    begin_sync = _inner(Session.begin_sync)
    sync_failed = _inner(Session.sync_failed)
    close = _inner(Session.close)

    def __enter__(self) -> "SessionManager":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# The documents' own spelling: `appendMessage` is `append_message`.
for _name, _method in [*vars(SessionManager).items()]:
    if "_" in _name and not _name.startswith("_"):
        setattr(SessionManager, re.sub("_(.)", lambda found: found[1].upper(), _name), _method)
