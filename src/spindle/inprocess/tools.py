"""Functions of a program as tools: what they are given besides the model's arguments, and what they lack."""

import inspect
import logging
import threading
import warnings
from collections.abc import Callable
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from spindle.agent.session import AgentSession
from spindle.plugins.extensions.threads import is_async
from spindle.plugins.extensions.tools import make_tool
from spindle.tools.base import Tool

Deps = TypeVar("Deps")

log = logging.getLogger("spindle.tools")


class Context(Generic[Deps]):
    """What a tool is given besides the model's arguments, in a parameter of the type `Context[…]`; the model does not
    see that parameter."""

    def __init__(self, deps: Deps, agent: AgentSession) -> None:
        self.deps = deps
        """What the program gave `Agent.create(deps=…)`: the user, a database."""
        self.call_id = ""
        """The id of the call, as in the events of it."""
        self.session_id = agent.session.id
        """The session of the agent."""
        self.cwd = agent.cwd
        """The working directory of the agent."""
        self.cancelled = threading.Event()
        """Set when the call is given up. A coroutine is cancelled; a plain function, which runs in a thread, looks
        here."""
        self._update: Callable[[Any], None] = lambda progress: None

    def progress(self, result: Any) -> None:
        """Report the result so far, a text or any JSON value: listeners get `tool_execution_update`. From any
        thread."""
        self._update(result)


class Surroundings:
    """What the contexts of an agent's tools are made of. The agent is there only after its tools."""

    def __init__(self, deps: Any) -> None:
        self.deps = deps
        self.agent: AgentSession | None = None

    def context(self) -> Any:
        assert self.agent is not None
        return Context(self.deps, self.agent)

    def tool(self, function: Callable[..., Any]) -> Tool:
        """Make a tool of a function. Raises `TypeError` for one that cannot be a tool, or that wants other `deps`."""
        _check_kind(function)
        called = function.__name__
        hints = _hints(function)
        contexts = {name: found for name, kind in hints.items() if (found := _context_in(kind)) is not None}
        names = [*contexts]
        for found in contexts.values():
            for wanted in get_args(found):
                if isinstance(wanted, type) and not isinstance(self.deps, wanted):
                    raise TypeError(
                        f"Tool {called} wants Context[{wanted.__name__}]: give Agent.create(deps=…) one, "
                        f"not {self.deps!r}"
                    )
        _tell_lacks(called, function, hints)
        try:
            return make_tool(_with_context(function, names) if names else function, self.context, _log)
        except TypeError as error:
            text = str(error).replace("Give parameters= instead", "Use types that JSON has")
            raise TypeError(text.replace("; give parameters= instead", "")) from None


def _check_kind(function: Callable[..., Any]) -> None:
    """Raise `TypeError` for what can be called, but not as a tool."""
    if isinstance(function, type):
        raise TypeError(f"{function.__name__} is a class, and a tool must be a function: one of its methods, perhaps?")
    if not hasattr(function, "__name__"):
        raise TypeError(
            f"{function!r} has no name: write a function around it, whose name and docstring are the tool's"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"Tool {function.__name__} yields, and a tool must return: Context.progress reports parts")
    first = next(iter(inspect.signature(function).parameters), "")
    if first == "self" and "." in function.__qualname__:
        raise TypeError(
            f"Tool {function.__name__} is a method of no object: give that of one, as thing.{function.__name__}"
        )


def _context_in(kind: Any) -> Any:
    """Return the `Context[…]` that a type is, or that it is if it is not None."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return next((one for one in options if Context in (one, get_origin(one))), None)


def _log(name: str, error: Exception) -> None:
    """Note an error of a function, which the model reads without its traceback."""
    log.info("The tool %s failed", name, exc_info=error)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):  # `make_tool` says what is wrong
        return {}


def _tell_lacks(called: str, function: Callable[..., Any], hints: dict[str, Any]) -> None:
    """Warn of a function that the model is told too little about."""
    bare = [
        name
        for name, item in inspect.signature(function).parameters.items()
        if name not in hints and item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD, item.KEYWORD_ONLY)
    ]
    lacks = [] if inspect.getdoc(function) else ["a docstring, which tells the model what it does"]
    lacks += [f"a type of {', '.join(bare)}, so the model may give anything"] if bare else []
    if lacks and hints is not None:
        warnings.warn(f"Tool {called} lacks {' and '.join(lacks)}", UserWarning, stacklevel=2)


def _with_context(function: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    """Return the function with `ctx`, `update` and `call_id`, which every tool may have, in place of its contexts."""

    def filled(named: dict[str, Any], ctx: Any, update: Any, call_id: str) -> dict[str, Any]:
        ctx.call_id, ctx._update = call_id, update
        return {**named, **dict.fromkeys(names, ctx)}

    if is_async(function):

        async def call_async(*args: Any, ctx: Any, update: Any, call_id: str, **named: Any) -> Any:
            return await function(*args, **filled(named, ctx, update, call_id))

        call: Any = call_async
    else:

        def call_plain(*args: Any, ctx: Any, update: Any, call_id: str, **named: Any) -> Any:
            return function(*args, **filled(named, ctx, update, call_id))

        call = call_plain

    signature = inspect.signature(function)
    given = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("ctx", "update", "call_id")]
    own = [item for name, item in signature.parameters.items() if name not in (*names, "ctx", "update", "call_id")]
    rest = [item for item in own if item.kind is item.VAR_KEYWORD]
    shown = [*(item for item in own if item not in rest), *given, *rest]
    call.__signature__ = signature.replace(parameters=shown)
    hints = get_type_hints(function, include_extras=True)
    call.__annotations__ = {name: kind for name, kind in hints.items() if name not in names}
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    made: Callable[..., Any] = call
    return made
