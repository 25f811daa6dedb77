"""Drives an extension without a model, a process or a client.

    from spindle.testing import load

    agent = await load(extension)
    agent.answer(confirm=False)
    call = await agent.tool_call("bash", command="rm -rf build")
    assert call.blocked == "The user refused this command."

Handlers, tools, commands and dialogs run through the same code as in a real agent; what the agent would have done with
the outcome is recorded instead.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spindle.extensions.discover import Candidate, Place
from spindle.extensions.events import EVENTS
from spindle.extensions.hooks import Blocked
from spindle.extensions.loader import load_extensions
from spindle.extensions.registry import Registry
from spindle.extensions.runner import ExtensionHooks
from spindle.extensions.runtime import Front, Navigated, Replaced, SessionView, UserContent
from spindle.shapes.codec import to_builtins
from spindle.shapes.events import ExtensionUIRequest, ToolResult
from spindle.shapes.messages import CustomMessage
from spindle.shapes.models import Model, ThinkingLevel
from spindle.tools.base import Tool, ToolContext, ToolError
from spindle.tools.validate import validate_arguments

__all__ = ["FakeAgent", "ToolCallOutcome", "load"]


@dataclass(frozen=True, slots=True)
class ToolCallOutcome:
    """What handlers made of a tool call."""

    input: Any
    """Arguments the tool would have been run with."""
    blocked: str | None = None
    """The text the model would have read."""
    terminate: bool = False


class FakeAgent:
    """An agent that only remembers. Make it with `load`."""

    def __init__(self, hooks: ExtensionHooks, runtime: "_FakeRuntime") -> None:
        self.hooks = hooks
        self._runtime = runtime

    # -- what happened ---------------------------------------------------------------------------

    @property
    def errors(self) -> list[tuple[str, str]]:
        """Event and text of every error that was reported."""
        return self._runtime.errors

    @property
    def ui(self) -> list[dict[str, Any]]:
        """Everything shown or asked, as it would have gone over the wire."""
        return self._runtime.screen.shown

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The session."""
        return self._runtime.tree.all

    @property
    def messages(self) -> list[Any]:
        """Messages and prompts the extension sent."""
        return self._runtime.sent

    @property
    def actions(self) -> list[tuple[Any, ...]]:
        """Everything else it asked the agent to do: name and arguments."""
        return self._runtime.actions

    @property
    def tools(self) -> dict[str, Tool]:
        return self.hooks.registry.tools()

    # -- what is to happen -----------------------------------------------------------------------

    def answer(self, *values: Any, **by_method: Any) -> None:
        """Set the answers of the next dialogs, in order, or of all dialogs of a method: `answer(confirm=True)`.

        None cancels. Without an answer a dialog is cancelled at once.
        """
        self._runtime.screen.queue.extend(values)
        self._runtime.screen.by_method.update(by_method)

    def set(self, **state: Any) -> None:
        """Set what `ctx` says: `cwd`, `mode`, `model`, `has_ui`, `is_idle`, …"""
        for name, value in state.items():
            if name == "has_ui":
                self._runtime.screen.has_ui = value
            else:
                setattr(self._runtime, name, value)

    async def fire(self, event: str, **fields: Any) -> list[Any]:
        """Send an event with these fields to its handlers; return what they returned."""
        results: list[Any] = []
        await self.hooks.each(EVENTS[event](**fields), results.append)
        return results

    async def tool_call(self, tool: str, /, **arguments: Any) -> ToolCallOutcome:
        """Let handlers judge a tool call."""
        try:
            return ToolCallOutcome(await self.hooks.tool_call("call_1", tool, arguments))
        except Blocked as block:
            return ToolCallOutcome(arguments, str(block), block.terminate)

    async def run_tool(
        self, tool: str, /, on_update: Callable[[ToolResult], None] = lambda result: None, **arguments: Any
    ) -> ToolResult:
        """Run a tool of the extension as the model would. Raises `ToolError` and whatever the tool raises."""
        found = self.tools.get(tool)
        if found is None:
            raise ToolError(f"Tool {tool} not found")
        args = found.prepare(arguments) if found.prepare else arguments
        checked = validate_arguments(tool, found.parameters, args)
        return await found.execute("call_1", checked, ToolContext(str(self._runtime.cwd), on_update))

    async def command(self, line: str) -> bool:
        """Run `/name args`. Returns whether there is such a command."""
        return await self.hooks.run_command(line if line.startswith("/") else f"/{line}")


async def load(
    extension: Callable[[Any], Any],
    *,
    flags: Mapping[str, str | bool] | None = None,
    cwd: str | Path = ".",
    entries: Sequence[dict[str, Any]] = (),
) -> FakeAgent:
    """Run `extension(agent)` and return the agent it was given. Raises what went wrong."""
    registry = Registry(flags, _builtin)
    hooks = ExtensionHooks(registry)
    place = Place(getattr(extension, "__module__", "extension"), Path(cwd), "inline", "temporary", factory=extension)
    failures = await load_extensions([Candidate(place)], registry, hooks.context_for)
    if failures:
        raise RuntimeError(failures[0].error)
    runtime = _FakeRuntime(Path(cwd).resolve(), list(entries), hooks)
    registry.binding.bind(runtime)
    return FakeAgent(hooks, runtime)


def _builtin(name: str) -> Tool | None:
    from spindle.tools.base import builtin_tools

    return builtin_tools().get(name)


class _Screen:
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

    def withdraw(self) -> None:
        """Answers come at once, so nothing is open."""


