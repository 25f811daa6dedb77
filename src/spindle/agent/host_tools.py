"""Tools that the client lends to the agent: declared over the wire, run in the client, awaited here."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import proxy

import msgspec

from spindle.agent import AgentError
from spindle.agent.hub import Hub
from spindle.agent.toolbox import Toolbox
from spindle.shapes.builtin_tools import BUILTIN_TOOLS
from spindle.shapes.client_requests import HostToolCall, HostToolCancel
from spindle.shapes.events import StateChanged, ToolResult
from spindle.shapes.messages import Image, Text, text_of
from spindle.tools.base import Tool, ToolContext, ToolError

if TYPE_CHECKING:
    from spindle.agent.host_uris import HostUris

DISCONNECTED = "RPC client disconnected before host tool execution completed"
Taker = Callable[[dict[str, Any]], bool]


class Replies:
    """Hands replies to the dialog or host tool that waits for them. Replies get no response; late ones are dropped."""

    def __init__(self) -> None:
        # A reply is never a command, even if nothing waits for it.
        self._takers: dict[str, Taker] = dict.fromkeys(("extension_ui_response", "host_uri_result"), lambda frame: True)

    def register(self, kind: str, taker: Taker) -> None:
        """Let `taker` have frames of this type; it returns False for a frame that it does not recognise."""
        self._takers[kind] = taker

    def receive(self, frame: dict[str, Any]) -> bool:
        """Hand the frame on if it is a reply. Returns whether it is."""
        kind = frame.get("type")
        taker = self._takers.get(kind) if isinstance(kind, str) else None
        return taker is not None and taker(frame)


class _Pending(msgspec.Struct):
    """A call that the client is working on."""

    done: asyncio.Future[ToolResult]
    update: Callable[[ToolResult], None]


class HostToolPort(Protocol):
    """What host tools need of the engine."""

    hub: Hub
    toolbox: Toolbox


class HostTools:
    def __init__(self, port: HostToolPort, replies: Replies, timeout_ms: int | None) -> None:
        self._port = port
        self._timeout_ms = timeout_ms
        self.names: list[str] = []
        self._pending: dict[str, _Pending] = {}
        self._replies: Replies = proxy(replies)  # which holds this object
        self._uris: HostUris | None = None
        """Made when the client serves addresses."""
        replies.register("host_tool_result", partial(self._take, "result"))
        replies.register("host_tool_update", partial(self._take, "partialResult"))

    def declare(self, items: list[Any]) -> list[str]:
        """Replace the client's tools, from the next model call on, and tell clients.

        Raises `AgentError`, changing nothing.
        """
        declared = [_read(index, item) for index, item in enumerate(items)]
        names = [name for name, *_ in declared]
        if len(set(names)) != len(names):
            raise AgentError("RPC host tool names must be unique")
        known, active = set(self.names), set(self._port.toolbox.active)
        for name in names:
            if name in BUILTIN_TOOLS or (name in self._port.toolbox and name not in known):
                raise AgentError(f'RPC host tool "{name}" conflicts with an existing tool')
        # A tool that is declared again stays as active or inactive as it was.
        tools: list[tuple[Tool, bool]] = []
        for name, label, description, parameters, hidden, safe in declared:
            call, snippet = partial(self._call, name), description.splitlines()[0]
            tool = Tool(name, description, parameters, call, label=label, snippet=snippet, safe_to_retry=safe)
            tools.append((tool, name in active if name in known else not hidden))
        self._port.toolbox.exchange(self.names, tools)
        self.names = names
        self._port.hub.publish(StateChanged())
        return names

    def serve(self, schemes: list[Any]) -> list[str]:
        """Replace the schemes of addresses that the client serves. Returns them. Raises `AgentError`."""
        if self._uris is None:
            from spindle.agent.host_uris import HostUris

            self._uris = HostUris(self._port, self._replies, self._timeout_ms)
        return self._uris.declare(schemes)

    def disconnect(self) -> None:
        """Fail every open call: the client is gone."""
        if self._uris is not None:
            self._uris.disconnect()
        for pending in self._pending.values():
            if not pending.done.done():
                pending.done.set_exception(ToolError(DISCONNECTED))

    # -- one call --------------------------------------------------------------------------------

    async def _call(self, name: str, call_id: str, arguments: Any, ctx: ToolContext) -> ToolResult:
        id = os.urandom(8).hex()
        done: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        self._pending[id] = _Pending(done, ctx.update)
        self._port.hub.publish(HostToolCall(id, call_id, name, arguments))
        try:
            async with asyncio.timeout(self._timeout_ms / 1000 if self._timeout_ms else None):
                return await done
        except asyncio.CancelledError:
            self._cancel(id)
            raise ToolError(f'Host tool "{name}" was aborted') from None
        except TimeoutError:
            self._cancel(id)
            raise ToolError(f'Host tool "{name}" timed out after {(self._timeout_ms or 0) / 1000:g}s') from None
        finally:
            self._pending.pop(id, None)

    def _cancel(self, id: str) -> None:
        self._port.hub.publish(HostToolCancel(os.urandom(8).hex(), id))

    # -- frames of the client --------------------------------------------------------------------

    def _take(self, key: str, frame: dict[str, Any]) -> bool:
        """Take a frame with progress or a result under `key`. A call whose result makes no sense fails.

        Returns whether it is one: a frame without the `id` of a call and without a result is none.
        """
        id, value = frame.get("id"), frame.get(key)
        pending = self._pending.get(id) if isinstance(id, str) else None
        content = value.get("content") if isinstance(value, dict) else None
        if pending is None or pending.done.done():
            return pending is not None or (isinstance(id, str) and isinstance(content, list))
        try:
            details = value.get("details") if isinstance(value, dict) else None
            result = ToolResult(msgspec.convert(content, list[Text | Image]), details)
        except msgspec.ValidationError as error:
            if key == "result":  # progress that cannot be shown is no reason to fail the call
                pending.done.set_exception(ToolError(f"Host tool returned an invalid result: {error}"))
            return True
        if key == "partialResult":
            pending.update(result)
        elif frame.get("isError") is True:
            text = text_of(result.content, "\n").strip()
            pending.done.set_exception(ToolError(text or "Host tool execution failed"))
        else:
            pending.done.set_result(result)
        return True


def _read(index: int, item: Any) -> tuple[str, str, str, dict[str, Any], bool, bool]:
    value = item if isinstance(item, dict) else {}
    name, description, parameters = value.get("name"), value.get("description"), value.get("parameters")
    if not isinstance(name, str) or not name.strip():
        raise AgentError(f"Host tool at index {index} must provide a non-empty name")
    name = name.strip()
    if not isinstance(description, str) or not description.strip():
        raise AgentError(f'Host tool "{name}" must provide a non-empty description')
    if not isinstance(parameters, dict):
        raise AgentError(f'Host tool "{name}" must provide a JSON Schema object')
    label = value.get("label")
    shown = label.strip() if isinstance(label, str) and label.strip() else name
    hidden, safe = value.get("hidden") is True, value.get("safeToRetry") is True
    return name, shown, description.strip(), parameters, hidden, safe
