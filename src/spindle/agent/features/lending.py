"""What an agent lends to a subagent: its hooks and those of the request, its limits, its fence, and its listeners.

A subagent is an agent like any other, with a session of its own. Its run is a chain inside of the chain that it works
for: whoever decides about calls there, or counts them, does so for the calls of the subagent, too.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from spindle.agent.engine import Engine
from spindle.agent.hooks import SUBAGENT, Hooks
from spindle.agent.run.options import RunOptions
from spindle.shapes.events import Event, MessageUpdate, SubagentEvent, ToolResult
from spindle.shapes.messages import AgentMessage, Usage
from spindle.shapes.model import Model
from spindle.tools.base import Tool


class _Borrowed(Hooks):
    """The hooks of a chain, as far as they are about a single tool call or request."""

    def __init__(self, lent: Hooks, permissions: Hooks, borrower: Engine, name: str) -> None:
        self._name = name
        """Of the subagent's definition."""
        self._lent = lent
        self._permissions = permissions
        self._borrower = borrower

    async def context(self, messages: list[AgentMessage], system_prompt: str) -> tuple[list[AgentMessage], str]:
        return await self._permissions.context(messages, system_prompt)  # extensions know only their own conversation

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        chain = self._borrower.chain
        if chain is not None and chain.structured is not None and tool is chain.structured.tool:
            return args  # the call hands in the subagent's result
        before = SUBAGENT.set(self._name)
        try:
            return await self._lent.tool_call(call_id, tool, args)
        finally:
            SUBAGENT.reset(before)

    def was_changed(self, call_id: str) -> bool:
        return self._lent.was_changed(call_id)

    async def tool_result(
        self, call_id: str, tool: Tool, args: Any, result: ToolResult, failed: bool
    ) -> tuple[ToolResult, bool]:
        return await self._lent.tool_result(call_id, tool, args, result, failed)

    def model_call(self, model: Model) -> None:
        self._lent.model_call(model)

    def spent(self, usage: Usage) -> None:
        self._lent.spent(usage)

    @property
    def wants_payload(self) -> bool:
        return self._lent.wants_payload

    async def before_provider_request(self, payload: Any) -> Any:
        return await self._lent.before_provider_request(payload)

    async def before_provider_headers(self, headers: dict[str, str]) -> None:
        await self._lent.before_provider_headers(headers)

    async def after_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
        await self._lent.after_provider_response(status, headers)


class _Relay:
    """A listener of the subagent that tells the listeners of the lender. The subagent pauses for slow ones."""

    def __init__(self, lender: Engine, call_id: str, name: str, id: str) -> None:
        self._id = id
        self._lender = lender
        self._call_id = call_id
        self._name = name

    def put(self, event: Event) -> None:
        if isinstance(event, MessageUpdate):  # without the answer so far, which would have to be written every time
            event = MessageUpdate(event.assistant_message_event, UNSET)
        self._lender.hub.publish(SubagentEvent(self._call_id, self._name, self._id, event))

    @property
    def full(self) -> bool:
        return self._lender.hub.congested

    async def room(self) -> None:
        await self._lender.hub.room()


def lend(lender: Engine, permissions: Hooks, borrower: Engine, call_id: str, name: str) -> RunOptions:
    """Let a subagent work for the current chain of the lender, which the tool call is part of.

    `permissions` are the lender's. Returns options for the run of the subagent.
    """
    chain = lender.chain
    assert chain is not None
    of_request = chain.options.hooks
    lent = lender.hooks.lent()
    if of_request is not None:
        lent.add(of_request.within())
    borrower.hooks.work_for(_Borrowed(lent, permissions, borrower.port, name))
    borrower.may_read, borrower.files, borrower.sandbox = lender.may_read, lender.files, lender.sandbox
    borrower.hub.add(_Relay(lender.port, call_id, name, borrower.conversation.session.id))
    return RunOptions(limits=chain.meter.limits, inside=chain, fallback=chain.options.fallback)
