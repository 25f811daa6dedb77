"""Commands that lead elsewhere: other sessions, other places in the tree."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from spindle.agent import AgentError
from spindle.agent.features.client_login import LoginProvider, log_in, login_providers
from spindle.base import limits
from spindle.base.user_files import BadFile
from spindle.protocol.registry import Call, LiveInfo, WantedSession, command
from spindle.sessions.entries import iso_time
from spindle.shapes.messages import Wire
from spindle.shapes.sandbox import SandboxChoice

if TYPE_CHECKING:
    from spindle.sessions.tally import SessionInfo


T = TypeVar("T")


@command("get_login_providers", key="providers")
def get_login_providers(call: Call) -> list[LoginProvider]:
    """Return the providers that offer a sign-in, and whether there is a login."""
    return login_providers(call.agent.resources.registry.auth)


class LoggedIn(Wire):
    provider_id: str


@command("login", owner=True)
async def login(call: Call, provider_id: str) -> LoggedIn:
    """Sign in to a provider: the client gets the address as `extension_ui_request` `open_url`, and may be asked for
    what has to be pasted. The response comes when the login is kept."""
    await log_in(provider_id, call.agent.dialogs, call.agent.resources.registry.auth)
    return LoggedIn(provider_id)


@command("new_session", key="cancelled")
async def new_session(call: Call, parent_session: str | None = None) -> bool:
    """Begin an empty session."""
    return await call.agent.new_session(parent_session)


class Switched(Wire):
    cancelled: bool
    created: bool = False
    """There was no such file: this is a new session at that path."""


@command("switch_session")
async def switch_session(call: Call, session_path: str) -> Switched:
    """Go on with another session file. If it worked at a far side that was never used here, you are asked about it."""
    return Switched(*await _at_its_place(call, partial(call.agent.switch_session, session_path)))


async def _at_its_place(call: Call, open_it: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Open a session. If it names a far side that was never used here, ask whether to use it, then open it again.

    Raises `UnknownPlace` if there is no yes.
    """
    from spindle.agent.features.place import UnknownPlace, agree_to

    try:
        return await open_it()
    except UnknownPlace as error:
        agent, client, limit = call.agent, call.client, int(limits.OUTSIDE_ANSWER * 1000)
        asks = client.answers and client.dialect.sends("permission_request")  # who is told of none waits in vain
        if not asks or agent.resources.options.user_folder is not None:
            raise
        if await agent.confirm("place", error.title, error.text, timeout=limit) is not True:
            raise
        try:
            await asyncio.to_thread(agree_to, error.command)
        except (BadFile, OSError) as failed:
            raise AgentError(str(failed)) from None
    return await open_it()


class Forked(Wire):
    text: str
    cancelled: bool


@command("fork")
async def fork(call: Call, entry_id: str) -> Forked:
    """Begin a session with everything before a user message, and return that message's text."""
    return Forked(*await call.agent.fork(entry_id))


@command("branch")
async def branch(call: Call, entry_id: str) -> Forked:
    """Do the same as `fork`, under the name that other clients use."""
    return Forked(*await call.agent.fork(entry_id, invalid="Invalid entry ID for branching"))


@command("clone", key="cancelled")
async def clone(call: Call) -> bool:
    """Copy the current branch into a session of its own and go on there."""
    return await call.agent.clone()


@command("open_session")
async def open_session(
    call: Call,
    cwd: str | None = None,
    session: str | None = None,
    copy: bool = False,
    model: str | None = None,
    name: str | None = None,
    session_dir: str | None = None,
    sandbox: SandboxChoice | None = None,
    exec: str | None = None,
    exec_cwd: str | None = None,
) -> LiveInfo:
    """Open another session beside this one: a new session, or the stored one that `session` (id or path) names.

    Its `id` is the `sessionId` of its commands and events. With `copy` it is a copy of the stored one, which another
    process may hold. `sandbox` is as in `set_permissions`. With `exec`, a command
    such as `docker exec -i NAME`, tools work elsewhere, in `execCwd` (elsewhere.md). `sessionDir`, as oh-my-pi has it,
    is refused.
    """
    if session_dir is not None:
        raise AgentError(
            "open_session takes no sessionDir here: start the agent with --session-dir, or use switch_session"
        )
    wanted = WantedSession(
        cwd=cwd, session=session, copy=copy, model=model, name=name, sandbox=sandbox, exec=exec, exec_cwd=exec_cwd
    )
    return await _at_its_place(call, partial(call.client.open_session, wanted))


