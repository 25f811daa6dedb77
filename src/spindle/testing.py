"""Test doubles for programs that use Spindle, the same ones our own tests use.

    from spindle.testing import Call, Pause, Script

    script = Script([
        {"text": "Let me look.", "calls": [{"name": "bash", "arguments": {"command": "ls"}}]},
        {"text": ["There is ", Pause(gate="go"), "one file."]},
    ])
    model = script.model()              # give this to an agent
    await script.reached("go")          # the answer has come to the gate
    script.release("go")
    script.requests[0].messages         # the messages sent to the model

The keys of a step are explained in `spindle.llm.scripted`.

`load` drives an extension in a whole agent, in memory; its model answers from a script, and its user from a list:

    agent = await load(extension)
    agent.answer(confirm=False)
    call = await agent.tool_call("bash", command="rm -rf build")
    assert call.blocked == "The user refused this command."

`check_store` runs on a store of your own what every store promises (`docs/durable.md`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spindle.agent import AgentError
from spindle.agent.hooks import Blocked, NeverFull
from spindle.agent.session import AgentSession
from spindle.llm.scripted import Call, Pause, Script, ScriptError, Step, load_script
from spindle.plugins.extensions.events import EVENTS
from spindle.plugins.extensions.handlers import ExtensionHooks
from spindle.plugins.extensions.host import ExtensionHost
from spindle.recipe import AgentOptions, make_agent
from spindle.resources.loader import ResourceOptions
from spindle.sessions import open as sessions
from spindle.sessions.entries import Entry
from spindle.sessions.store_contract import BrokenPromise, check_store
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.codec import encode, to_builtins
from spindle.shapes.events import Event, ExtensionError, ToolResult
from spindle.shapes.messages import CustomMessage
from spindle.tools.base import Tool, ToolError
from spindle.tools.validate import validate_arguments

__all__ = [
    "BrokenPromise",
    "Call",
    "LoadedExtension",
    "Pause",
    "Script",
    "ScriptError",
    "Step",
    "ToolCallOutcome",
    "check_store",
    "load",
    "load_script",
]


@dataclass(frozen=True, slots=True)
class ToolCallOutcome:
    """How handlers decided about a tool call."""

    input: Any
    """Arguments the tool would have been run with."""
    blocked: str | None = None
    """The text the model would have read."""
    terminate: bool = False


class LoadedExtension(NeverFull):
    """Extensions in an agent of their own. Make it with `load`."""

    def __init__(self, agent: AgentSession, host: ExtensionHost, user: "_User", script: Script) -> None:
        self.agent = agent
        """The whole agent, as wires use it."""
        self.script = script
        """The answers of the model, and the requests it got."""
        self.errors: list[tuple[str, str]] = []
        """Event and text of every error that was reported."""
        self._host = host
        self._user = user
        agent.subscribe(self)

    def put(self, event: Event) -> None:
        if isinstance(event, ExtensionError):
            self.errors.append((event.event, event.error))

    # -- what happened so far --------------------------------------------------------------------

    @property
    def hooks(self) -> ExtensionHooks:
        assert self._host.hooks is not None
        return self._host.hooks

    @property
    def ui(self) -> list[dict[str, Any]]:
        """Every notice and question for the user, in the form that a wire would send."""
        return self._user.shown

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Entries that were added to the session: those of the extension, names, labels."""
        written_by_the_agent = ("model_change", "thinking_level_change")
        return [entry.value for entry in self.agent.session.entries if entry.type not in written_by_the_agent]

    @property
    def messages(self) -> list[CustomMessage]:
        """Messages of extensions in the conversation."""
        return [message for message in self.agent.messages if isinstance(message, CustomMessage)]

    @property
    def tools(self) -> dict[str, Tool]:
        return self.hooks.generation.tools()

    # -- actions ---------------------------------------------------------------------------------

    def answer(self, *values: Any, **by_method: Any) -> None:
        """Set the answers of the next dialogs, in order, or of all dialogs of a method: `answer(confirm=True)`.

        None cancels. Without an answer a dialog is cancelled at once.
        """
        self._user.queue.extend(values)
        self._user.by_method.update(by_method)

    def set(self, *, has_ui: bool) -> None:
        """Say whether there is a user to ask."""
        self._user.has_ui = has_ui

    async def fire(self, event: str, **fields: Any) -> list[Any]:
        """Send an event with these fields to its handlers; return what they returned."""
        results: list[Any] = []
        await self.hooks.each(EVENTS[event](**fields), results.append)
        return results

    async def tool_call(self, tool: str, /, **arguments: Any) -> ToolCallOutcome:
        """Let handlers judge a tool call."""
        known = {found.name: found for found in self.agent.toolbox.all()}
        called = known.get(tool) or Tool(tool, "", {}, _not_run)
        try:
            return ToolCallOutcome(await self.hooks.tool_call("call_1", called, arguments))
        except Blocked as block:
            return ToolCallOutcome(arguments, str(block), block.terminate)

    async def run_tool(
        self, tool: str, /, on_update: Callable[[ToolResult], None] = lambda result: None, **arguments: Any
    ) -> ToolResult:
        """Run a tool of the extension as the model would. Raises `ToolError`, and the errors of the tool."""
        found = self.tools.get(tool)
        if found is None:
            raise ToolError(f"Tool {tool} not found")
        args = found.prepare(arguments) if found.prepare else arguments
        checked = await validate_arguments(tool, found.parameters, args)
        return await found.execute("call_1", checked, self.agent.tool_context(on_update))

    async def command(self, line: str) -> bool:
        """Run `/name args`. Returns whether there is such a command."""
        text = line if line.startswith("/") else f"/{line}"
        if not self.hooks.has_command(text[1:].split(" ", 1)[0]):
            return False
        await self.hooks.run_command(text)
        return True

    async def close(self) -> None:
        await self.agent.close()


