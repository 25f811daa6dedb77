"""What an agent lends to a subagent: its permissions and extensions, its limits, and its listeners.

A subagent is an agent like any other, with a session of its own. The agent that it works for decides about its tool
calls, pays for its model calls, and tells its clients of its events.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from spindle.agent.engine import Engine
from spindle.agent.hooks import Hooks
from spindle.agent.run.options import RunOptions
from spindle.shapes.events import Event, MessageUpdate, SubagentEvent, ToolResult
from spindle.shapes.messages import AgentMessage
from spindle.shapes.model import Model
from spindle.tools.base import Tool


class _Borrowed(Hooks):
    """The hooks of the lender, as far as they are about a single tool call or request."""

    def __init__(self, lender: Hooks, permissions: Hooks, borrower: Engine) -> None:
        self._lender = lender
        self._permissions = permissions
        self._borrower = borrower

    async def context(self, messages: list[AgentMessage], system_prompt: str) -> tuple[list[AgentMessage], str]:
        return await self._permissions.context(messages, system_prompt)  # extensions know only their own conversation

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        chain = self._borrower.chain
        if chain is not None and chain.structured is not None and tool is chain.structured.tool:
            return args  # the call hands in the subagent's result
        return await self._lender.tool_call(call_id, tool, args)

    async def tool_result(
        self, call_id: str, tool: Tool, args: Any, result: ToolResult, failed: bool
    ) -> tuple[ToolResult, bool]:
        return await self._lender.tool_result(call_id, tool, args, result, failed)

    def model_call(self, model: Model) -> None:
        self._lender.model_call(model)

    async def before_provider_request(self, payload: Any) -> Any:
        return await self._lender.before_provider_request(payload)

    async def before_provider_headers(self, headers: dict[str, str]) -> None:
        await self._lender.before_provider_headers(headers)

    async def after_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
        await self._lender.after_provider_response(status, headers)


class _Relay:
    """A listener of the subagent that tells the listeners of the lender. The subagent pauses for slow ones."""

    def __init__(self, lender: Engine, call_id: str, name: str) -> None:
        self._lender = lender
        self._call_id = call_id
        self._name = name

    def put(self, event: Event) -> None:
        if isinstance(event, MessageUpdate):  # without the answer so far, which would have to be written every time
            event = MessageUpdate(event.assistant_message_event, UNSET)
        self._lender.publish(SubagentEvent(self._call_id, self._name, event))

    @property
    def full(self) -> bool:
        return self._lender.hub.congested

    async def room(self) -> None:
        await self._lender.hub.room()


def lend(parent: tuple[Engine, Hooks], child: tuple[Engine, Hooks], call_id: str, name: str) -> RunOptions:
    """Let a subagent work for the current run of its parent, which the tool call is part of.

    Each has its engine and its permissions; those of the subagent do not count. Returns options for its run.
    """
    lender, permissions = parent
    borrower, own_permissions = child
    assert lender.chain is not None
    borrower.hooks.replace(own_permissions, _Borrowed(lender.hooks, permissions, borrower.port))
    borrower.may_read, borrower.files, borrower.sandbox = lender.may_read, lender.files, lender.sandbox
    borrower.hub.add(_Relay(lender.port, call_id, name))
    meter = lender.chain.meter
    return RunOptions(limits=meter.limits, lender=meter)
