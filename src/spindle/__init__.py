"""Spindle: a coding agent without a face.

`Agent` is the agent in process; `ask`, `ask_sync` and `run` make one for a single prompt. `spindle.client` drives one
over RPC. Each name is loaded when it is first used.
"""

import sys

# `python -m spindle` looks for modules in the working directory first, and a stranger may have put some there. During
# this import `sys.argv` is `-m` and the words behind the module's name.
if (
    sys.argv[:1] == ["-m"]
    and not sys.flags.safe_path
    and sys.orig_argv[-len(sys.argv)].rpartition("-m")[2].partition(".")[0] == "spindle"
):
    del sys.path[0]

from typing import TYPE_CHECKING, Any

from spindle.base.version import __version__

if TYPE_CHECKING:
    from spindle.agent import AgentError as AgentError
    from spindle.agent.run.awaited import AgentRun as AgentRun
    from spindle.agent.run.result import LimitReached as LimitReached
    from spindle.agent.run.result import ModelError as ModelError
    from spindle.agent.run.result import Refused as Refused
    from spindle.agent.run.result import RunFailed as RunFailed
    from spindle.agent.run.result import SchemaNotMet as SchemaNotMet
    from spindle.inprocess import Agent as Agent
    from spindle.inprocess import ask as ask
    from spindle.inprocess import run as run
    from spindle.inprocess.budget import Budget as Budget
    from spindle.inprocess.declared import Hook as Hook
    from spindle.inprocess.declared import Subagent as Subagent
    from spindle.inprocess.sync import SyncAgent as SyncAgent
    from spindle.inprocess.sync import ask_sync as ask_sync
    from spindle.inprocess.tools import Context as Context
    from spindle.sessions import InvalidSession as InvalidSession
    from spindle.sessions import SessionError as SessionError
    from spindle.sessions import SessionLocked as SessionLocked
    from spindle.sessions import SessionNotFound as SessionNotFound
    from spindle.shapes.approvals import Allow as Allow
    from spindle.shapes.approvals import Deny as Deny
    from spindle.shapes.approvals import PermissionRequest as PermissionRequest
    from spindle.shapes.model import Model as Model
    from spindle.shapes.model import ModelCost as ModelCost
    from spindle.shapes.run_result import RunResult as RunResult


_HOMES = {
    "Agent": "spindle.inprocess",
    "Allow": "spindle.shapes.approvals",
    "Deny": "spindle.shapes.approvals",
    "PermissionRequest": "spindle.shapes.approvals",
    "AgentRun": "spindle.agent.run.awaited",
    "AgentError": "spindle.agent",
    "LimitReached": "spindle.agent.run.result",
    "Model": "spindle.shapes.model",
    "ModelCost": "spindle.shapes.model",
    "ModelError": "spindle.agent.run.result",
    "Refused": "spindle.agent.run.result",
    "RunFailed": "spindle.agent.run.result",
    "RunResult": "spindle.shapes.run_result",
    "SchemaNotMet": "spindle.agent.run.result",
    "InvalidSession": "spindle.sessions",
    "SessionError": "spindle.sessions",
    "SessionLocked": "spindle.sessions",
    "SessionNotFound": "spindle.sessions",
    "SyncAgent": "spindle.inprocess.sync",
    "Budget": "spindle.inprocess.budget",
    "Context": "spindle.inprocess.tools",
    "Hook": "spindle.inprocess.declared",
    "Subagent": "spindle.inprocess.declared",
    "ask": "spindle.inprocess",
    "ask_sync": "spindle.inprocess.sync",
    "run": "spindle.inprocess",
}

__all__ = [
    "Agent",
    "AgentError",
    "AgentRun",
    "Allow",
    "Budget",
    "Context",
    "Deny",
    "Hook",
    "InvalidSession",
    "LimitReached",
    "Model",
    "ModelCost",
    "ModelError",
    "PermissionRequest",
    "Refused",
    "RunFailed",
    "RunResult",
    "SchemaNotMet",
    "SessionError",
    "SessionLocked",
    "SessionNotFound",
    "Subagent",
    "SyncAgent",
    "__version__",
    "ask",
    "ask_sync",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spindle' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
