"""The files around a session, for a person who looks at them beside the talk: what the agent may read, and no more.

Nothing here is part of a run. Files are read where tools work: on this machine, or at a far side.
"""

import asyncio
import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from spindle.agent import AgentError
from spindle.shapes.folder import FilePart, FolderContent, FolderEntry
from spindle.tools.base import ToolError
from spindle.tools.files import resolve_path
from spindle.workspace.viewing import look_into, read_piece, regular_files

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession

MOST_ENTRIES: Final = 2000
LARGEST_PART: Final = 1 << 20
LARGEST_IMAGE: Final = 8 << 20
MOST_PATHS: Final = 200
_AT_ONCE: Final = 25
"""Paths that rules and sandbox are tried on before others have their turn: each takes up to a millisecond."""


async def list_files(agent: "AgentSession", path: str) -> FolderContent:
    """Return what is in a folder. Raises `AgentError`."""
    workspace = agent.tool_context(lambda _: None).workspace
    try:
        [place], [real] = await _places(agent, [path])
        await _require(agent, place, real)
        items, total = await workspace.do(look_into, real, MOST_ENTRIES)
        names = [f"{real.rstrip('/')}/{item.name}" for item in items]
        closed = await _closed(agent, names)
    except (ToolError, OSError) as error:
        raise AgentError(str(error)) from None
    entries = [
        FolderEntry(
            name=item.name,
            kind=item.kind,
            size=item.size if item.kind == "file" and name not in closed else None,
            link=item.link,
            is_closed=name in closed,
        )
        for item, name in zip(items, names, strict=True)
    ]
    return FolderContent(real, entries, total)


async def read_file(agent: "AgentSession", path: str, line: int, byte: int | None) -> FilePart:
    """Return a part of a file, from a line on or from a byte on. Raises `AgentError`."""
    workspace = agent.tool_context(lambda _: None).workspace
    try:
        [place], [real] = await _places(agent, [path])
        await _require(agent, place, real)
        piece = await workspace.do(read_piece, real, line, byte, LARGEST_PART, LARGEST_IMAGE)
    except (ToolError, OSError) as error:
        raise AgentError(str(error)) from None
    if piece.mime_type is not None:
        data = base64.b64encode(piece.data).decode() if piece.data else None
        kind = "image" if piece.mime_type else "binary"
        return FilePart(path=real, kind=kind, size=piece.size, mime_type=piece.mime_type or None, data=data)
    end = piece.begin + len(piece.data)
    return FilePart(
        path=real,
        kind="text",
        size=piece.size,
        text=piece.data.decode("utf-8", "replace"),
        byte=piece.begin,
        line=piece.line if byte is None else None,
        next_byte=end if end < piece.size and piece.data else None,
    )


async def find_files(agent: "AgentSession", paths: Sequence[str]) -> list[str]:
    """Return those of some paths that lead to files which the agent may read. Raises `AgentError`."""
    workspace = agent.tool_context(lambda _: None).workspace
    try:
        places, real = await _places(agent, paths[:MOST_PATHS])
        exist = await workspace.do(regular_files, real)
        found = [one for one in zip(paths, places, real, exist, strict=False) if one[3]]
        closed = await _closed(agent, [place for _, place, _, _ in found])
    except (ToolError, OSError) as error:
        raise AgentError(str(error)) from None
    return [path for path, place, _, _ in found if place not in closed]


async def _places(agent: "AgentSession", paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return absolute paths, and where they lead by whatever links. Raises `ToolError`."""
    workspace = agent.tool_context(lambda _: None).workspace
    places = [resolve_path(path, agent.workdir, workspace.home) for path in paths]
    return places, await workspace.real_paths(places)


async def _require(agent: "AgentSession", place: str, real: str) -> None:
    """Raise `AgentError` or `ToolError` if the agent may not read there."""
    if agent.resources.far is None:
        agent.check_place(real)
    agent.tool_context(lambda _: None).require(place)
    if await agent.approval.unreadable([place]):
        raise AgentError(f"The permission rules do not let the agent read {place}")


async def _closed(agent: "AgentSession", places: Sequence[str]) -> set[str]:
    """Return the paths that the agent may not read. Raises `ToolError`."""
    ctx, is_far, closed = agent.tool_context(lambda _: None), agent.resources.far is not None, set[str]()
    step = MOST_ENTRIES if is_far else _AT_ONCE  # a far side is asked about many with one question
    for start in range(0, len(places), step):
        part = places[start : start + step]
        for place in part:
            try:
                ctx.require(place)
                if not is_far:
                    agent.check_place(place)
            except (AgentError, ToolError):
                closed.add(place)
        closed |= await agent.approval.unreadable([place for place in part if place not in closed])
        await asyncio.sleep(0)
    return closed
