"""The function of a program that answers questions about tool calls: which form it has, and what it may return."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from msgspec import ValidationError, convert, structs

from spindle.agent import AgentError
from spindle.shapes.approvals import Allow, Answer, Deny, PermissionRequest

CanUseTool: TypeAlias = Callable[..., Any]
"""Takes a `PermissionRequest`; in the older form the name of a tool and its arguments. Plain or async.

Returns `Allow(…)`, `Deny(…)`, True, False, or a text: a no with its reason."""


def called(function: CanUseTool) -> Callable[[PermissionRequest], Awaitable[Answer]]:
    """Return the function in one form. Raises `AgentError` if it takes neither a request nor a name and arguments."""
    is_new = takes(function, 1)
    if not is_new and not takes(function, 2):
        raise AgentError(
            "can_use_tool must take one argument, a PermissionRequest, or two: the name of a tool and its arguments"
        )

    async def answer(request: PermissionRequest) -> Answer:
        given = function(request) if is_new else function(request.tool_name, request.arguments)
        if inspect.isawaitable(given):
            given = await given
        match given:
            case Allow() | Deny():
                return _checked(given)
            case bool():
                return Allow() if given else Deny()
            case str() if given.strip():
                return Deny(given)
        raise TypeError(f"can_use_tool returned {given!r}: it must return Allow, Deny, True, False or a reason")

    return answer


def _checked(given: Answer) -> Answer:
    """Return a copy of an answer whose fields have their types. Raises `TypeError`."""
    try:
        fields = structs.asdict(given)
        return convert(fields, Allow) if isinstance(given, Allow) else convert(fields, Deny)
    except ValidationError as error:
        raise TypeError(f"can_use_tool returned {given!r}: {error}") from None


def takes(function: Callable[..., Any], count: int) -> bool:
    """Say whether a function can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):  # a builtin function has no signature
        return False
    return True
