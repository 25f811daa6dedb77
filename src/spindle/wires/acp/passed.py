"""A session that another node has, for an editor on a WebSocket of this one.

Its requests go on to that node, and what the node tells or asks goes to the editor. Ids are those of each connection.
"""

from collections.abc import Callable
from typing import Any

from spindle.base.flow import Tasks
from spindle.base.limits import TASKS_END
from spindle.server.passage import Link
from spindle.wires.acp.json_rpc import RpcConnection


class PassedSession:
    def __init__(self, editor: RpcConnection, link: Link, on_end: Callable[["PassedSession"], None]) -> None:
        self._editor = editor
        self._link = link
        self._there = RpcConnection(self._from_there)
        self._there.outbox.on_waiting = self._send
        self._on_end = on_end
        self._tasks = Tasks()

    async def begin(self, hello: dict[str, Any]) -> None:
        """Begin as the editor did here. Raises `JsonRpcError`."""
        self._tasks.spawn(self._run(), "acp passed on")
        await self._there.request("initialize", hello)

    async def ask(self, method: str, params: dict[str, Any], id: Any) -> Any:
        """Pass on a request, or a notification, which has no id. Raises `JsonRpcError`."""
        if id is None:
            return self._there.notify(method, params)
        return await self._there.request(method, params)

    async def leave(self) -> None:
        await self._tasks.end(TASKS_END)

    def _send(self) -> None:
        self._link.send(self._there.outbox.take(1).rstrip(b"\n"))

    async def _run(self) -> None:
        try:
            self._there.fail(await self._link.run(self._hear))
        finally:
            self._on_end(self)
            await self._there.close()

    async def _hear(self, frame: bytes) -> None:
        self._there.receive(frame)
        await self._editor.outbox.room()

    async def _from_there(self, method: str, params: dict[str, Any], id: Any) -> Any:
        if id is None:
            return self._editor.notify(method, params)
        return await self._editor.request(method, params)
