# mypy: disable-error-code="empty-body"
"""Every command of the protocol as a method: `@command` makes it from a declaration.

Answers are plain JSON values; if an answer is a single list or text, the method returns just that.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import MethodType
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

from msgspec import UNSET, UnsetType

from spindle.base.signature import read_type
from spindle.client.transport import Json
from spindle.shapes.permission_modes import PermissionMode
from spindle.shapes.run_limits import RUN_LIMITS, LimitArguments

P = ParamSpec("P")
R = TypeVar("R")
Timeout: TypeAlias = float | UnsetType | None
"""Seconds; None waits for ever; unset: the `request_timeout` of the client."""
Images: TypeAlias = Sequence[Json] | None
"""Pictures in the form that `image_file` makes."""
Behavior: TypeAlias = Literal["steer", "followUp"] | None
"""How a prompt is queued while the agent runs; with None it is refused."""
QueueMode: TypeAlias = Literal["all", "one-at-a-time"]


class Wishes(LimitArguments, total=False):
    """The limits and the schema that a prompt may set for its run."""

    schema: Any
    """A type or a JSON Schema that the result has to fit."""


def wire_wishes(wishes: Wishes) -> Json:
    """Return the wishes as fields of `prompt`. Raises `TypeError` for a type that JSON cannot hold."""
    schema = wishes.get("schema")
    fields: Json = {limit.wire_name: wishes.get(limit.name) for limit in RUN_LIMITS}
    return fields | {"jsonSchema": None if schema is None else read_type(schema)[0]}


def image_file(path: str | Path) -> Json:
    """Read a picture into the form that `images` takes."""
    import base64
    import mimetypes

    kind = mimetypes.guess_type(path)[0] or "image/png"
    return {"type": "image", "data": base64.b64encode(Path(path).read_bytes()).decode(), "mimeType": kind}


class PlainCalls:
    """Marks a handle whose methods return when they are done, for programs without an event loop."""


Declared: TypeAlias = Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]


class Method(Generic[P, R]):
    """A coroutine method of a handle. On a handle with `PlainCalls` it is a plain call with the same signature."""

    def __init__(self, function: Declared[P, R]) -> None:
        self._function = function

    @overload
    def __get__(self, handle: PlainCalls, owner: Any = None) -> Callable[P, R]: ...

    @overload
    def __get__(self, handle: Any, owner: Any = None) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __get__(self, handle: Any, owner: Any = None) -> Any:
        return self._function if handle is None else handle._bound(self._function)


def command(key: str | None = None) -> Callable[[Declared[P, R]], Method[P, R]]:
    """Make a method that sends the command of its name; its parameters are the fields, in camelCase on the wire.

    It returns the value under `key` of the answer; without a key, the whole answer.
    """

    def declare(function: Declared[P, R]) -> Method[P, R]:
        returned = function.__annotations__["return"]

        @functools.wraps(function)
        async def send(handle: Any, /, *args: P.args, **given: P.kwargs) -> Any:
            bound = _signature(function).bind(handle, *args, **given)
            bound.apply_defaults()
            _, *fields = bound.arguments.items()
            answer = await handle.request(function.__name__, **{_on_wire(name): value for name, value in fields}) or {}
            if returned is None or key is None:
                return None if returned is None else answer
            return answer.get(key) if type(None) in get_args(returned) else answer[key]

        return Method(send)

    return declare


_signature = functools.cache(inspect.signature)


def _on_wire(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


class Commands:
    """The methods of `RpcClient` that are commands of the protocol."""

    def _bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return MethodType(function, self)

    _send: Callable[[str, Timeout, Json], Coroutine[Any, Any, Any]]
    """How the handle that has the event loop sends a command."""

    @Method
    async def request(self, command: str, /, *, timeout: Timeout = UNSET, **fields: Any) -> Any:
        """Send a command and return the `data` of its answer. Fields that are None are not sent.

        Raises `CommandFailed` if the agent refuses it, `RequestTimeout`, `ClientClosed`, and `AgentCrashed` or
        `ConnectionLost` if the agent is gone.
        """
        return await self._send(command, timeout, fields)

    # -- prompting -------------------------------------------------------------------------------

    @Method
    async def prompt(
        self,
        message: str,
        *,
        images: Images = None,
        streaming_behavior: Behavior = None,
        timeout: Timeout = None,
        **wishes: Unpack[Wishes],
    ) -> Json:
        """Send a message and return once it is accepted; the run's events follow."""
        fields = {"message": message, "images": images, "streamingBehavior": streaming_behavior}
        return await self.request("prompt", timeout=timeout, **fields, **wire_wishes(wishes)) or {}

    @command()
    async def steer(self, message: str, *, images: Images = None) -> Json:
        """Queue a message that is delivered as soon as the run can take it."""

    @command()
    async def follow_up(self, message: str, *, images: Images = None) -> Json:
        """Queue a message that is delivered when the run would end."""

    @command()
    async def abort(self, *, timeout: Timeout = UNSET) -> None:
        """Stop the agent's work and return when it is idle."""

    @command()
    async def abort_and_prompt(self, message: str, *, images: Images = None, timeout: Timeout = None) -> Json:
        """Stop the agent's work, then send a message."""

    @command("commands")
    async def abort_commands(self) -> list[str]:
        """Stop slash commands of extensions that are at work; return their names."""

    @command()
    async def clear_queue(self) -> Json:
        """Empty both queues; return their messages: `steering`, `followUp`."""

    @command()
    async def remove_queued(self, queued_id: str) -> Json:
        """Take one message out of its queue; return its `kind`, `text` and `images`."""

    @command()
    async def edit_queued(self, queued_id: str, message: str) -> None:
        """Change the text of a queued message."""

    @command()
    async def send_queued(self, queued_id: str) -> None:
        """Deliver a queued message before all others."""

    # -- state -----------------------------------------------------------------------------------

    @command()
    async def get_state(self, *, timeout: Timeout = UNSET) -> Json:
        """Return model, modes, session and counts."""

    @command("messages")
    async def get_messages(self) -> list[Json]:
        """Return the conversation as the model knows it."""

    @command()
    async def get_messages_page(self, cursor: str | None = None, limit: int | None = None) -> Json:
        """Return some `messages` of the conversation, `totalMessages`, and `nextCursor` if there are more."""

    @command("text")
    async def get_last_assistant_text(self) -> str | None:
        """Return the text of the last answer."""

    @command("result")
    async def get_run_result(self) -> Json | None:
        """Return the result of the last run: status, stop reason, text, value, denials, tokens, cost, …"""

    @command()
    async def get_session_stats(self) -> Json:
        """Return counts, tokens and cost."""

    @command("commands")
    async def get_commands(self) -> list[Json]:
        """Return the slash commands that a prompt may begin with."""

    @command("commands")
    async def get_available_commands(self) -> list[Json]:
        """Return the slash commands as oh-my-pi lists them."""

    @command("completions")
    async def complete_command(self, name: str, prefix: str = "") -> list[str]:
        """Return completions for the arguments of a slash command."""

    @command()
    async def get_entries(self, since: str | None = None, before: str | None = None, limit: int | None = None) -> Json:
        """Return the session's `entries` (after `since`, before `before`, the last `limit`) and its `leafId`."""

    @Method
    async def get_tree(self) -> Json:
        """Return the session's `tree` and its `leafId`."""
        answer: Json = await self.request("get_tree", flat=True) or {}  # nested, it could be too deep to read
        return {**answer, "tree": _nested(answer["tree"])} if "tree" in answer else answer

    # -- model and thinking ----------------------------------------------------------------------

    @command("models")
    async def get_available_models(self) -> list[Json]:
        """Return the models that have credentials."""

    @command()
    async def set_model(self, provider: str, model_id: str) -> Json:
        """Switch to a model and return it."""

    @Method
    async def cycle_model(self) -> Json | None:
        """Switch to the next model; None if there is no other."""
        return await self.request("cycle_model") or None

    @command()
    async def set_thinking_level(self, level: str) -> None:
        """Set how hard the model thinks: `off` … `max`."""

    @command("level")
    async def cycle_thinking_level(self) -> str | None:
        """Go to the next level and return it; None if there is none."""

    @command("levels")
    async def get_available_thinking_levels(self) -> list[str]:
        """Return the levels of the current model."""

    # -- modes -----------------------------------------------------------------------------------

    @command()
    async def set_steering_mode(self, mode: QueueMode) -> None:
        """Say how many queued `steer` messages are delivered at a time."""

    @command()
    async def set_follow_up_mode(self, mode: QueueMode) -> None:
        """Say how many queued `follow_up` messages are delivered at a time."""

    @command()
    async def set_interrupt_mode(self, mode: Literal["immediate", "wait"]) -> None:
        """Say whether a `steer` message cuts the tools of a turn short or waits for them."""

    @command()
    async def set_update_mode(self, mode: Literal["full", "delta"]) -> None:
        """Ask for the whole message in every update, or only for the new piece."""

    @command()
    async def set_auto_compaction(self, enabled: bool) -> None:
        """Switch automatic compaction on or off."""

    @command()
    async def set_auto_retry(self, enabled: bool) -> None:
        """Switch retries after failures of the model's server on or off."""

    @command()
    async def abort_retry(self) -> None:
        """End the wait for a retry."""

    @command()
    async def compact(self, custom_instructions: str | None = None, *, timeout: Timeout = None) -> Json:
        """Replace the older part of the conversation by a summary."""

    # -- shell -----------------------------------------------------------------------------------

    @command()
    async def bash(self, command: str, *, exclude_from_context: bool | None = None, timeout: Timeout = None) -> Json:
        """Run a shell command and return `output`, `exitCode`, `cancelled`, `truncated`."""

    @command()
    async def abort_bash(self) -> None:
        """Kill the shell command of `bash`."""

    # -- sessions --------------------------------------------------------------------------------

    @command()
    async def new_session(self, parent_session: str | None = None) -> Json:
        """Begin an empty session; `cancelled` tells whether an extension forbade it, here and below."""

    @command()
    async def switch_session(self, session_path: str | Path) -> Json:
        """Go on with another session file."""

    @command()
    async def fork(self, entry_id: str) -> Json:
        """Begin a session with everything before a user message; return its `text`."""

    @command()
    async def branch(self, entry_id: str) -> Json:
        """The same as `fork`, under the name that xcsh knows."""

    @command()
    async def clone(self) -> Json:
        """Copy the current branch into a new session and go on there."""

    @command("messages")
    async def get_fork_messages(self) -> list[Json]:
        """Return the user messages (`entryId`, `text`) that `fork` takes."""

    @command("messages")
    async def get_branch_messages(self) -> list[Json]:
        """The same as `get_fork_messages`, under the name that xcsh knows."""

    @command("sessions")
    async def list_sessions(self, *, everywhere: bool | None = None) -> list[Json]:
        """Return the stored sessions of the working directory, or the latest of all directories, the latest first."""

    @command("sessions")
    async def list_live_sessions(self) -> list[Json]:
        """Return the sessions that are alive in the agent's process."""

    @command()
    async def close_session(self) -> None:
        """End this session, if it is not the first: that one ends with the agent. Its file stays."""

    @command("sessions")
    async def search_sessions(self, query: str, *, everywhere: bool | None = None) -> list[Json]:
        """Return the stored sessions with a message that has all words of the query: `id`, `snippet`, `entryId`."""

    @command("found")
    async def find_text(self, text: str) -> list[Json]:
        """Return the entries of the current branch that contain a text: `entryId` and `count`."""

    @command("name")
    async def make_session_name(self, *, timeout: Timeout = None) -> str:
        """Let the model name the session, and return the name."""

    @command("cancelled")
    async def delete_session(self) -> bool:
        """Delete the current session and begin an empty one. Returns whether an extension prevented it."""

    @command()
    async def navigate_tree(
        self,
        entry_id: str,
        *,
        summarize: bool = False,
        custom_instructions: str | None = None,
        label: str | None = None,
        timeout: Timeout = None,
    ) -> Json:
        """Go on from another entry of the session, with or without a summary of the branch that is left."""

    @command()
    async def list_checkpoints(self) -> Json:
        """Return the `checkpoints` of the session, oldest first, and how much is kept."""

    @command()
    async def get_changes(self, from_: str | None = None, to: str | None = None, *, timeout: Timeout = None) -> Json:
        """Return the `files` that differ between two checkpoints; by default between the first one and now."""

    @command()
    async def restore(
        self,
        checkpoint: str,
        files: Sequence[str] | None = None,
        *,
        hunks: Sequence[str] | None = None,
        conversation: bool = False,
        dry_run: bool = False,
        force: bool = False,
        timeout: Timeout = None,
    ) -> Json:
        """Give files, and the conversation if wanted, the state of a checkpoint; `dry_run` only says what would change.

        Files that were changed outside of the agent's runs are only overwritten with `force`.
        """

    @command()
    async def set_label(self, entry_id: str, label: str | None = None) -> None:
        """Label an entry of the session; without a label, remove its label."""

    @command()
    async def set_session_name(self, name: str) -> None:
        """Name the session."""

    @command("path")
    async def export_html(self, output_path: str | Path | None = None, *, timeout: Timeout = None) -> str:
        """Write the session as an HTML page and return its path."""

    @command("html")
    async def export_page(self, *, timeout: Timeout = None) -> str:
        """Return the session as an HTML page."""

    @command("path")
    async def upload_file(self, name: str, data: str, *, timeout: Timeout = None) -> str:
        """Keep a file (base64) where tools can read it, and return its path."""

    @command("paths")
    async def complete_path(self, prefix: str = "") -> list[str]:
        """Return files of the working directory that fit the typed text."""

    @command()
    async def shutdown(self) -> None:
        """Ask the agent to end."""

    # -- permissions, plan and tools -------------------------------------------------------------

    @command()
    async def set_approval(self, *, tools: bool, max_turns: int | None = None) -> None:
        """Have the agent ask (`on_ui_request`) before every tool call, and after so many model calls."""

    @command()
    async def set_permissions(
        self,
        *,
        mode: PermissionMode | None = None,
        allow: Sequence[str] | None = None,
        ask: Sequence[str] | None = None,
        deny: Sequence[str] | None = None,
        sandbox: str | Mapping[str, Any] | None = None,
    ) -> None:
        """Set the permission mode and the sandbox, and replace the rules of earlier calls; None leaves them."""

    @command()
    async def get_permissions(self, tool: str | None = None, arguments: Json | None = None) -> Json:
        """Return the `mode` and all `rules`; for a tool call also the `decision` about it."""

    @command("todoPhases")
    async def set_todos(self, phases: Sequence[Mapping[str, Any]]) -> list[Json]:
        """Replace the plan; return it as the agent keeps it."""

    @command("toolNames")
    async def set_host_tools(self, tools: Sequence[Mapping[str, Any]]) -> list[str]:
        """Declare tools that run in this process, replacing the earlier ones; return their names."""

    @command("servers")
    async def set_mcp_servers(self, servers: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Json]:
        """Set MCP servers, replacing those of earlier calls; return the states of all servers."""


def _nested(nodes: list[Json]) -> list[Json]:
    """Give each node of a flat tree its `children`. Agents without the flat form send a nested tree."""
    if not nodes or "children" in nodes[0]:
        return nodes
    made = {node["id"]: {"entry": node["entry"], "children": []} for node in nodes}
    roots: list[Json] = []
    for node in nodes:
        one, parent_id = made[node["id"]], node["parentId"]
        one.update((key, node[key]) for key in ("label", "labelTimestamp") if key in node)
        (roots if parent_id is None else made[parent_id]["children"]).append(one)
    return roots
