"""Spindle: a coding agent without a face.

`Agent` is the agent in process; `spindle.client` drives one over RPC. Both are loaded when first used.
"""

import sys

# `python -m spindle` looks for modules in the working directory first, and that may be a stranger's. While this is
# imported `sys.argv` is `-m` and what follows the module's name.
if (
    sys.argv[:1] == ["-m"]
    and not sys.flags.safe_path
    and sys.orig_argv[-len(sys.argv)].rpartition("-m")[2].partition(".")[0] == "spindle"
):
    del sys.path[0]

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
