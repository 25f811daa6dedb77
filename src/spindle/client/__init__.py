"""The Python client: drive an agent in another process over stdin and stdout.

`RpcClient` for asyncio, `SyncRpcClient` for everybody else. Both start any command line that speaks the RPC
protocol, of Spindle or of its neighbours.
"""

from .commands import image_file
from .errors import AgentCrashed, ClientClosed, CommandFailed, RequestTimeout, RpcError
from .events import Event, EventStream, Run
from .host_tools import Update
from .rpc import RpcClient
from .sync import SyncRpcClient

__all__ = [
    "AgentCrashed",
    "ClientClosed",
    "CommandFailed",
    "Event",
    "EventStream",
    "RequestTimeout",
    "RpcClient",
    "RpcError",
    "Run",
    "SyncRpcClient",
    "Update",
    "image_file",
]
