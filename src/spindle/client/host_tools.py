"""Tools that run in the program that drives the agent: plain functions, declared by their signatures."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeAlias, get_type_hints

import msgspec

from spindle.shapes import codec

__all__ = ["HostTool", "HostTools", "Update"]

Post: TypeAlias = Callable[[dict[str, Any]], None]

log = logging.getLogger(__name__)


class Update:
    """Reports progress of a call. A parameter of this type is filled in by the client and not shown to the model."""

    def __init__(self, report: Callable[[dict[str, Any]], None]) -> None:
        self._report = report
        self.cancelled = False
        """Whether the agent gave the call up. A coroutine is cancelled then; a plain function has to look here."""

    def __call__(self, progress: Any) -> None:
        """Show `progress`: the whole result so far, in any form that a tool may return. Works from any thread."""
        self._report(_result(progress))


class HostTool:
    """A function and what the model is told of it.

    Parameters become the schema: their annotations are checked, `Annotated[…, msgspec.Meta(description=…)]` adds
    what the model should know. The docstring is the description.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None, description: str | None = None) -> None:
        self.function = function
        self.name = name or function.__name__
        self.description = description or inspect.getdoc(function) or ""
        hints = get_type_hints(function, include_extras=True)
        fields: list[Any] = []
        self._update: str | None = None
        for parameter in inspect.signature(function).parameters.values():
            kind = hints.get(parameter.name, Any)
            if kind is Update:
                self._update = parameter.name
            elif parameter.default is parameter.empty:
                fields.append((parameter.name, kind))
            else:
                fields.append((parameter.name, kind, parameter.default))
        self._arguments = msgspec.defstruct(self.name, fields, kw_only=True, forbid_unknown_fields=True)

    def definition(self) -> dict[str, Any]:
        """Return the form that `set_host_tools` takes."""
        (schema,), parts = msgspec.json.schema_components([self._arguments], ref_template="#/$defs/{name}")
        parameters = parts.pop(schema["$ref"].rpartition("/")[2])
        parameters.pop("title", None)
        if parts:
            parameters["$defs"] = parts
        return {"name": self.name, "description": self.description, "parameters": parameters}

    async def run(self, arguments: Any, update: Update) -> dict[str, Any]:
        """Check the arguments, call the function, return its result. A plain function runs in a thread."""
        checked = msgspec.convert(arguments, self._arguments)
        values = {name: getattr(checked, name) for name in checked.__struct_fields__}
        if self._update is not None:
            values[self._update] = update
        if inspect.iscoroutinefunction(self.function):
            return _result(await self.function(**values))
        return _result(await asyncio.to_thread(self.function, **values))


class HostTools:
    """The tools of one client, and their calls that are under way."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._tools: dict[str, HostTool] = {}
        self._calls: dict[str, asyncio.Task[None]] = {}
        """By the id of the `host_tool_call`."""

    def add(self, tool: HostTool) -> None:
        self._tools[tool.name] = tool

    def all(self) -> list[HostTool]:
        return list(self._tools.values())

    def receive(self, frame: dict[str, Any]) -> None:
        """Take a `host_tool_call` or `host_tool_cancel`. Calls of tools added by hand are left to whoever did so."""
        if frame["type"] == "host_tool_cancel":
            call = self._calls.get(str(frame.get("targetId")))
            if call is not None:
                call.cancel()
        elif tool := self._tools.get(str(frame.get("toolName"))):
            id = str(frame.get("id"))
            self._calls[id] = task = asyncio.create_task(self._call(id, tool, frame.get("arguments", {})))
            task.add_done_callback(lambda _: self._calls.pop(id, None))

    async def close(self) -> None:
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _call(self, id: str, tool: HostTool, arguments: Any) -> None:
        update = Update(lambda partial: self._post({"type": "host_tool_update", "id": id, "partialResult": partial}))
        try:
            result = await tool.run(arguments, update)
            self._post({"type": "host_tool_result", "id": id, "result": result})
        except (Exception, asyncio.CancelledError) as error:  # whatever a tool raises is for the model to read
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the agent does not wait for an answer any more
                update.cancelled = True
                raise
            log.debug("host tool %s failed", tool.name, exc_info=True)
            failure = _result(str(error) or type(error).__name__)
            self._post({"type": "host_tool_result", "id": id, "result": failure, "isError": True})


def _result(value: Any) -> dict[str, Any]:
    """Put what a function returned into the form of a tool result."""
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return value
    text = "done" if value is None else value if isinstance(value, str) else codec.encode(value).decode()
    return {"content": [{"type": "text", "text": text}]}
