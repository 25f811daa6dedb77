"""A session: one conversation as a tree, kept in one file that other programs can read and continue.

The functions in `open` make a `Session`; it never turns into another one. The leaf is the entry that the next one
follows; it is not stored, so moving it writes nothing and the next entry makes the move visible.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from spindle.sessions.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    Header,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionError,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
    UsageEntry,
    iso_time,
    new_entry_id,
    new_header,
    now_ms,
)
from spindle.sessions.file import StrPath, absolute, session_file_name, write_new_file
from spindle.sessions.file_keeper import FileKeeper
from spindle.sessions.keeper import FsyncPolicy, Keeper
from spindle.sessions.load import Damage, Loaded
from spindle.sessions.lock import SessionLock
from spindle.sessions.tree import (
    SessionContext,
    Tree,
    build_context,
    chain,
    entry_message,
    model_in_force,
    thinking_level_in_force,
    tools_in_force,
)
from spindle.shapes.messages import AgentMessage, Image, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:  # loaded only if sessions are in a store
    from spindle.sessions.store import SessionStore
    from spindle.sessions.store_keeper import StoreKeeper


class Saving(TypedDict, total=False):
    """How a session is kept on disk."""

    fsync: FsyncPolicy
    on_write_error: Callable[[str], None]
    """Called once when saving begins to fail; the session goes on in memory."""


_WITH_CONTENT = ("user", "assistant", "toolResult", "custom")
"""Roles whose messages have content."""


def _check_content(content: Any) -> None:
    """Raise `SessionError` for content that is neither text nor blocks: the file could not be read back."""
    blocks = content if isinstance(content, list | tuple) else ()
    if not isinstance(content, str | list | tuple) or not all(map(_is_block, blocks)):
        raise SessionError(f"The content of a message must be text or a list of blocks: {content!r:.80}")


def _is_block(block: Any) -> bool:
    if not isinstance(block, dict):
        return isinstance(block, Text | Image | Thinking | ToolCall)
    kind = block.get("type")
    return isinstance(block.get("text"), str) if kind == "text" else isinstance(kind, str)


def _tell(listeners: list[Callable[[str], None]], error: str) -> None:
    for listener in listeners:
        listener(error)


class Session:
    def __init__(
        self,
        tree: Tree,
        cwd: str,
        directory: Path | None = None,
        path: Path | None = None,
        *,
        loaded: Loaded | None = None,
        lock: SessionLock | None = None,
        read_only: bool = False,
        store: "SessionStore | None" = None,
        keeper: "StoreKeeper | None" = None,
        listeners: Iterable[Callable[[str], None]] = (),
        **saving: Unpack[Saving],
    ) -> None:
        """Save `tree` at `path`, by default in a new file in `directory`; without a directory, stay in memory only.

        `loaded` is the content of `path`, `lock` the lock on it, if it is held already. A session of a `store` has no
        path: its `keeper` keeps it, unless it is read-only.
        """
        self.tree = tree
        """The entries and the leaf, as plain data."""
        self.cwd = cwd
        self.directory = directory
        """The directory for sessions that are made from this one."""
        self.path: Path | None = None
        """The file of the session, which its first message creates; None if it is in memory only."""
        self.read_only = read_only
        self.damage: list[Damage] = loaded.damage if loaded is not None else []
        """Damage of the file when it was opened."""
        self._fsync: FsyncPolicy = saving.get("fsync", "run")
        self._write_listeners = [*listeners, *filter(None, [saving.get("on_write_error")])]
        self._keeper: Keeper | None = None
        """None if the session is in memory only, or read-only."""
        self.store = store
        """The store that it is in; None: it is in a file, or in memory."""
        if keeper is not None:
            keeper.on_error = partial(_tell, self._write_listeners)
            self._keeper = keeper
        if directory is None:
            return
        self.path = path or directory / session_file_name(tree.header.timestamp, self.id)
        if read_only:
            return
        file = loaded.file if loaded is not None and loaded.tree is not None else None
        of_file = FileKeeper(tree, self.path, file, lock, self._fsync, partial(_tell, self._write_listeners))
        self._keeper = of_file
        if loaded is not None and loaded.was_migrated:
            of_file.rewrite(keep_old=loaded.has_new_ids or bool(loaded.damage))

    def beside(
        self, tree: Tree, path: Path | None = None, loaded: Loaded | None = None, lock: SessionLock | None = None
    ) -> "Session":
        """Return a session with other entries in the same directory, saved in the same way, with the same listeners."""
        kept: Any = {"read_only": self.read_only, "listeners": self._write_listeners, "fsync": self._fsync}
        if self.store is not None and not self.read_only:
            from spindle.sessions.store_keeper import StoreKeeper

            return Session(tree, self.cwd, store=self.store, keeper=StoreKeeper(tree, self.store), **kept)
        return Session(tree, self.cwd, self.directory, path, loaded=loaded, lock=lock, **kept)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- facts -----------------------------------------------------------------------------------

    @property
    def header(self) -> Header:
        return self.tree.header

    @property
    def id(self) -> str:
        return str(self.tree.header.id)

    @property
    def name(self) -> str | None:
        return self.tree.name

    @property
    def leaf_id(self) -> str | None:
        return self.tree.leaf_id

    @property
    def entries(self) -> list[Entry]:
        """All entries in file order, as a new list."""
        return self.tree.entries[:]

    @property
    def name_for_others(self) -> str | None:
        """What names it wherever it is kept: its file, or its id in a store; None if it is in memory only."""
        return self.id if self.store is not None else None if self.path is None else str(self.path)

    def is_same_file(self, path: StrPath) -> bool:
        """Say whether it is the session at this path, or in a store the one with this id."""
        if self.store is not None:
            return os.fspath(path) == self.id
        return self.path is not None and os.path.realpath(self.path) == os.path.realpath(absolute(path))

    # -- adding: each method returns the id of the new entry, which becomes the leaf -------------

    def append_message(self, message: AgentMessage | dict[str, Any], id: str | None = None) -> str:
        """Add a message, or its JSON form, with `id` if that is free.

        Raises `SessionError` if it has no role, or content that is neither text nor blocks.
        """
        role = message.get("role") if isinstance(message, dict) else getattr(message, "role", None)
        if not isinstance(role, str) or not role:
            raise SessionError(f"A message must have a role: {type(message).__name__} {message!r:.80}")
        if role in _WITH_CONTENT:
            _check_content(message.get("content") if isinstance(message, dict) else getattr(message, "content", ""))
        free = self.new_id()
        return self._append(MessageEntry, message=message, id=id if id and self.tree.get(id) is None else free)

    def append_custom_message(
        self, custom_type: str, content: str | list[Text | Image], display: bool, details: Any = None
    ) -> str:
        """Add a message of an extension; the model sees it, people only if `display`. Raises as `append_message`."""
        _check_content(content)
        fields = {"custom_type": custom_type, "content": content, "display": display, "details": details}
        return self._append(CustomMessageEntry, **fields)

    def append_custom(self, custom_type: str, data: Any = None) -> str:
        """Keep state of an extension; no model sees it."""
        return self._append(CustomEntry, custom_type=custom_type, data=data)

    def append_model_change(self, provider: str, model_id: str) -> str:
        return self._append(ModelChangeEntry, provider=provider, model_id=model_id)

    def append_thinking_level(self, level: str) -> str:
        return self._append(ThinkingLevelChangeEntry, thinking_level=level)

    def append_compaction(
        self,
        summary: str,
        first_kept_entry_id: str | None,
        tokens_before: int,
        details: Any = None,
        from_hook: bool | None = None,
        usage: Usage | None = None,
    ) -> str:
        """Replace the entries before `first_kept_entry_id`, or all entries (None), by a summary."""
        entry_id = self.new_id()
        given = {"summary": summary, "tokens_before": tokens_before, "details": details, "usage": usage}
        kept = first_kept_entry_id or entry_id
        return self._append(CompactionEntry, id=entry_id, first_kept_entry_id=kept, from_hook=from_hook, **given)

    def append_usage(self, kind: str, provider: str, model: str, usage: Usage) -> str:
        """Note what a model used beside the conversation; `kind` says for what."""
        return self._append(UsageEntry, kind=kind, provider=provider, model=model, usage=usage)

    def append_name(self, name: str, usage: Usage | None = None) -> str:
        """Name the session; an empty name removes the old one. `usage`: what a model used to find it."""
        return self._append(SessionInfoEntry, name=re.sub(r"[\r\n]+", " ", name).strip(), usage=usage)

    def append_label(self, target_id: str, label: str | None) -> str:
        """Label an entry; None or an empty label removes the old one. Raises `EntryNotFound`."""
        self.tree.require(target_id)
        return self._append(LabelEntry, target_id=target_id, label=label)

    def together(self) -> AbstractContextManager[None]:
        """Write the entries that are added inside at once: after a crash the file has all of them, or none."""
        return nullcontext() if self._keeper is None else self._keeper.held()

    # -- moving ----------------------------------------------------------------------------------

    def move(self, entry_id: str | None) -> None:
        """Make an entry the leaf; None: the next entry becomes a root. Raises `EntryNotFound`."""
        self.tree.leaf_id = self.tree.require(entry_id).id if entry_id is not None else None

    def branch_with_summary(
        self,
        entry_id: str | None,
        summary: str,
        details: Any = None,
        from_hook: bool | None = None,
        usage: Usage | None = None,
    ) -> str:
        """Move to an entry (None: before the first) and add a summary of the old branch. Raises `EntryNotFound`."""
        if entry_id is not None:
            self.tree.require(entry_id)
        given = {"summary": summary, "details": details, "from_hook": from_hook, "usage": usage}
        return self._append(BranchSummaryEntry, parent_id=entry_id, from_id=self.tree.leaf_id or "root", **given)

    # -- asking ----------------------------------------------------------------------------------

    def entry(self, entry_id: str | None) -> Entry | None:
        return self.tree.get(entry_id)

    def children(self, parent_id: str | None) -> list[Entry]:
        """Return the children in file order; of None: the roots."""
        return self.tree.children(parent_id)[:]

    def label(self, entry_id: str) -> str | None:
        return self.tree.label(entry_id)

    def branch(self, from_id: str | None = None) -> list[Entry]:
        """Return the entries from the root to an entry, or to the leaf."""
        return self.tree.path_to(from_id if from_id is not None else self.tree.leaf_id)

    def context(self) -> SessionContext:
        """Return the context of the current branch."""
        return build_context(self.branch())

    def model(self) -> tuple[str, str] | None:
        """Return provider and id of the last model that was chosen, or answered, on the current branch."""
        return model_in_force(self.branch())

    def thinking_level(self) -> str | None:
        """Return the last thinking level of the current branch; None if none was set."""
        return thinking_level_in_force(self.branch())

    def tools(self) -> list[str] | None:
        """Return the tools that the model had on the current branch, if the session tells them, as those of pi do."""
        return tools_in_force(self.branch())

    def has_messages(self) -> bool:
        """Say whether the current branch has messages."""
        return any(entry_message(entry) is not None for entry in self.branch())

    def tree_json(self, *, flat: bool = False, sent: Callable[[bytes], bytes] = bytes) -> bytes:
        """Return the tree as JSON; `Tree.to_json` and `Tree.to_flat_json` describe the forms."""
        return self.tree.to_flat_json(sent) if flat else self.tree.to_json(sent)

    def entries_json(self, since: str | None = None) -> bytes:
        """Return the entries (after `since`) as a JSON array. Raises `SessionError` if `since` is unknown."""
        return self.tree.page_to_json(since, None, None)[0]

    def export_branch(self, path: StrPath) -> str:
        """Write the current branch as a session file of its own. Raises `SessionError`; never overwrites."""
        target = Path(absolute(path))
        header = new_header(self.cwd, session_id=self.id)
        try:
            write_new_file(target, b"".join(line.ended for line in (header, *chain(self.branch()))))
        except OSError as error:
            raise SessionError(f"Cannot export session ({error.strerror}): {target}") from error
        return str(target)

    # -- the file --------------------------------------------------------------------------------

    @property
    def write_error(self) -> str | None:
        """Why the file lacks entries that are in memory; None if it has all of them."""
        return self._keeper.error if self._keeper is not None else None

    def on_write_error(self, listener: Callable[[str], None]) -> None:
        """Call one more listener when saving begins to fail."""
        self._write_listeners.append(listener)

    @property
    def is_kept(self) -> bool:
        """Whether it is kept anywhere but in memory, or will be with its first message."""
        return self.path is not None or self.store is not None

    @property
    def is_there(self) -> bool:
        """Whether it is in its file or store now."""
        if self.store is not None:
            return self.read_only or (self.of_store is not None and self.of_store.begun)
        return self.path is not None and self.path.exists()

    @property
    def is_lost(self) -> bool:
        """Whether it goes on at another node."""
        return (keeper := self.of_store) is not None and keeper.lost is not None

    @property
    def of_store(self) -> "StoreKeeper | None":
        """The keeper of a session of a store that is not read-only."""
        if self.store is None or self._keeper is None:
            return None
        from spindle.sessions.store_keeper import StoreKeeper

        return self._keeper if isinstance(self._keeper, StoreKeeper) else None

    @property
    def is_saved(self) -> bool:
        """Whether all entries are in the file, or will be with the first message."""
        return self._keeper is not None and self._keeper.error is None

    def claim(self) -> None:
        """Reserve the file of a new session for it. Raises `SessionLocked`, `SessionError`."""
        if self._keeper is not None:
            self._keeper.claim()

    def read_beside(self) -> bytes | None:
        """Return the data kept beside the file."""
        return self._keeper.read_beside() if self._keeper is not None else None

    def keep_beside(self, data: bytes | None) -> None:
        """Keep data beside the file; None removes it. A session without a file gets one first."""
        if self._keeper is not None:
            self._keeper.keep_beside(data)

    def save(self) -> None:
        """Write all entries that the file lacks; make the file even if there is no message yet."""
        if self._keeper is not None:
            self._keeper.save_all()

    def sync(self) -> None:
        """Bring the file up to date, on the disk itself if the policy says so. Call it at the end of each run."""
        if self._keeper is not None:
            self._keeper.sync()

    def begin_sync(self) -> Callable[[], None] | None:
        """Like `sync`, but return a function that waits for the disk; it may be called in any thread.

        Pass an `OSError` that it raises to `sync_failed`. None: no wait is needed.
        """
        return self._keeper.begin_sync() if self._keeper is not None else None

    def sync_failed(self, error: OSError) -> None:
        """Take note that the disk refused; the next sync tries again."""
        if self._keeper is not None:
            self._keeper.sync_failed(error)

    def unsafe(self) -> Callable[[], None] | None:
        """Return a function that waits until another process could go on from here; None if it could now.

        It is for any thread, and raises `SessionError` if that will not be: then nothing more may be done.
        """
        return self._keeper.unsafe() if self._keeper is not None else None

    def when_safe(self, then: Callable[[], None]) -> None:
        """Call a function once all entries are where another process would find them: now, with files."""
        if self._keeper is not None:
            self._keeper.when_safe(then)
        else:
            then()

    def close(self) -> None:
        """Write missing entries and release the file and its lock. A later append takes them again."""
        if self._keeper is not None:
            self._keeper.close()

    async def leave(self) -> None:
        """Do the same as `close`; nothing else waits meanwhile if a store has to be asked."""
        if self.store is None:
            self.close()
        else:
            await asyncio.to_thread(self.close)

    # -- internals -------------------------------------------------------------------------------

    def new_id(self) -> str:
        """Return a free id, after a look at entries that other programs added. Raises `SessionError` if read-only."""
        if self.read_only:
            raise SessionError(f"Session is open read-only: {self.path}")
        if self._keeper is not None:
            self._keeper.catch_up()
        return new_entry_id(self.tree)

    def _append(self, shape: Callable[..., Any], **fields: Any) -> str:
        """Add an entry below the leaf, unless the fields name another parent."""
        fields.setdefault("parent_id", self.tree.leaf_id)
        entry_id = fields.pop("id", None) or self.new_id()
        entry = Entry.of(shape(id=entry_id, timestamp=iso_time(now_ms()), **fields))
        self.tree.add(entry)
        if self._keeper is not None:
            self._keeper.save(entry)
        return entry_id