@command("close_session")
async def close_session(call: Call) -> None:
    """End the session that `sessionId` names. Its file stays, and its id opens it again."""
    await call.client.close_session()


@command("list_live_sessions", key="sessions")
async def list_live_sessions(call: Call) -> list[LiveInfo]:
    """Return the live sessions of this process, in the order in which they were opened; on a server with a store also
    those of the other servers, each with its `node`."""
    return await call.client.live_sessions()


class SessionItem(Wire, kw_only=True):
    id: str
    path: str
    cwd: str
    """Its working directory."""
    name: str | None = None
    first_message: str
    modified: str
    message_count: int
    interrupted: bool = False
    """Whether a run in it was cut off by the end of its process, or waits for an answer."""


def session_item(info: "SessionInfo") -> SessionItem:
    return SessionItem(
        id=info.id,
        path=info.path,
        cwd=info.cwd,
        name=info.name,
        first_message=info.first_message,
        modified=iso_time(info.modified),
        message_count=info.message_count,
        interrupted=info.interrupted,
    )


class SessionList(Wire, kw_only=True):
    sessions: list[SessionItem]
    next_cursor: str | None = None
    """The `cursor` of the next page; left out on the last one."""
    as_of: int
    """Unix milliseconds of the latest change; `changedSince` takes it."""


@command("list_sessions")
async def list_sessions(
    call: Call,
    everywhere: bool = False,
    limit: int | None = None,
    cursor: str | None = None,
    changed_since: int | None = None,
) -> SessionList:
    """Return the stored sessions of this working directory, the latest first; with `limit`, page by page.

    With `everywhere`, of all directories that sessions may work in, in pages of 500 without `limit`;
    `open_session` takes their ids. `changedSince`, the `asOf` of an earlier answer: only what has changed since, the
    latest change included.
    """
    from spindle.agent import library

    page = await library.stored_sessions(
        call.agent, everywhere, limit=limit, cursor=cursor, changed_since=changed_since
    )
    sessions = [session_item(info) for info in page.sessions]
    return SessionList(sessions=sessions, next_cursor=page.cursor, as_of=page.as_of)


class FoundSession(Wire):
    id: str
    snippet: str
    """The text around the words."""
    entry_id: str | None
    """The entry with the message that has them; null if it is the name of the session."""
    session: SessionItem
    """The session, as a list shows it."""


class FoundSessions(Wire):
    sessions: list[FoundSession]
    next_cursor: str | None = None
    """The `cursor` of the next page; left out on the last one."""


@command("search_sessions")
async def search_sessions(
    call: Call, query: str, everywhere: bool = False, limit: int | None = None, cursor: str | None = None
) -> FoundSessions:
    """Return those of the sessions of `list_sessions` whose name, or one message, contains all words of the query.

    They come in pages of `limit`, 50 unless told.
    """
    from spindle.agent import library

    found, cursor = await library.search_sessions(call.agent, query, everywhere, limit=limit, cursor=cursor)
    sessions = [FoundSession(info.id, snippet, entry, session_item(info)) for info, snippet, entry in found]
    return FoundSessions(sessions, cursor)


@command("delete_session", key="cancelled")
async def delete_session(call: Call) -> bool:
    """Delete the current session and begin an empty one; refused while something runs."""
    from spindle.agent import library

    return await library.delete_session(call.agent)


class NavigatedTo(Wire, kw_only=True):
    editor_text: str | None = None
    cancelled: bool


@command("navigate_tree")
async def navigate_tree(
    call: Call, entry_id: str, summarize: bool = False, custom_instructions: str | None = None, label: str | None = None
) -> NavigatedTo:
    """Go on from another entry of the session; with `summarize`, the old branch is summarised."""
    from spindle.agent.navigate import Jump

    done = await call.agent.navigate(Jump(entry_id, summarize, custom_instructions, label=label))
    return NavigatedTo(editor_text=done.editor_text, cancelled=done.cancelled)