async def load(
    *extensions: Callable[[Any], Any],
    flags: Mapping[str, str | bool] | None = None,
    cwd: str | Path = ".",
    entries: Sequence[dict[str, Any]] = (),
    answers: Sequence[Any] = (),
) -> LoadedExtension:
    """Run `extension(agent)` in an agent of its own. Raises `RuntimeError` if that fails.

    `entries` are lines of the session, `answers` the steps of the model's script.
    """
    user, script = _User(), Script(answers or [{"text": ""}])
    alone = ResourceOptions(
        no_extensions=True, no_skills=True, no_prompt_templates=True, no_context_files=True, no_rules=True
    )
    session = sessions.in_memory(cwd)
    for entry in entries:
        ids = {"id": f"{len(session.entries) + 1:08x}", "parentId": session.leaf_id, **entry}
        session.tree.add(Entry(ids["type"], ids["id"], ids["parentId"], ids.get("timestamp", ""), encode(ids) + b"\n"))
    options = AgentOptions(
        model=script.model(),
        mode="rpc",
        dialogs=user,
        resources=alone,
        factories=extensions,
        flags=flags or {},
        mcp_servers=False,
    )
    try:
        agent, host = await make_agent(session, options)
    except AgentError as error:
        raise RuntimeError(str(error)) from None
    if host.hooks is not None:  # a test may hold on to nothing but its extension
        host.hooks.generation.binding.bind(agent)
    return LoadedExtension(agent, host, user, script)


async def _not_run(call_id: str, arguments: Any, ctx: Any) -> ToolResult:
    raise ToolError("This tool exists only for the handlers that judge it")


class _User:
    """A user who answers from a list."""

    def __init__(self) -> None:
        self.has_ui = True
        self.shown: list[dict[str, Any]] = []
        self.queue: list[Any] = []
        self.by_method: dict[str, Any] = {}

    async def ask(self, request: ExtensionUIRequest) -> dict[str, Any] | None:
        self.tell(request)
        answer = self.queue.pop(0) if self.queue else self.by_method.get(request.method)
        if answer is None or not self.has_ui:
            return None
        return {"confirmed" if request.method == "confirm" else "value": answer}

    def tell(self, request: ExtensionUIRequest) -> None:
        shown = to_builtins(request)
        self.shown.append({key: value for key, value in shown.items() if key not in ("type", "id")})

    def open_requests(self) -> list[ExtensionUIRequest]:
        return []  # answers come at once

    def withdraw(self) -> None: ...
