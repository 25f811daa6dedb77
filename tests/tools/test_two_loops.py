"""Two agents of one process, each on an event loop of its own, write one file."""

import asyncio
import threading
from pathlib import Path

from .helpers import Run

WRITERS = 30


def test_writers_on_two_event_loops_take_turns(tmp_path: Path) -> None:
    """An `asyncio.Lock` would belong to the loop that waited for it first, and refuse the other."""
    contents = {letter: letter * 100_000 for letter in "ab"}
    ready = threading.Barrier(2)
    errors: list[BaseException] = []

    async def write(content: str) -> None:
        ready.wait(10)
        runs = [Run("write", tmp_path, {"path": "f", "content": content}) for _ in range(WRITERS)]
        await asyncio.sleep(0)  # now they wait
        runs[-1].task.cancel()
        errors.extend(
            error
            for error in await asyncio.gather(*(one.task for one in runs), return_exceptions=True)
            if isinstance(error, Exception)
        )

    threads = [threading.Thread(target=asyncio.run, args=[write(content)]) for content in contents.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert (tmp_path / "f").read_text() in contents.values()
