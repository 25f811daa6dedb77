"""Addresses that the client serves: the tools `read` and `write` take `db://users/1`, and the client does the work."""

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from spindle.agent import AgentError
from spindle.agent.host_tools import DISCONNECTED, HostToolPort, Replies
from spindle.shapes.client_requests import HostUriCancel, HostUriRequest
from spindle.shapes.events import ToolResult
from spindle.tools.base import Tool, ToolContext, ToolError, text_result
from spindle.tools.truncate import truncate_head

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+")
_RESERVED = frozenset({"file", "http", "https", "data", "mcp", "skill"})
"""Addresses that mean something already, here or to models."""


class HostUris:
    def __init__(self, port: HostToolPort, replies: Replies, timeout_ms: int | None) -> None:
        self._port = port
        self._timeout_ms = timeout_ms
        self._writable: dict[str, bool] = {}
        """Whether addresses of a scheme may be written to, by scheme."""
        self._plain: dict[str, Tool] = {}
        """The tools as they are without the client's addresses."""
        self._pending: dict[str, asyncio.Future[dict[str, Any]]] = {}
        replies.register("host_uri_result", self._take)

    def declare(self, items: list[Any]) -> list[str]:
        """Replace the client's schemes, from the next model call on. Raises `AgentError`, changing nothing."""
        self._writable = dict(_read(item) for item in items)
        for name in ("read", "write"):
            if (plain := self._plain.get(name) or self._port.toolbox.builtin(name)) is not None:
                self._plain[name] = plain
                served = [scheme for scheme, writable in self._writable.items() if name == "read" or writable]
                self._port.toolbox.put(self._serving(plain, served) if served else plain)
        return list(self._writable)

    def disconnect(self) -> None:
        """Fail every open request: the client is gone."""
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(ToolError(DISCONNECTED))

    def _serving(self, tool: Tool, schemes: list[str]) -> Tool:
        """Return the tool for paths and for the client's addresses."""

        async def execute(call_id: str, args: Any, ctx: ToolContext) -> ToolResult:
            path = args.get("path") if isinstance(args, dict) else None
            if not isinstance(path, str) or path.partition("://")[0].lower() not in schemes or "://" not in path:
                return await tool.execute(call_id, args, ctx)
            return await self._carry_out("write" if tool.name == "write" else "read", path, args)

        also = f" Also for {', '.join(f'{scheme}://' for scheme in schemes)} addresses, given as the path."
        beside: Mapping[str, Tool] = {key: self._serving(form, schemes) for key, form in tool.beside.items()}
        return msgspec.structs.replace(tool, execute=execute, description=tool.description + also, beside=beside)

    async def _carry_out(self, operation: Literal["read", "write"], url: str, args: dict[str, Any]) -> ToolResult:
        id = os.urandom(8).hex()
        answered = self._pending[id] = asyncio.get_running_loop().create_future()
        content = args["content"] if operation == "write" else None
        self._port.hub.publish(HostUriRequest(id=id, operation=operation, url=url, content=content))
        try:
            async with asyncio.timeout(self._timeout_ms / 1000 if self._timeout_ms else None):
                result = await answered
        except asyncio.CancelledError:
            self._cancel(id)
            raise ToolError(f"The {operation} of {url} was aborted") from None
        except TimeoutError:
            self._cancel(id)
            raise ToolError(f"The {operation} of {url} timed out") from None
        finally:
            del self._pending[id]
        given = result.get("content")
        said = given if isinstance(given, str) else ""
        if result.get("isError") is True:
            why = result.get("error")
            raise ToolError(why if isinstance(why, str) and why else said or f"The {operation} of {url} failed")
        if operation == "write":
            return text_result(f"Wrote {len(content or '')} characters to {url}")
        shown = truncate_head(_stretch(said, args.get("offset"), args.get("limit")))
        notes = [note for note in result.get("notes") or () if isinstance(note, str)]
        more = [f"[{shown.output_lines} of {shown.total_lines} lines are shown]"] if shown.truncated else []
        return text_result("\n\n".join([shown.content, *more, *notes]))

    def _cancel(self, id: str) -> None:
        self._port.hub.publish(HostUriCancel(os.urandom(8).hex(), id))

    def _take(self, frame: dict[str, Any]) -> bool:
        id = frame.get("id")
        waiting = self._pending.get(id) if isinstance(id, str) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(frame)
        return True


def _stretch(text: str, offset: Any, limit: Any) -> str:
    """Return the lines that a call asks for."""
    start = max(0, int(offset or 1) - 1)
    lines = text.splitlines(keepends=True)[start:]
    return "".join(lines if limit is None else lines[: max(0, int(limit))])


def _read(item: Any) -> tuple[str, bool]:
    """Return a scheme and whether it may be written to. Raises `AgentError`."""
    given = item.get("scheme") if isinstance(item, dict) else None
    scheme = given.strip().lower() if isinstance(given, str) else ""
    if not _SCHEME.fullmatch(scheme):
        raise AgentError(f"A scheme is two or more letters, digits and +.-, such as db, not {given!r}")
    if scheme in _RESERVED:
        raise AgentError(f"The scheme {scheme}:// means something already")
    return scheme, item.get("writable") is True
