"""The Python clients: drive an agent in another process, or on another machine.

`RpcClient` (asyncio) and `SyncRpcClient` speak the RPC protocol, with a command line on stdin and stdout (of Spindle or
of a compatible agent) or with `spindle serve` over WebSocket. `RemoteClient` speaks the smaller remote protocol.
"""

from typing import TYPE_CHECKING, Any

from spindle.client.callbacks import Event, Update
from spindle.client.errors import (
    AgentCrashed,
    ClientClosed,
    CommandFailed,
    ConnectionFailed,
    ConnectionLost,
    RequestFailed,
    RequestTimeout,
    RpcError,
)
from spindle.client.handle import EventStream, Run, RunEvents
from spindle.client.methods import image_file
from spindle.client.rpc import RpcClient, RpcSession
from spindle.client.sync import SyncRpcClient, SyncRpcSession, SyncRunEvents

if TYPE_CHECKING:
    from spindle.client.agent_cli import (
        Answer,
        Completion,
        RemoteClient,
        TextPiece,
        TokenUsage,
        ToolCallPiece,
        ToolConfirmation,
        ToolFailure,
        ToolResultPiece,
        TurnConfirmation,
        file_input,
        image_input,
    )

__all__ = [
    "AgentCrashed",
    "Answer",
    "ClientClosed",
    "CommandFailed",
    "Completion",
    "ConnectionFailed",
    "ConnectionLost",
    "Event",
    "EventStream",
    "RemoteClient",
    "RequestFailed",
    "RequestTimeout",
    "RpcClient",
    "RpcError",
    "RpcSession",
    "Run",
    "RunEvents",
    "SyncRpcClient",
    "SyncRpcSession",
    "SyncRunEvents",
    "TextPiece",
    "TokenUsage",
    "ToolCallPiece",
    "ToolConfirmation",
    "ToolFailure",
    "ToolResultPiece",
    "TurnConfirmation",
    "Update",
    "file_input",
    "image_file",
    "image_input",
]


def __getattr__(name: str) -> Any:
    """Load the client of agent-cli's protocol when it is first used: most programs do not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spindle.client import agent_cli

    return getattr(agent_cli, name)
