"""Callbacks that do not keep alive whom they call."""

from collections.abc import Callable
from typing import ParamSpec
from weakref import WeakMethod

P = ParamSpec("P")


def weakly(method: Callable[P, None]) -> Callable[P, None]:
    """Return a function that calls a method as long as its object is there. Afterwards it does nothing."""
    found = WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        if (bound := found()) is not None:
            bound(*args, **kwargs)

    return call
