"""Every command of the protocol as a method.

Answers are plain JSON values; where an answer is a single list or text, that is what the method returns.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from msgspec import UNSET, UnsetType

from spindle.client.transport import Json
from spindle.signature import read_type

Timeout: TypeAlias = float | UnsetType | None
"""Seconds; None waits for ever; unset is the client's usual time."""
Images: TypeAlias = Sequence[Json] | None
"""Pictures in the form that `image_file` makes."""
Behavior: TypeAlias = Literal["steer", "followUp"] | None
"""What becomes of a prompt while the agent runs; without it, such a prompt is refused."""
QueueMode: TypeAlias = Literal["all", "one-at-a-time"]


class Wishes(TypedDict, total=False):
    """What a prompt may ask of its run, besides an answer."""

    max_turns: int | None
    """Model calls."""
    max_cost: float | None
    """US dollars."""
    max_time: float | None
    """Seconds."""
    max_total_tokens: int | None
    """Input and output of all model calls."""
    schema: Any
    """A type or a JSON Schema that the result has to fit."""


def wire_wishes(wishes: Wishes) -> Json:
    """Return the fields of `prompt` for them. Raises `TypeError` for a type that JSON has nothing for."""
    schema = wishes.get("schema")
    return {
        "maxTurns": wishes.get("max_turns"),
        "maxCost": wishes.get("max_cost"),
        "maxTime": wishes.get("max_time"),
        "maxTotalTokens": wishes.get("max_total_tokens"),
        "jsonSchema": None if schema is None else read_type(schema)[0],
    }


def image_file(path: str | Path) -> Json:
    """Read a picture into the form that `images` takes."""
    import base64
    import mimetypes

    kind = mimetypes.guess_type(path)[0] or "image/png"
    return {"type": "image", "data": base64.b64encode(Path(path).read_bytes()).decode(), "mimeType": kind}


