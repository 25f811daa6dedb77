"""Commands about what the session holds: messages, entries, the tree, exports, and the changes of files."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from spindle.agent.state import SessionStats
from spindle.protocol.registry import Call, command
from spindle.shapes.checkpoints import CheckpointList, FileChanges, Restored
from spindle.shapes.messages import MessageOnWire, Wire, shown_as
from spindle.shapes.run_result import RunResult


@command("get_messages", key="messages")
def get_messages(call: Call) -> list[MessageOnWire]:
    """Return the current context."""
    return call.agent.conversation.stored(documented=call.client.dialect.documented)


class MessagesPage(Wire):
    messages: list[MessageOnWire]
    total_messages: int
    next_cursor: str | None = None
    """`cursor` of the next page; left out on the last one."""


@command("get_messages_page", data=MessagesPage)
def get_messages_page(
    call: Call, cursor: str | None = None, limit: Annotated[int, msgspec.Meta(ge=1, le=256)] = 100
) -> Any:
    """Return a part of the current context: at most `limit` messages, and 768 KiB unless one message is longer.

    Refused with the code `session_busy` during a run, `stale_cursor` if the session has changed since the last page.
    """
    from spindle.protocol.negotiated import page

    return page(call, cursor, limit)


@command("get_last_assistant_text", key="text")
def get_last_assistant_text(call: Call) -> str | None:
    """Return the text of the last answer, or null."""
    return call.agent.conversation.last_assistant_text()


@command("get_run_result", key="result")
def get_run_result(call: Call) -> RunResult | None:
    """Return the result of the last run; null if there was none."""
    return call.agent.last_result()


@command("get_session_stats", viewer=True)
async def get_session_stats(call: Call) -> SessionStats:
    """Return counts, tokens and cost of the whole session, and how full the context is."""
    return await call.agent.stats()


class EntriesData(Wire):
    entries: list[Annotated[Any, shown_as("Entry")]]
    leaf_id: str | None
    more: bool = False
    """Whether there are earlier entries than these; only with `limit`."""


@command("get_entries", data=EntriesData, viewer=True)
def get_entries(
    call: Call,
    since: str | None = None,
    before: str | None = None,
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None,
) -> Any:
    """Return the session's entries in the order they were appended, without those up to `since` and from `before` on.

    With `limit`, only the last of them, about 1 MiB at most: so a long session can be read from its end.
    """
    entries, more = call.agent.session.tree.page_to_json(since, before, limit, call.client.dialect.entry)
    answer = {"entries": msgspec.Raw(entries), "leafId": call.agent.session.leaf_id}
    return answer | {"more": True} if more else answer


@command("get_stored_entries", data=EntriesData)
async def get_stored_entries(
    call: Call,
    session: str,
    since: str | None = None,
    before: str | None = None,
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None,
) -> Any:
    """Return the entries of a stored session as `get_entries` does; another process may hold it."""
    from spindle.agent import library

    with await library.stored_session(call.agent, session) as found:
        entries, more = found.tree.page_to_json(since, before, limit, call.client.dialect.entry)
        answer = {"entries": msgspec.Raw(entries), "leafId": found.leaf_id}
    return answer | {"more": True} if more else answer


class EntryNode(Wire):
    entry: Annotated[Any, shown_as("Entry")]
    children: list["EntryNode"] | None = None
    label: str | None = None
    label_timestamp: str | None = None
    id: str | None = None
    parent_id: str | None = None


class TreeData(Wire):
    tree: list[EntryNode]
    leaf_id: str | None


@command("get_tree", data=TreeData)
def get_tree(call: Call, flat: bool = False) -> Any:
    """Return the session's entries as a tree: nodes with `entry`, `children`, `label?`, `labelTimestamp?`.

    The tree is nested as deep as the session is long, and many JSON readers refuse that. With `flat` the nodes come in
    one list, parents before their children, with `id` and `parentId` (null for a root) instead of `children`.
    """
    tree = msgspec.Raw(call.agent.session.tree_json(flat=flat, sent=call.client.dialect.entry))
    return {"tree": tree, "leafId": call.agent.session.leaf_id}


class ForkMessage(Wire):
    entry_id: str
    text: str


@command("get_fork_messages", "get_branch_messages", key="messages")
def get_fork_messages(call: Call) -> list[ForkMessage]:
    """Return every user message of the session, to choose where to fork."""
    return [ForkMessage(*pair) for pair in call.agent.conversation.user_messages()]


@command("set_session_name")
def set_session_name(call: Call, name: str) -> None:
    """Name the session."""
    call.agent.set_name(name)


@command("set_label")
def set_label(call: Call, entry_id: str, label: str | None = None) -> None:
    """Label an entry of the session, to find it in the tree; without `label`, remove its label."""
    call.agent.set_label(entry_id, label)


class FoundText(Wire):
    entry_id: str
    count: int
    """How often the text stands there."""


@command("find_text", key="found")
async def find_text(call: Call, text: str) -> list[FoundText]:
    """Return the entries of the current branch that contain a text, the oldest first.

    Messages, thoughts, summaries, arguments and results of tools are searched; upper and lower case are the same.
    """
    from spindle.agent import library

    return [FoundText(*found) for found in await library.find_text(call.agent, text)]


@command("make_session_name", key="name")
async def make_session_name(call: Call) -> str:
    """Let the model name the session after its conversation, and return the name; refused while something runs."""
    return await call.agent.make_name()


@command("export_html", key="path")
async def export_html(call: Call, output_path: str | None = None) -> str:
    """Write the session as one HTML page."""
    from spindle.agent import library

    return await library.export_html(call.agent, output_path)


@command("export_page", key="html")
async def export_page(call: Call) -> str:
    """Return the session as one HTML page."""
    from spindle.agent import library

    return await library.page(call.agent)


@command("upload_file", key="path")
async def upload_file(call: Call, name: str, data: str) -> str:
    """Store a file (base64) beside the sessions, for tools to read, and return its path."""
    from spindle.agent import library

    return await library.upload(call.agent, name, data)


@command("complete_path", key="paths")
async def complete_path(call: Call, prefix: str = "") -> list[str]:
    """Return files of the working directory that match the text typed after an `@`, the likeliest first.

    Text that begins with `/`, `~/`, `./` or `../` is completed as a path, wherever it leads; folders end with a slash.
    """
    from spindle.agent import library

    return await library.complete_path(call.agent, prefix)


# -- changes of files ------------------------------------------------------------------------------


@command("list_checkpoints")
async def list_checkpoints(call: Call) -> CheckpointList:
    """Return the checkpoints of this session: the states of the files before turns that wrote to them."""
    return await call.agent.undo.checkpoints()


@command("get_changes")
async def get_changes(call: Call, from_: str | None = None, to: str | None = None) -> FileChanges:
    """Return how files differ between two checkpoints, no matter who changed them; by default since the first one.

    `from` and `to` are ids of checkpoints; without `to`, the files as they are now.
    """
    return await call.agent.undo.changes(from_, to)


@command("restore")
async def restore(
    call: Call,
    checkpoint: str,
    files: Sequence[str] | None = None,
    hunks: Sequence[str] | None = None,
    conversation: bool = False,
    dry_run: bool = False,
    force: bool = False,
) -> Restored:
    """Give files the state that they had at a checkpoint; refused while something runs.

    `files` names files and folders; the others stay. `hunks` are parts of the diff that `get_changes` has of one file
    since that checkpoint: only these are taken back. With `conversation`, the conversation goes back, too. With
    `dryRun` nothing changes, and the answer says what would. Files that were changed outside of the agent's runs are
    only overwritten with `force`.
    """
    how = {"conversation": conversation, "dry_run": dry_run, "force": force}
    return await call.agent.undo.restore(checkpoint, files, hunks=hunks, **how)
