"""Files as the editor has them, saved or not."""

import asyncio
from typing import Any

from spindle.base.limits import EDITOR_ANSWER
from spindle.tools.base import ToolError
from spindle.wires.acp.json_rpc import Connection, RpcError


class EditorFiles:
    """Files as the editor has them. A file that it refuses to read is not its business: the one on disk counts."""

    name = "the editor"

    def __init__(self, session: str, connection: Connection) -> None:
        self._session = session
        self._connection = connection

    async def read(self, path: str) -> str | None:
        try:
            answer = await self._ask("fs/read_text_file", path=path)
        except RpcError:
            return None
        text = answer.get("content") if isinstance(answer, dict) else None
        return text if isinstance(text, str) else None

    async def write(self, path: str, text: str) -> bool:
        try:
            await self._ask("fs/write_text_file", path=path, content=text)
        except RpcError as error:
            if await self.read(path) is None:
                return False
            raise ToolError(f"The editor did not write {path}: {error}") from None
        return True

    async def _ask(self, method: str, **params: Any) -> Any:
        try:
            async with asyncio.timeout(EDITOR_ANSWER):
                return await self._connection.request(method, {"sessionId": self._session, **params})
        except TimeoutError:
            text = f"The editor did not answer {method} for {params['path']} in {EDITOR_ANSWER:g} s"
            raise ToolError(f"{text}; the file on disk was not touched") from None
