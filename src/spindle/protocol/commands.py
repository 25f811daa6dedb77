"""Every command a client can send, and the one method of the agent it calls.

The parameters of a handler are the fields of its command, in camelCase on the wire; its return value is `data` of the
response. This is the only list of commands: dispatch, the JSON Schema and the reference page are made from it.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any, Literal, Unpack

import msgspec

from spindle.agent import AgentError
from spindle.agent.hooks import McpServerState
from spindle.agent.model_choice import CycledModel
from spindle.agent.permissions.approval import PermissionState
from spindle.agent.queues import QueueMode
from spindle.agent.run.handle import Disposition, Run
from spindle.agent.run.options import RunOptions
from spindle.agent.run.result import RunResult
from spindle.agent.snapshot import Queued, SessionStats, State
from spindle.base import trace
from spindle.protocol.dialect import UpdateMode
from spindle.protocol.registry import COMMANDS as COMMANDS
from spindle.protocol.registry import Call, LiveInfo, Wanted, command
from spindle.sessions.entries import iso_time
from spindle.shapes.checkpoints import CheckpointList, FileChanges, Restored
from spindle.shapes.events import CompactionResult
from spindle.shapes.messages import Image, Wire, text_of
from spindle.shapes.model import Model, ThinkingLevel
from spindle.shapes.run_limits import LimitArguments, RunLimits
from spindle.shapes.sandbox import SandboxChoice
from spindle.tools.todo import TodoPhase
from spindle.tools.user_bash import BashOutput

IDLE_ABORT_S = 0.01


# -- prompts and queues, stopping, compaction, shell commands ----------------------------------------


@command("prompt", key="disposition")
async def prompt(
    call: Call,
    message: str,
    images: Sequence[Any] = (),
    streaming_behavior: Literal["steer", "followUp"] | None = None,
    json_schema: dict[str, Any] | None = None,
    traceparent: str | None = None,
    **limits: Unpack[LimitArguments],
) -> Disposition:
    """Send a message. The response comes once it is accepted, queued or handled; the run's events follow.

    Limits (model calls, US dollars, seconds, tokens) and the JSON Schema of the result hold for the run it starts.
    `traceparent` (W3C) makes the run part of a trace of the client's.
    """
    trace.follow(traceparent)
    wanted = RunLimits(**limits)
    account = call.client.account
    options = RunOptions(limits=wanted if account is None else account.limited(wanted), schema=json_schema)
    return await _accepted(call, call.agent.submit(message, images, streaming_behavior, options=options))


async def _accepted(call: Call, submitting: Coroutine[Any, Any, Run]) -> Disposition:
    """Hand a prompt in. It counts as a run of the user if it is not refused."""
    run = await (submitting if call.client.account is None else call.client.account.counted(call.agent, submitting))
    call.client.accepted(run)
    call.client.follow(run, call.id)
    return run.disposition


@command("steer", key="disposition")
async def steer(call: Call, message: str, images: Sequence[Any] = ()) -> Disposition:
    """Queue a message that the model gets before its next call in this run, or with the next run."""
    return await call.agent.steer(message, images)


@command("follow_up", key="disposition")
async def follow_up(call: Call, message: str, images: Sequence[Any] = ()) -> Disposition:
    """Queue a message that the model gets when the run would otherwise end."""
    return await call.agent.follow_up(message, images)


@command("abort")
async def abort(call: Call) -> None:
    """Stop the run, a retry or a compaction. The response comes when the agent is idle; queues are kept.

    A client need not wait for it before it sends a prompt: the prompt is answered after the abort, and runs then.
    """
    idle = not call.agent.busy
    await call.agent.abort()
    if idle:
        # As in pi, commands sent together with an abort of an idle agent are seen before its response.
        await asyncio.sleep(IDLE_ABORT_S)


@command("abort_and_prompt", key="disposition")
async def abort_and_prompt(call: Call, message: str, images: Sequence[Any] = ()) -> Disposition:
    """Stop as `abort` does, then send a message."""
    return await _accepted(call, call.agent.abort_and_submit(message, images))


@command("abort_commands", key="commands")
def abort_commands(call: Call) -> list[str]:
    """Stop running slash commands of extensions, and return their names."""
    return call.agent.stop_commands()


@command("clear_queue")
def clear_queue(call: Call) -> Queued:
    """Empty both queues and return the messages that were in them."""
    return Queued(*call.agent.queues.clear())


class RemovedMessage(Wire):
    kind: str
    """`steer` or `followUp`."""
    text: str
    images: list[Image]


@command("remove_queued")
async def remove_queued(call: Call, queued_id: str) -> RemovedMessage:
    """Take one message out of its queue and return it. The ids are in `queue_update`."""
    kind, message = call.agent.queues.remove(queued_id)
    content = message.content if isinstance(message.content, list) else []
    return RemovedMessage(kind, text_of(message.content), [block for block in content if isinstance(block, Image)])


@command("edit_queued")
async def edit_queued(call: Call, queued_id: str, message: str) -> None:
    """Replace the text of a queued message; its place and its images stay."""
    call.agent.queues.change(queued_id, message)


@command("send_queued")
async def send_queued(call: Call, queued_id: str) -> None:
    """Deliver a queued message before all others: before the next model call, or at once if nothing runs."""
    call.agent.send_queued(queued_id)


@command("abort_retry")
async def abort_retry(call: Call) -> None:
    """End the wait for a retry; the run is over then."""
    await call.agent.abort_retry()


@command("compact")
async def compact(call: Call, custom_instructions: str | None = None) -> CompactionResult:
    """Replace the older part of the context by a summary."""
    return await call.agent.compact(custom_instructions)


@command("bash")
async def bash(call: Call, command: str, exclude_from_context: bool = False) -> BashOutput:
    """Run a shell command as the user; the model sees it with the next prompt."""
    return await call.agent.run_bash(command, call.id, exclude_from_context=exclude_from_context)


@command("abort_bash")
def abort_bash(call: Call) -> None:
    """Kill every running `bash` command."""
    call.agent.abort_bash()


@command("shutdown")
def shutdown(call: Call) -> None:
    """Answer, then end the process with code 0."""
    call.client.request_shutdown()


# -- how the agent is set up: model, thinking, modes, switches, tools and plans of the client ----------


@command("get_state")
def get_state(call: Call) -> State:
    """Return the state of the agent."""
    return call.agent.state()


@command("get_commands", key="commands")
def get_commands(call: Call) -> list[Any]:
    """Return the slash commands: commands of extensions, prompt templates, skills."""
    return call.agent.commands()


class AvailableCommand(Wire):
    name: str
    description: str | None
    source: Literal["extension", "file", "skill"]
    """`file`: a prompt template."""


@command("get_available_commands", key="commands")
def get_available_commands(call: Call) -> list[AvailableCommand]:
    """Return the slash commands as oh-my-pi lists them; `get_commands` tells more."""
    kinds = {"prompt": "file"}
    return [AvailableCommand(c.name, c.description, kinds.get(c.source, c.source)) for c in call.agent.commands()]


@command("complete_command", key="completions")
async def complete_command(call: Call, name: str, prefix: str = "") -> list[str]:
    """Return completions for the arguments of an extension's command; none if the command offers none."""
    return await call.agent.complete_command(name, prefix)


