"""Callbacks that do not keep alive whom they call."""

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, ParamSpec, TypeVar, cast
from weakref import ref

P = ParamSpec("P")
T = TypeVar("T")


def weakly(method: Callable[P, T]) -> Callable[P, T | None]:
    """Return a function that calls a method as long as its object is there. Afterwards it does nothing."""
    bound = cast(MethodType, method)
    return partial(_call, ref(bound.__self__), bound.__func__)


def _call(found: "ref[Any]", function: Callable[..., Any], *args: Any) -> Any:
    return None if (owner := found()) is None else function(owner, *args)