@dataclass
class _Tree:
    """A session of one branch."""

    cwd: Path
    all: list[dict[str, Any]]
    id: str = "test"
    file: Path | None = None
    directory: Path | None = None
    name: str | None = None
    labels: dict[str, str | None] = field(default_factory=dict)

    @property
    def leaf_id(self) -> str | None:
        return self.all[-1].get("id") if self.all else None

    def header(self) -> dict[str, Any]:
        return {"type": "session", "id": self.id, "cwd": str(self.cwd)}

    def entry(self, entry_id: str) -> dict[str, Any] | None:
        return next((entry for entry in self.all if entry.get("id") == entry_id), None)

    def entries(self) -> list[dict[str, Any]]:
        return [*self.all]

    def branch(self, from_id: str | None = None) -> list[dict[str, Any]]:
        last = next((i for i, entry in enumerate(self.all) if entry.get("id") == from_id), len(self.all) - 1)
        return self.all[: last + 1]

    def children(self, entry_id: str | None) -> list[dict[str, Any]]:
        return [entry for entry in self.all if entry.get("parentId") == entry_id]

    def tree(self) -> list[dict[str, Any]]:
        return [{"entry": entry, "children": []} for entry in self.all]

    def label(self, entry_id: str) -> str | None:
        return self.labels.get(entry_id)


class _FakeRuntime:
    """The agent of `load`: state is what was set, actions are remembered."""

    def __init__(self, cwd: Path, entries: list[dict[str, Any]], hooks: ExtensionHooks) -> None:
        self.hooks = hooks
        self.screen = _Screen()
        self.front: Front = self.screen
        self.mode = "rpc"
        self.cwd = cwd
        self.tree = _Tree(cwd, entries)
        self.models: Any = SimpleNamespace(all=lambda provider=None: [], available=list, find=lambda *_: None)
        self.model: Model | None = None
        self.thinking_level: ThinkingLevel = "off"
        self.is_idle = True
        self.is_aborting = False
        self.has_pending_messages = False
        self.system_prompt = ""
        self.project_trusted = True
        self.active = [*hooks.registry.tools()]
        self.errors: list[tuple[str, str]] = []
        self.sent: list[Any] = []
        self.actions: list[tuple[Any, ...]] = []

    @property
    def session(self) -> SessionView:
        return self.tree

    def context_usage(self) -> dict[str, Any] | None:
        return None

    def report(self, path: str, event: str, error: str) -> None:
        self.errors.append((event, error))

    async def send_message(self, message: CustomMessage, *, trigger_turn: bool, deliver_as: str | None) -> None:
        self.sent.append(message)

    async def send_user_message(self, content: UserContent, *, deliver_as: str | None, expand: bool) -> None:
        self.sent.append(content)

    def append_entry(self, custom_type: str, data: Any) -> str:
        entry_id = f"{len(self.tree.all) + 1:08x}"
        parent = self.tree.leaf_id
        self.tree.all.append(
            {"type": "custom", "customType": custom_type, "data": data, "id": entry_id, "parentId": parent}
        )
        return entry_id

    def set_label(self, entry_id: str, label: str | None) -> None:
        self.tree.labels[entry_id] = label

    def set_session_name(self, name: str) -> None:
        self.tree.name = name

    def abort(self) -> None:
        self.actions.append(("abort",))

    def shutdown(self) -> None:
        self.actions.append(("shutdown",))

    def compact(self, instructions: str | None) -> "asyncio.Task[Any]":
        self.actions.append(("compact", instructions))
        return asyncio.create_task(asyncio.sleep(0))

    def add_tool(self, tool: Tool) -> None:
        self.active.append(tool.name)

    def all_tools(self) -> list[Tool]:
        return [*self.hooks.registry.tools().values()]

    def tool_context(self, update: Callable[[ToolResult], None]) -> ToolContext:
        return ToolContext(str(self.cwd), update)

    def active_tools(self) -> list[str]:
        return [*self.active]

    def set_active_tools(self, names: Sequence[str]) -> None:
        self.active = [*names]

    def commands(self) -> list[Any]:
        return self.hooks.commands()

    async def set_model(self, model: Model) -> bool:
        self.model = model
        return True

    def set_thinking_level(self, level: ThinkingLevel) -> None:
        self.thinking_level = level

    def add_provider(self, name: str, config: Mapping[str, Any], stream: Any) -> None:
        self.actions.append(("add_provider", name, dict(config)))

    def remove_provider(self, name: str) -> None:
        self.actions.append(("remove_provider", name))

    async def wait_for_idle(self) -> None:
        self.actions.append(("wait_for_idle",))

    async def new_session(self, parent: str | None, setup: Callable[[Any], Awaitable[None] | None] | None) -> Replaced:
        self.actions.append(("new_session", parent))
        return Replaced(False)

    async def fork(self, entry_id: str, position: str) -> Replaced:
        self.actions.append(("fork", entry_id, position))
        return Replaced(False)

    async def switch_session(self, path: str) -> Replaced:
        self.actions.append(("switch_session", path))
        return Replaced(False)

    async def navigate_tree(self, target_id: str, **options: Any) -> Navigated:
        self.actions.append(("navigate_tree", target_id, options))
        return Navigated(False)

    async def reload(self) -> None:
        self.actions.append(("reload",))

    def command_context(self, path: str) -> Any:
        return self.hooks.command_context(self.hooks.registry.extensions[0])
