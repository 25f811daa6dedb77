"""Callbacks that do not keep alive whom they call."""

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, ParamSpec, cast
from weakref import ref

P = ParamSpec("P")


def weakly(method: Callable[P, None]) -> Callable[P, None]:
    """Return a function that calls a method as long as its object is there. Afterwards it does nothing."""
    bound = cast(MethodType, method)
    return partial(_call, ref(bound.__self__), bound.__func__)


def _call(found: "ref[Any]", function: Callable[..., Any], *args: Any) -> None:
    if (owner := found()) is not None:
        function(owner, *args)
