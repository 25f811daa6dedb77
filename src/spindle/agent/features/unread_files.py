"""Refuses `write` over a file with content that this session has not seen: `"readBeforeWrite": true` in the settings.

A file counts as seen if a call of this conversation read or wrote it, or if a command that names it ran. An edit shows
nothing but the words that it replaces. The conversation is asked, so a resumed session and a fork know what theirs has
seen, and after a summary it is read again.
"""

import os
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from spindle.agent.conversation import Conversation
from spindle.agent.hooks import Blocked, Hooks
from spindle.resources.loader import Resources
from spindle.shapes.builtin_tools import kind_of
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import AssistantMessage, ToolCall, ToolResultMessage
from spindle.tools.base import Tool, ToolContext, ToolError, format_size
from spindle.tools.files import resolve_path
from spindle.workspace.disk import read_old

_LARGEST = 16 * 1024 * 1024
_SHOWN_LINES = 5
_SHOWN_WIDTH = 200


class UnreadPort(Protocol):
    """What the check needs of the engine."""

    conversation: Conversation
    resources: Resources
    may_read: Callable[[str], bool]

    def tool_context(self, update: Callable[[ToolResult], None]) -> ToolContext: ...


class UnreadFiles(Hooks):
    of_the_conversation = True

    def __init__(self, port: UnreadPort) -> None:
        self._port = port

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        if tool.name == "write":
            ctx = self._port.tool_context(lambda result: None)
            path = resolve_path(args["path"], ctx.cwd, ctx.workspace.home)
            if not any(self._shows(call, path, ctx) for call in self._good_calls()):
                await self._require_empty(path, args["path"], ctx)
        return args

    def _good_calls(self) -> Iterator[ToolCall]:
        """Yield the calls of the conversation that did not fail."""
        waiting: dict[str, ToolCall] = {}  # some servers give each answer's calls the same ids
        for message in self._port.conversation.messages:
            if isinstance(message, AssistantMessage):
                waiting = {block.id: block for block in message.content if isinstance(block, ToolCall)}
            elif isinstance(message, ToolResultMessage) and not message.is_error and message.tool_call_id in waiting:
                yield waiting[message.tool_call_id]

    def _shows(self, call: ToolCall, path: str, ctx: ToolContext) -> bool:
        if not isinstance(call.arguments, dict):
            return False
        if call.name == "bash":
            name = re.escape(os.path.basename(path))
            return re.search(rf"(?<![\w.-]){name}(?![\w-])", str(call.arguments.get("command"))) is not None
        named = call.arguments.get("path", call.arguments.get("file_path"))
        if (kind_of(call.name) != "read" and call.name != "write") or not isinstance(named, str):
            return False
        return resolve_path(named, ctx.cwd, ctx.workspace.home) == path

    async def _require_empty(self, path: str, shown: str, ctx: ToolContext) -> None:
        """Raises `Blocked` if there is a file with content, or one that cannot be read."""
        try:
            ctx.require(path)
            old = await ctx.workspace.do(read_old, path, _LARGEST) if self._port.may_read(path) else None
        except ToolError:
            return  # the tool itself says why it cannot be written, or it may be written and not seen
        if not old:
            return
        lines = old.decode("utf-8", "replace").splitlines()
        first = "\n".join(line[:_SHOWN_WIDTH] for line in lines[:_SHOWN_LINES])
        more = "\n…" if len(lines) > _SHOWN_LINES else ""
        raise Blocked(
            f"{shown} was not written: it exists ({format_size(len(old))}, {len(lines)} lines) and was not read in "
            f"this conversation. It begins:\n{first}{more}\n"
            "Change parts of it with edit, or read it first if all of it is to be replaced.",
            by=None,
        )
