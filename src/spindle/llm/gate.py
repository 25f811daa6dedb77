"""How many calls of one provider's models run at a time, in the whole process. The others wait for their turn."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from weakref import WeakKeyDictionary

from spindle.llm.stream import Chunk

most = 0
"""Set once, before the first call; 0: no limit."""
_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]] = WeakKeyDictionary()
"""Of each provider, for each event loop."""


def through(provider: str, stream: AsyncGenerator[Chunk, None]) -> AsyncGenerator[Chunk, None]:
    """Return the stream; its request is sent when it is its turn."""
    return _waiting(provider, stream) if most else stream


async def _waiting(provider: str, stream: AsyncGenerator[Chunk, None]) -> AsyncGenerator[Chunk, None]:
    gates = _gates.setdefault(asyncio.get_running_loop(), {})
    gate = gates.setdefault(provider, asyncio.Semaphore(most))
    async with gate, aclosing(stream):
        async for chunk in stream:
            yield chunk
