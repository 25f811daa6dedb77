"""Spindle: a coding agent without a face.

`Agent` is the agent in process; `spindle.client` drives one over RPC. Both are loaded when first used.
"""

from typing import TYPE_CHECKING, Any

from spindle.version import __version__

if TYPE_CHECKING:
    from spindle.agent import AgentError as AgentError
    from spindle.inprocess import Agent as Agent


__all__ = ["Agent", "AgentError", "__version__"]

_HOMES = {"Agent": "spindle.inprocess", "AgentError": "spindle.agent"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spindle' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
