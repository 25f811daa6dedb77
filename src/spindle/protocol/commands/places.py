"""Commands that lead elsewhere: other sessions, other places in the tree."""

from spindle.agent import AgentError
from spindle.protocol.registry import Call, LiveInfo, Wanted, command
from spindle.sessions.entries import iso_time
from spindle.shapes.messages import Wire
from spindle.shapes.sandbox import SandboxChoice


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
    """Go on with another session file."""
    return Switched(*await call.agent.switch_session(session_path))


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
    model: str | None = None,
    name: str | None = None,
    session_dir: str | None = None,
    sandbox: SandboxChoice | None = None,
    exec: str | None = None,
    exec_cwd: str | None = None,
) -> LiveInfo:
    """Open another session beside this one: a new session, or the stored one that `session` (id or path) names.

    Its `id` is the `sessionId` of its commands and events. `sandbox` is as in `set_permissions`. With `exec`, a command
    such as `docker exec -i NAME`, tools work elsewhere, in `execCwd` (elsewhere.md). `sessionDir`, as oh-my-pi has it,
    is refused.
    """
    if session_dir is not None:
        raise AgentError(
            "open_session takes no sessionDir here: start the agent with --session-dir, or use switch_session"
        )
    wanted = Wanted(cwd=cwd, session=session, model=model, name=name, sandbox=sandbox, exec=exec, exec_cwd=exec_cwd)
    return await call.client.open_session(wanted)


@command("close_session")
async def close_session(call: Call) -> None:
    """End the session that `sessionId` names. Its file stays, and its id opens it again."""
    await call.client.close_session()


@command("list_live_sessions", key="sessions")
async def list_live_sessions(call: Call) -> list[LiveInfo]:
    """Return the live sessions of this process, in the order in which they were opened."""
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


@command("list_sessions", key="sessions")
async def list_sessions(call: Call, everywhere: bool = False) -> list[SessionItem]:
    """Return the stored sessions of this working directory, the latest first.

    With `everywhere` the latest 500 of all directories that sessions may work in; `open_session` takes their ids.
    """
    from spindle.agent import library

    return [
        SessionItem(
            id=info.id,
            path=info.path,
            cwd=info.cwd,
            name=info.name,
            first_message=info.first_message,
            modified=iso_time(info.modified),
            message_count=info.message_count,
        )
        for info in await library.stored_sessions(call.agent, everywhere)
    ]


class FoundSession(Wire):
    id: str
    snippet: str
    """The text around the words."""
    entry_id: str | None
    """The entry with the message that has them."""


@command("search_sessions", key="sessions")
async def search_sessions(call: Call, query: str, everywhere: bool = False) -> list[FoundSession]:
    """Return those of the sessions of `list_sessions` in which one message contains all words of the query."""
    from spindle.agent import library

    return [FoundSession(*found) for found in await library.search_sessions(call.agent, query, everywhere)]


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
    done = await call.agent.navigate(entry_id, summarize, custom_instructions, label)
    return NavigatedTo(editor_text=done.editor_text, cancelled=done.cancelled)
