"""Commands about sessions: what is in this one, and going to another or to another place."""

import asyncio
from typing import Any

import msgspec

from spindle.agent.conversation import SessionStats
from spindle.protocol.registry import Call, Fields, NoFields, command
from spindle.sessions.entries import iso_time
from spindle.shapes.messages import Wire

# -- what is in it --------------------------------------------------------------------------------


class Messages(Wire):
    messages: list[Any]


@command("get_messages", data=Messages)
async def get_messages(call: Call, f: NoFields) -> Messages:
    """Return the current context."""
    return Messages(call.agent.messages)


class LastText(Wire, omit_defaults=False):
    text: str | None


@command("get_last_assistant_text", data=LastText)
async def get_last_assistant_text(call: Call, f: NoFields) -> LastText:
    """Return the text of the last answer, or null."""
    return LastText(call.agent.last_assistant_text())


@command("get_session_stats", data=SessionStats)
async def get_session_stats(call: Call, f: NoFields) -> SessionStats:
    """Return counts, tokens and cost of the whole session, and how full the context is."""
    return await call.agent.stats()


class EntriesFields(Fields):
    since: str | None = None
    """Only entries after this one."""


class EntriesData(Wire, omit_defaults=False):
    entries: list[Any]
    leaf_id: str | None


@command("get_entries", fields=EntriesFields, data=EntriesData)
async def get_entries(call: Call, f: EntriesFields) -> Any:
    """Return the session's entries in the order they were appended."""
    entries = msgspec.Raw(call.agent.session.entries_json(f.since))
    return {"entries": entries, "leafId": call.agent.session.leaf_id}


class TreeData(Wire, omit_defaults=False):
    tree: list[Any]
    leaf_id: str | None


@command("get_tree", data=TreeData)
async def get_tree(call: Call, f: NoFields) -> Any:
    """Return the session's entries as a tree."""
    return {"tree": msgspec.Raw(call.agent.session.tree_json()), "leafId": call.agent.session.leaf_id}


class ForkMessage(Wire):
    entry_id: str
    text: str


class ForkMessages(Wire):
    messages: list[ForkMessage]


@command("get_fork_messages", "get_branch_messages", data=ForkMessages)
async def get_fork_messages(call: Call, f: NoFields) -> ForkMessages:
    """Return every user message of the session, to choose where to fork."""
    return ForkMessages([ForkMessage(*pair) for pair in call.agent.user_messages()])


# -- its name, its labels, a copy as a page -------------------------------------------------------


class NameFields(Fields):
    name: str


@command("set_session_name", fields=NameFields)
async def set_session_name(call: Call, f: NameFields) -> None:
    """Name the session."""
    call.agent.set_name(f.name)


class LabelFields(Fields):
    entry_id: str
    label: str | None = None


@command("set_label", fields=LabelFields)
async def set_label(call: Call, f: LabelFields) -> None:
    """Label an entry of the session, to find it in the tree; without a label the entry loses its own."""
    call.agent.set_label(f.entry_id, f.label)


class ExportFields(Fields):
    output_path: str | None = None


class ExportedTo(Wire):
    path: str


@command("export_html", fields=ExportFields, data=ExportedTo)
async def export_html(call: Call, f: ExportFields) -> ExportedTo:
    """Write the session as one HTML page."""
    return ExportedTo(await call.agent.export_html(f.output_path))


# -- other sessions, other places -----------------------------------------------------------------


class Cancelled(Wire):
    cancelled: bool


class NewSessionFields(Fields):
    parent_session: str | None = None


@command("new_session", fields=NewSessionFields, data=Cancelled)
async def new_session(call: Call, f: NewSessionFields) -> Cancelled:
    """Begin an empty session."""
    return Cancelled(await call.agent.new_session(f.parent_session))


class SwitchFields(Fields):
    session_path: str


class Switched(Wire):
    cancelled: bool
    created: bool = False
    """There was no such file: this is a new session at that path."""


@command("switch_session", fields=SwitchFields, data=Switched)
async def switch_session(call: Call, f: SwitchFields) -> Switched:
    """Go on with another session file."""
    return Switched(*await call.agent.switch_session(f.session_path))


class ForkFields(Fields):
    entry_id: str


class Forked(Wire):
    text: str
    cancelled: bool


@command("fork", fields=ForkFields, data=Forked)
async def fork(call: Call, f: ForkFields) -> Forked:
    """Begin a session with everything before a user message, and return that message's text."""
    return Forked(*await call.agent.fork(f.entry_id))


@command("branch", fields=ForkFields, data=Forked)
async def branch(call: Call, f: ForkFields) -> Forked:
    """The same as `fork`, under the name other clients know."""
    return Forked(*await call.agent.fork(f.entry_id, invalid="Invalid entry ID for branching"))


@command("clone", data=Cancelled)
async def clone(call: Call, f: NoFields) -> Cancelled:
    """Copy the current branch into a session of its own and go on there."""
    return Cancelled(await call.agent.clone())


class SessionItem(Wire, kw_only=True):
    id: str
    path: str
    name: str | None = None
    first_message: str
    modified: str
    message_count: int


class SessionList(Wire):
    sessions: list[SessionItem]


@command("list_sessions", data=SessionList)
async def list_sessions(call: Call, f: NoFields) -> SessionList:
    """Return the stored sessions of this working directory, the latest first."""
    found = await asyncio.to_thread(call.agent.stored_sessions)
    return SessionList(
        [
            SessionItem(
                id=info.id,
                path=info.path,
                name=info.name,
                first_message=info.first_message,
                modified=iso_time(info.modified),
                message_count=info.message_count,
            )
            for info in found
        ]
    )


class NavigateFields(Fields):
    entry_id: str
    summarize: bool = False
    custom_instructions: str | None = None
    label: str | None = None


class NavigatedTo(Wire, kw_only=True):
    editor_text: str | None = None
    cancelled: bool


@command("navigate_tree", fields=NavigateFields, data=NavigatedTo)
async def navigate_tree(call: Call, f: NavigateFields) -> NavigatedTo:
    """Go on from another entry of the session; the branch that is left may be summarised."""
    done = await call.agent.navigate(f.entry_id, f.summarize, f.custom_instructions, f.label)
    return NavigatedTo(editor_text=done.editor_text, cancelled=done.cancelled)