@command("get_available_models", key="models")
def get_available_models(call: Call) -> list[Model]:
    """Return the models for which there are credentials."""
    return [model.shown() for model in call.agent.available_models()]


@command("set_model")
async def set_model(call: Call, provider: str, model_id: str) -> Model:
    """Switch models; the new one answers from the next turn on."""
    return (await call.agent.set_model(provider, model_id)).shown()


@command("cycle_model")
async def cycle_model(call: Call) -> CycledModel | None:
    """Switch to the next model of the scope; null if there is no other."""
    return await call.agent.cycle_model()


@command("set_thinking_level")
async def set_thinking_level(call: Call, level: ThinkingLevel) -> None:
    """Set how hard the model thinks, clamped to the levels it supports."""
    await call.agent.set_thinking_level(level)


class Level(Wire):
    level: str


@command("cycle_thinking_level")
async def cycle_thinking_level(call: Call) -> Level | None:
    """Go to the next level; null if the model has only one."""
    level = await call.agent.cycle_thinking_level()
    return Level(level) if level is not None else None


@command("get_available_thinking_levels", key="levels")
def get_available_thinking_levels(call: Call) -> list[ThinkingLevel]:
    """Return the levels of the current model."""
    return call.agent.thinking_levels()


@command("set_steering_mode")
def set_steering_mode(call: Call, mode: QueueMode) -> None:
    """Deliver steering messages one per turn or all together."""
    call.agent.configure(steering_mode=mode)


@command("set_follow_up_mode")
def set_follow_up_mode(call: Call, mode: QueueMode) -> None:
    """Deliver follow-ups one per turn or all together."""
    call.agent.configure(follow_up_mode=mode)


