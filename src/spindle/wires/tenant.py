"""What a server keeps for one of its users."""

from aiohttp import web

from spindle.protocol.pool import AgentSource, SessionPool
from spindle.server.account import Account
from spindle.server.nodes import Nodes
from spindle.server.passage import Passage
from spindle.wires.http.api import HttpApi
from spindle.wires.network.options import RemoteOptions


class Tenant:
    """A user of the server with all that is kept for the user; without users there is one, whose name is None."""

    def __init__(
        self, account: Account, source: AgentSource, pool: SessionPool, options: RemoteOptions, nodes: Nodes | None
    ) -> None:
        self.account = account
        self.source = source
        self.pool = pool
        self.api = HttpApi(pool, options, self.passage)
        self._nodes = nodes

    def passage(self, request: web.BaseRequest) -> Passage | None:
        """Return the way of a client to the sessions that other nodes have; None if there are no nodes."""
        store = self.source.store
        return None if self._nodes is None or store is None else Passage(self._nodes, store, request)
