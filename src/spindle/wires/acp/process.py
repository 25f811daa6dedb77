"""`spindle acp`: an editor on stdin and stdout, from its first request to the exit code."""

import asyncio

from spindle.base import limits, trace
from spindle.protocol.pool import AgentSource, PoolBounds, SessionPool
from spindle.wires.acp.editor import Editor
from spindle.wires.pipe.stdio import Exit, StdioWire


class EditorProcess:
    def __init__(self, wire: StdioWire, source: AgentSource, bounds: PoolBounds) -> None:
        self._wire = wire
        self._editor = Editor(source, SessionPool(source, bounds))
        self._exit = Exit()

    async def run(self) -> int:
        """Serve until stdin ends or a signal comes. Return the exit code."""
        with trace.span("connection", wire="acp"):
            return await self._serve()

    async def _serve(self) -> int:
        self._exit.catch_signals()
        self._wire.attach(self._editor.connection.outbox, self._exit.lost)
        reading = asyncio.create_task(self._read())
        reading.add_done_callback(lambda _: self._exit.end(0))
        code = await self._exit.code
        reading.cancel()
        await self._editor.end()
        if code != 1:
            await self._wire.drain(limits.OUTPUT_DRAIN if code == 0 else limits.OUTPUT_DRAIN_AFTER_SIGNAL)
        self._wire.close()
        return code

    async def _read(self) -> None:
        async for line in self._wire.lines():
            self._editor.connection.receive(line)