@command("set_interrupt_mode")
def set_interrupt_mode(call: Call, mode: Literal["immediate", "wait"]) -> None:
    """Let steering cut a batch of tools short (`immediate`) or wait for its end (`wait`)."""
    call.agent.configure(interrupt_mode=mode)


@command("set_update_mode")
def set_update_mode(call: Call, mode: UpdateMode) -> None:
    """Send the whole answer so far with every update (`full`) or only the new piece (`delta`)."""
    call.client.set_update_mode(mode)


class Negotiated(Wire):
    protocol_version: int


@command("negotiate_protocol")
def negotiate_protocol(call: Call, protocol_version: int) -> Negotiated:
    """Speak version 2 of oh-my-pi's protocol from now on; on stdin and stdout only.

    `prompt_result` tells the end of each prompt, `session_settled` that nothing follows. A line of more than 1 MiB
    comes as `rpc_chunk` frames: `chunkId`, `index`, `count`, `byteLength` of the line, and `data`, a piece in base64.
    """
    if protocol_version != 2:
        raise AgentError(f"Unsupported RPC protocol version: {protocol_version}")
    call.client.negotiate()
    return Negotiated(2)


@command("set_event_filter", key="events")
def set_event_filter(call: Call, events: list[str] | None = None) -> list[str] | None:
    """Send only events of these types, or all (null); on stdin and stdout only.

    Responses, questions, calls of host tools and `prompt_result` are always sent.
    """
    wanted = None if events is None else list(dict.fromkeys(events))
    call.client.set_event_filter(wanted)
    return wanted


@command("set_auto_compaction")
def set_auto_compaction(call: Call, enabled: bool) -> None:
    """Switch automatic compaction and overflow recovery on or off."""
    call.agent.configure(auto_compaction=enabled)


@command("set_auto_retry")
def set_auto_retry(call: Call, enabled: bool) -> None:
    """Switch retries of transient errors on or off."""
    call.agent.configure(auto_retry=enabled)


@command("set_approval")
def set_approval(call: Call, tools: bool = False, max_turns: int | None = None) -> None:
    """Ask with a confirm dialog before every tool call (`tools`), and after every `maxTurns` model calls."""
    call.agent.set_approval(tools=tools, max_turns=max_turns)


@command("set_permissions")
def set_permissions(
    call: Call,
    mode: str | None = None,
    allow: list[str] | None = None,
    ask: list[str] | None = None,
    deny: list[str] | None = None,
    sandbox: SandboxChoice | None = None,
) -> None:
    """Set the permission mode, and replace rules that this command set before; fields left out change nothing.

    `sandbox` is a level, or an object with `level`, `writable` and `network`. It cannot be wider than the command line
    says. If it cannot be had on this machine, the command fails and changes nothing.
    """
    call.agent.set_permissions(mode=mode, allow=allow, ask=ask, deny=deny, sandbox=sandbox)


@command("get_permissions")
def get_permissions(call: Call, tool: str | None = None, arguments: Any = None) -> PermissionState:
    """Return the permission mode and all rules; with a tool and its arguments, also the decision on that call."""
    return call.agent.permissions(tool, arguments)


@command("set_host_tools", key="toolNames")
def set_host_tools(call: Call, tools: list[Any]) -> list[str]:
    """Declare the tools that run in the client, replacing those declared before."""
    return call.agent.set_host_tools(tools)


@command("set_mcp_servers", key="servers")
async def set_mcp_servers(call: Call, servers: dict[str, Any] | list[Any]) -> list[McpServerState]:
    """Set MCP servers, replacing those set before: an object as `mcpServers` of `.mcp.json`, or a list as in ACP."""
    return await call.agent.mcp_servers.set(servers)


@command("set_todos", key="todoPhases")
def set_todos(call: Call, phases: list[Any]) -> list[TodoPhase]:
    """Replace the todo list."""
    return call.agent.set_todos(phases)


# -- the contents of the session ------------------------------------------------------------------


@command("get_messages", key="messages")
def get_messages(call: Call) -> list[Any]:
    """Return the current context."""
    return call.agent.stored_messages(documented=call.client.dialect.documented)


class MessagesPage(Wire):
    messages: list[Any]
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
    return call.agent.last_assistant_text()


@command("get_run_result", key="result")
def get_run_result(call: Call) -> RunResult | None:
    """Return the result of the last run; null if there was none."""
    return call.agent.last_result()


