"""Commands that show the files around a session: what the agent may read, where its tools work."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from spindle.protocol.registry import Call, command
from spindle.shapes.folder import FilePart, FolderContent


@command("list_files")
async def list_files(call: Call, path: str = ".") -> FolderContent:
    """Return what is in a folder, as tools see it. What the agent may not read is marked; a folder that it may not read
    is refused."""
    from spindle.agent import folder

    return await folder.list_files(call.agent, path)


@command("read_file")
async def read_file(
    call: Call,
    path: str,
    line: Annotated[int, msgspec.Meta(ge=1)] = 1,
    byte: Annotated[int, msgspec.Meta(ge=0)] | None = None,
) -> FilePart:
    """Return a text from a line on, at most 1 MiB, or an image. With `byte`, the `nextByte` of an earlier answer, the
    next part. Refused if the agent may not read it."""
    from spindle.agent import folder

    return await folder.read_file(call.agent, path, line, byte)


@command("find_files", key="paths")
async def find_files(call: Call, paths: Sequence[str]) -> list[str]:
    """Return those of some paths, at most 200, that are files which the agent may read."""
    from spindle.agent import folder

    return await folder.find_files(call.agent, paths)