class Commands(ABC):
    """The methods of `RpcClient` that are commands of the protocol."""

    @abstractmethod
    async def request(self, command: str, /, *, timeout: Timeout = UNSET, **fields: Any) -> Any:
        """Send a command and return the `data` of its answer. Fields that are None are not sent.

        Raises `CommandFailed` if the agent refuses it, `RequestTimeout`, `ClientClosed`, and `AgentCrashed` or
        `ConnectionLost` if the agent is gone.
        """

    async def _object(self, command: str, /, **fields: Any) -> Json:
        return await self.request(command, **fields) or {}

    async def _list(self, command: str, key: str, /, **fields: Any) -> list[Any]:
        return list((await self._object(command, **fields))[key])

    # -- prompting -------------------------------------------------------------------------------

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
        return await self._object("prompt", timeout=timeout, **fields, **wire_wishes(wishes))

    async def steer(self, message: str, *, images: Images = None) -> Json:
        """Queue a message that is delivered as soon as the run can take it."""
        return await self._object("steer", message=message, images=images)

    async def follow_up(self, message: str, *, images: Images = None) -> Json:
        """Queue a message that is delivered when the run would end."""
        return await self._object("follow_up", message=message, images=images)

    async def abort(self, *, timeout: Timeout = UNSET) -> None:
        """Stop what runs and return when the agent is idle."""
        await self.request("abort", timeout=timeout)

    async def abort_and_prompt(self, message: str, *, images: Images = None, timeout: Timeout = None) -> Json:
        """Stop what runs, then send a message."""
        return await self._object("abort_and_prompt", message=message, images=images, timeout=timeout)

    async def abort_commands(self) -> list[str]:
        """Stop slash commands of extensions that are at work; return their names."""
        return await self._list("abort_commands", "commands")

    async def clear_queue(self) -> Json:
        """Empty both queues; return what was in them: `steering`, `followUp`."""
        return await self._object("clear_queue")

    async def remove_queued(self, queued_id: str) -> Json:
        """Take one message out of its queue; return its `kind`, `text` and `images`."""
        return await self._object("remove_queued", queuedId=queued_id)

    async def edit_queued(self, queued_id: str, message: str) -> None:
        """Give a message that waits another text."""
        await self.request("edit_queued", queuedId=queued_id, message=message)

    async def send_queued(self, queued_id: str) -> None:
        """Deliver a message that waits before all others."""
        await self.request("send_queued", queuedId=queued_id)

    # -- state -----------------------------------------------------------------------------------

    async def get_state(self, *, timeout: Timeout = UNSET) -> Json:
        """Return model, modes, session and counts."""
        return await self._object("get_state", timeout=timeout)

    async def get_messages(self) -> list[Json]:
        """Return the conversation as the model knows it."""
        return await self._list("get_messages", "messages")

    async def get_last_assistant_text(self) -> str | None:
        """Return the text of the last answer."""
        return (await self._object("get_last_assistant_text")).get("text")

    async def get_run_result(self) -> Json | None:
        """Return what came of the last run: status, stop reason, text, value, denials, tokens, cost, …"""
        return (await self._object("get_run_result")).get("result")

    async def get_session_stats(self) -> Json:
        """Return counts, tokens and cost."""
        return await self._object("get_session_stats")

    async def get_commands(self) -> list[Json]:
        """Return what may follow a slash in a prompt."""
        return await self._list("get_commands", "commands")

    async def complete_command(self, name: str, prefix: str = "") -> list[str]:
        """Return what the arguments of a command may become."""
        return await self._list("complete_command", "completions", name=name, prefix=prefix)

    async def get_entries(self, since: str | None = None) -> Json:
        """Return the session's `entries` (after entry `since`) and its `leafId`."""
        return await self._object("get_entries", since=since)

    async def get_tree(self) -> Json:
        """Return the session's `tree` and its `leafId`."""
        answer = await self._object("get_tree", flat=True)  # nested, it could be too deep to read
        return {**answer, "tree": _nested(answer["tree"])} if "tree" in answer else answer

    # -- model and thinking ----------------------------------------------------------------------

    async def get_available_models(self) -> list[Json]:
        """Return the models that have credentials."""
        return await self._list("get_available_models", "models")

    async def set_model(self, provider: str, model_id: str) -> Json:
        """Switch to a model and return it."""
        return await self._object("set_model", provider=provider, modelId=model_id)

    async def cycle_model(self) -> Json | None:
        """Switch to the next model; None if there is no other."""
        return await self._object("cycle_model") or None

    async def set_thinking_level(self, level: str) -> None:
        """Set how hard the model thinks: `off` … `max`."""
        await self.request("set_thinking_level", level=level)

    async def cycle_thinking_level(self) -> str | None:
        """Go to the next level and return it; None if there is none."""
        return (await self._object("cycle_thinking_level")).get("level")

    async def get_available_thinking_levels(self) -> list[str]:
        """Return the levels of the current model."""
        return await self._list("get_available_thinking_levels", "levels")

    # -- modes -----------------------------------------------------------------------------------

    async def set_steering_mode(self, mode: QueueMode) -> None:
        """Say how many queued `steer` messages are delivered at a time."""
        await self.request("set_steering_mode", mode=mode)

    async def set_follow_up_mode(self, mode: QueueMode) -> None:
        """Say how many queued `follow_up` messages are delivered at a time."""
        await self.request("set_follow_up_mode", mode=mode)

    async def set_interrupt_mode(self, mode: Literal["immediate", "wait"]) -> None:
        """Say whether a `steer` message cuts the tools of a turn short or waits for them."""
        await self.request("set_interrupt_mode", mode=mode)

    async def set_update_mode(self, mode: Literal["full", "delta"]) -> None:
        """Ask for the whole message in every update, or only for what is new."""
        await self.request("set_update_mode", mode=mode)

    async def set_auto_compaction(self, enabled: bool) -> None:
        """Switch automatic compaction on or off."""
        await self.request("set_auto_compaction", enabled=enabled)

    async def set_auto_retry(self, enabled: bool) -> None:
        """Switch retries after failures of the model's server on or off."""
        await self.request("set_auto_retry", enabled=enabled)

    async def abort_retry(self) -> None:
        """End the wait for a retry."""
        await self.request("abort_retry")

    async def compact(self, custom_instructions: str | None = None, *, timeout: Timeout = None) -> Json:
        """Replace the older part of the conversation by a summary."""
        return await self._object("compact", customInstructions=custom_instructions, timeout=timeout)

    # -- shell -----------------------------------------------------------------------------------

    async def bash(self, command: str, *, exclude_from_context: bool | None = None, timeout: Timeout = None) -> Json:
        """Run a shell command and return `output`, `exitCode`, `cancelled`, `truncated`."""
        return await self._object("bash", command=command, excludeFromContext=exclude_from_context, timeout=timeout)

    async def abort_bash(self) -> None:
        """Kill what `bash` runs."""
        await self.request("abort_bash")

    # -- sessions --------------------------------------------------------------------------------

    async def new_session(self, parent_session: str | None = None) -> Json:
        """Begin an empty session; `cancelled` tells whether an extension forbade it, here and below."""
        return await self._object("new_session", parentSession=parent_session)

    async def switch_session(self, session_path: str | Path) -> Json:
        """Go on with another session file."""
        return await self._object("switch_session", sessionPath=str(session_path))

    async def fork(self, entry_id: str) -> Json:
        """Begin a session with everything before a user message; return its `text`."""
        return await self._object("fork", entryId=entry_id)

    async def branch(self, entry_id: str) -> Json:
        """The same as `fork`, under the name that xcsh knows."""
        return await self._object("branch", entryId=entry_id)

    async def clone(self) -> Json:
        """Copy the current branch into a new session and go on there."""
        return await self._object("clone")

    async def get_fork_messages(self) -> list[Json]:
        """Return the user messages (`entryId`, `text`) one can fork at."""
        return await self._list("get_fork_messages", "messages")

    async def get_branch_messages(self) -> list[Json]:
        """The same as `get_fork_messages`, under the name that xcsh knows."""
        return await self._list("get_branch_messages", "messages")

    async def list_sessions(self, *, everywhere: bool = False) -> list[Json]:
        """Return the stored sessions of the working directory, or the latest of all directories, the latest first."""
        return await self._list("list_sessions", "sessions", everywhere=everywhere or None)

    async def list_live_sessions(self) -> list[Json]:
        """Return the sessions that are alive in the agent's process."""
        return await self._list("list_live_sessions", "sessions")

    async def close_session(self) -> None:
        """End this session, if it is not the first: that one ends with the agent. Its file stays."""
        await self.request("close_session")

    async def search_sessions(self, query: str, *, everywhere: bool = False) -> list[Json]:
        """Return the stored sessions in which all words of the query were said: `id` and `snippet`."""
        return await self._list("search_sessions", "sessions", query=query, everywhere=everywhere or None)

    async def delete_session(self) -> bool:
        """Delete the current session and begin an empty one. Returns whether an extension prevented it."""
        return bool((await self._object("delete_session"))["cancelled"])

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
        return await self._object(
            "navigate_tree",
            entryId=entry_id,
            summarize=summarize,
            customInstructions=custom_instructions,
            label=label,
            timeout=timeout,
        )

    async def set_label(self, entry_id: str, label: str | None = None) -> None:
        """Label an entry of the session; without a label it loses its own."""
        await self.request("set_label", entryId=entry_id, label=label)

    async def set_session_name(self, name: str) -> None:
        """Name the session."""
        await self.request("set_session_name", name=name)

    async def export_html(self, output_path: str | Path | None = None, *, timeout: Timeout = None) -> str:
        """Write the session as an HTML page and return its path."""
        path = None if output_path is None else str(output_path)
        return str((await self._object("export_html", outputPath=path, timeout=timeout))["path"])

    async def export_page(self, *, timeout: Timeout = None) -> str:
        """Return the session as an HTML page."""
        return str((await self._object("export_page", timeout=timeout))["html"])

    async def upload_file(self, name: str, data: str, *, timeout: Timeout = None) -> str:
        """Keep a file (base64) where tools can read it, and return its path."""
        return str((await self._object("upload_file", name=name, data=data, timeout=timeout))["path"])

    async def complete_path(self, prefix: str = "") -> list[str]:
        """Return files of the working directory that fit what was typed."""
        return list((await self._object("complete_path", prefix=prefix))["paths"])

    async def shutdown(self) -> None:
        """Ask the agent to end."""
        await self.request("shutdown")

    # -- what the host gives ---------------------------------------------------------------------

    async def set_approval(self, *, tools: bool, max_turns: int | None = None) -> None:
        """Have the agent ask (`on_ui_request`) before every tool call, and after so many model calls."""
        await self.request("set_approval", tools=tools, maxTurns=max_turns)

    async def set_permissions(
        self,
        *,
        mode: Literal["bypass", "default", "acceptEdits", "plan", "dontAsk"] | None = None,
        allow: Sequence[str] | None = None,
        ask: Sequence[str] | None = None,
        deny: Sequence[str] | None = None,
    ) -> None:
        """Set the permission mode, and replace the rules that were set with this before; None leaves them."""
        await self.request("set_permissions", mode=mode, allow=allow, ask=ask, deny=deny)

    async def get_permissions(self, tool: str | None = None, arguments: Json | None = None) -> Json:
        """Return the `mode` and all `rules`; of a call also the `decision` about it."""
        return await self._object("get_permissions", tool=tool, arguments=arguments)

    async def set_todos(self, phases: Sequence[Mapping[str, Any]]) -> list[Json]:
        """Replace the plan; return it as the agent keeps it."""
        return await self._list("set_todos", "todoPhases", phases=list(phases))

    async def set_host_tools(self, tools: Sequence[Mapping[str, Any]]) -> list[str]:
        """Declare tools that run in this process, replacing the earlier ones; return their names."""
        return await self._list("set_host_tools", "toolNames", tools=list(tools))

    async def set_mcp_servers(self, servers: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Json]:
        """Set MCP servers, replacing those set with this before; return the states of all servers."""
        return await self._list("set_mcp_servers", "servers", servers=servers)


def _nested(nodes: list[Json]) -> list[Json]:
    """Give each node of a flat tree its `children`. Agents that know no flat form have sent a nested one."""
    if not nodes or "children" in nodes[0]:
        return nodes
    made = {node["id"]: {"entry": node["entry"], "children": []} for node in nodes}
    roots: list[Json] = []
    for node in nodes:
        one, parent_id = made[node["id"]], node["parentId"]
        one.update((key, node[key]) for key in ("label", "labelTimestamp") if key in node)
        (roots if parent_id is None else made[parent_id]["children"]).append(one)
    return roots