@command("get_session_stats")
async def get_session_stats(call: Call) -> SessionStats:
    """Return counts, tokens and cost of the whole session, and how full the context is."""
    return await call.agent.stats()


class EntriesData(Wire):
    entries: list[Any]
    leaf_id: str | None
    more: bool = False
    """Whether there are earlier entries than these; only with `limit`."""


@command("get_entries", data=EntriesData)
def get_entries(
    call: Call,
    since: str | None = None,
    before: str | None = None,
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None,
) -> Any:
    """Return the session's entries in the order they were appended, without those up to `since` and from `before` on.

    With `limit`, only the last of them, about 1 MiB at most: so a long session can be read from its end.
    """
    entries, more = call.agent.session.tree.page_to_json(since, before, limit)
    answer = {"entries": msgspec.Raw(entries), "leafId": call.agent.session.leaf_id}
    return answer | {"more": True} if more else answer


class TreeData(Wire):
    tree: list[Any]
    leaf_id: str | None


@command("get_tree", data=TreeData)
def get_tree(call: Call, flat: bool = False) -> Any:
    """Return the session's entries as a tree: nodes with `entry`, `children`, `label?`, `labelTimestamp?`.

    The tree is nested as deep as the session is long, and many JSON readers refuse that. With `flat` the nodes come in
    one list, parents before their children, with `id` and `parentId` (null for a root) instead of `children`.
    """
    tree = msgspec.Raw(call.agent.session.tree_json(flat=flat))
    return {"tree": tree, "leafId": call.agent.session.leaf_id}


class ForkMessage(Wire):
    entry_id: str
    text: str


@command("get_fork_messages", "get_branch_messages", key="messages")
def get_fork_messages(call: Call) -> list[ForkMessage]:
    """Return every user message of the session, to choose where to fork."""
    return [ForkMessage(*pair) for pair in call.agent.user_messages()]


@command("set_session_name")
def set_session_name(call: Call, name: str) -> None:
    """Name the session."""
    call.agent.set_name(name)


@command("set_label")
def set_label(call: Call, entry_id: str, label: str | None = None) -> None:
    """Label an entry of the session, to find it in the tree; without `label`, remove its label."""
    call.agent.set_label(entry_id, label)


@command("export_html", key="path")
async def export_html(call: Call, output_path: str | None = None) -> str:
    """Write the session as one HTML page."""
    return await call.agent.export_html(output_path)


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


# -- other sessions, other places -----------------------------------------------------------------


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
) -> LiveInfo:
    """Open another session beside this one: a new session, or the stored one that `session` (id or path) names.

    Its `id` is the `sessionId` of its commands and events. `sandbox` is as in `set_permissions`. `sessionDir`, as
    oh-my-pi has it, is refused.
    """
    if session_dir is not None:
        raise AgentError(
            "open_session takes no sessionDir here: start the agent with --session-dir, or use switch_session"
        )
    wanted = Wanted(cwd=cwd, session=session, model=model, name=name, sandbox=sandbox)
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


@command("search_sessions", key="sessions")
async def search_sessions(call: Call, query: str, everywhere: bool = False) -> list[FoundSession]:
    """Return those of the sessions of `list_sessions` that contain all words of the query."""
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


# -- changes of files ------------------------------------------------------------------------------


@command("list_checkpoints")
async def list_checkpoints(call: Call) -> CheckpointList:
    """Return the checkpoints of this session: the states of the files before turns that wrote to them."""
    from spindle.agent.features import undo

    return await undo.checkpoints_of(call.agent)


@command("get_changes")
async def get_changes(call: Call, from_: str | None = None, to: str | None = None) -> FileChanges:
    """Return how files differ between two checkpoints, whoever changed them; by default since the first one.

    `from` and `to` are ids of checkpoints; without `to`, the files as they are now.
    """
    from spindle.agent.features import undo

    return await undo.changes(call.agent, from_, to)


@command("restore")
async def restore(
    call: Call,
    checkpoint: str,
    files: Sequence[str] | None = None,
    conversation: bool = False,
    dry_run: bool = False,
    force: bool = False,
) -> Restored:
    """Give files the state that they had at a checkpoint; refused while something runs.

    `files` names files and folders; the others stay. With `conversation`, the conversation goes back, too. With
    `dryRun` nothing changes, and the answer says what would. Files that were changed outside of the agent's runs are
    only overwritten with `force`.
    """
    from spindle.agent.features import undo

    how = {"conversation": conversation, "dry_run": dry_run, "force": force}
    return await undo.restore(call.agent, checkpoint, files, **how)
