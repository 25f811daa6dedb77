"""Servers and agents for the tests of this folder."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from spindle.plugins.mcp.server_config import Servers
from spindle.plugins.mcp.shared_server import Server

FAKE = str(Path(__file__).with_name("fake_server.py"))


def entry(*options: str, **more: Any) -> dict[str, Any]:
    """Return the configuration of the fake server."""
    return {"command": sys.executable, "args": ["-S", "-E", FAKE, *options], **more}


@asynccontextmanager
async def running(
    *options: str, cwd: str = "/", withheld: frozenset[str] = frozenset(), **more: Any
) -> AsyncIterator[Server]:
    """Give a server object for the fake server, and end it."""
    servers = Servers()
    servers.add({"fake": entry(*options, **more)}, "test")
    server = Server(servers.configs["fake"], cwd, lambda: withheld)
    try:
        yield server
    finally:
        await server.close()


def text_of(answer: dict[str, Any]) -> str:
    return "\n".join(block.get("text", "") for block in answer["content"])


def is_alive(pid: int) -> bool:
    if not os.path.isdir("/proc/self"):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def until(condition: Callable[[], bool], timeout: float = 10) -> None:
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)


def below(pid: int) -> list[int]:
    """Return the processes below one, by their parents."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(name))
    found, waiting = [], [pid]
    while waiting:
        more = children.get(waiting.pop(), [])
        found += more
        waiting += more
    return found
