"""The Python clients: drive an agent in another process, or on another machine.

`RpcClient` (asyncio) and `SyncRpcClient` start any command line that speaks the RPC protocol on stdin and stdout, of
Spindle or of its neighbours. `RemoteClient` connects to a server that speaks the remote protocol over WebSocket.
"""

from typing import TYPE_CHECKING, Any

from spindle.client.commands import image_file
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
from spindle.client.events import Event, EventStream, Run
from spindle.client.host_tools import Update
from spindle.client.rpc import RpcClient
from spindle.client.sync import SyncRpcClient

if TYPE_CHECKING:
    from spindle.client.remote import RemoteClient
    from spindle.client.remote_pieces import (
        Answer,
        Completion,
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
    "Run",
    "SyncRpcClient",
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
    """Load the remote client when somebody asks for it: who drives a process need not pay for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spindle.client import remote, remote_pieces

    return remote.RemoteClient if name == "RemoteClient" else getattr(remote_pieces, name)
