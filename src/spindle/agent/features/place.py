"""The far side that the tools of a session work at: which command leads there, and what is read there at the start.

A session notes the command and the working directory in a custom entry, so that it goes on there later. A session file
may come from anywhere, and the command runs a program here: so a command that only a session names must have been used
by this user before.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import ValidationError

from spindle.agent import AgentError
from spindle.base.agent_dir import agent_dir
from spindle.base.user_files import BadFile, edit_json, read_object
from spindle.programs.children import environment
from spindle.resources.loader import PROJECT_FOLDERS, Resources
from spindle.resources.prompt import CONTEXT_NAMES
from spindle.sessions.facts import Fact, facts, keep
from spindle.sessions.session import Session
from spindle.shapes.messages import Wire
from spindle.workspace.disk import ToolError, project_files
from spindle.workspace.settings import ToolSettings

if TYPE_CHECKING:  # the pipe is loaded only if there is a far side
    from spindle.agent.session import AgentSession
    from spindle.workspace.pipe import Pipe

_MOST_FILES: Final = 500
_MOST_BYTES: Final = 4 << 20
"""Of the project's texts that are read at the far side."""
_MOST_KNOWN: Final = 200


class FarPlace(Fact):
    """A command that gives a pipe, and the working directory at its other end."""

    entry_type: ClassVar[str] = "spindle.exec"
    command: str
    cwd: str | None = None
    """None: where the command leads by itself."""


class UnknownPlace(AgentError):
    """A session names a command that was never used here."""

    def __init__(self, command: str) -> None:
        super().__init__(
            f"This session worked at the far side of `{command}`, which was never used here. If you want to run that "
            f"command, give it with --exec; --exec '' goes on with the session on this machine"
        )
        self.command = command

    @property
    def title(self) -> str:
        """The question whether to run it."""
        return "Run the command that leads to where this session worked?"

    @property
    def text(self) -> str:
        return f"{self.command}\nIt was never used here, and a session file may come from anybody."


def place_of(session: Session) -> FarPlace | None:
    """Return the far side that a session notes; None: it works here.

    Raises `AgentError` if that cannot be read: commands that were meant for another machine must not run on this one.
    """
    entry = next((entry for entry in reversed(session.entries) if FarPlace.is_in(entry)), None)
    try:
        return None if entry is None else FarPlace.of(entry)
    except ValidationError as error:
        raise AgentError(
            f"This session worked elsewhere, but its note of where is damaged ({error}). Give the command with --exec; "
            f"--exec '' goes on with the session on this machine"
        ) from None


def wanted_place(session: Session, given: FarPlace | None, resources: Resources) -> FarPlace | None:
    """Return the far side for a session: as given, else as the session notes, else for a new session as the settings
    say. Raises `AgentError` if it only stands in a file that may be a stranger's.
    """
    if given is not None:
        return given if given.command else None
    if (noted := place_of(session)) is not None:
        if noted.command not in known_commands():
            raise UnknownPlace(noted.command)
        return noted
    settings = resources.settings
    return FarPlace(settings.exec, settings.exec_cwd) if settings.exec and not session.has_messages() else None


def known_commands() -> list[str]:
    """Return the commands that this user has used."""
    try:
        found = (read_object(_known_file()) or {}).get("commands")
    except BadFile:
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _known_file() -> Path:
    return agent_dir() / "exec.json"


def _remember(session: Session, pipe: "Pipe") -> None:
    """Note where the session works, and that the command was used."""
    place = FarPlace(pipe.command, pipe.cwd)
    if facts(session.entries, FarPlace)[-1:] != [place]:
        keep(session, place)
    with suppress(BadFile, OSError):  # then the session has to be given the command again
        agree_to(pipe.command)


def agree_to(command: str) -> None:
    """Remember that this user uses a command. Raises `BadFile`, `OSError`."""
    if command not in (known := known_commands()):
        edit_json(_known_file(), lambda file: file.update(commands=[*known, command][-_MOST_KNOWN:]), 0o600)


async def open_pipe(session: Session, place: FarPlace, resources: Resources) -> "Pipe":
    """Open the pipe to a far side, and read the texts of the project there. Raises `AgentError`."""
    from spindle.workspace.pipe import Pipe

    pipe = None
    try:
        pipe = Pipe(place.command, _environment(resources))
        await pipe.open()
        pipe.cwd = os.path.normpath(os.path.join(pipe.facts.cwd, place.cwd or "."))
        await read_project(pipe)
    except (ToolError, OSError) as error:
        if pipe is not None:
            await pipe.close()
        raise AgentError(str(error)) from None
    _remember(session, pipe)
    return pipe


def _environment(resources: Resources) -> Mapping[str, str]:
    """Return the environment of the command: ours, without keys. Some commands hand it on to the far side."""
    return environment(resources.secret_variables())


async def read_project(pipe: "Pipe") -> None:
    """Read context files, skills and prompt templates at the far side into a folder here. Raises `ToolError`."""
    import tempfile

    from spindle.workspace.far import Far

    if pipe.mirror is not None:
        pipe.mirror.cleanup()
    pipe.mirror = mirror = tempfile.TemporaryDirectory(prefix="spindle-far-")
    if not pipe.facts.python:
        return
    wanted = list(CONTEXT_NAMES), list(PROJECT_FOLDERS), _MOST_FILES, _MOST_BYTES
    found, about = await Far(pipe, ToolSettings()).do(project_files, pipe.cwd, *wanted)
    pipe.cwd, pipe.root, pipe.in_repository = about["cwd"], about["root"], about["inRepository"]
    for path, data in [*found.items(), (f"{pipe.root}/.git/HEAD", b"")]:
        here = Path(os.path.normpath(f"{mirror.name}/{path}"))
        if here.is_relative_to(mirror.name):
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(data)


async def place_for(agent: "AgentSession", session: Session, resources: Resources) -> Resources:
    """Return resources for the place that another session of an agent works at. Raises `AgentError`.

    A new session works where the one before it did, and all of them where the agent was told to work. The pipe of the
    agent is exchanged if it leads elsewhere.
    """
    before = agent.resources.far
    now = None if before is None else FarPlace(before.command, before.cwd)
    stays = agent.has_given_place or session is agent.session or not session.has_messages()
    noted = now if stays else wanted_place(session, None, resources)
    if noted == now:
        if before is not None:
            _remember(session, before)
        return resources
    if noted is not None:
        agent.approval.fencing.check_far(noted.command, resources)
    pipe = None if noted is None else await open_pipe(session, noted, resources)
    if agent.pipe is not None:
        await agent.pipe.close()
    agent.pipe = pipe
    return resources.through(pipe)


class FarState(Wire, kw_only=True):
    """Where tools work."""

    command: str
    cwd: str
    python: str | None = None
    """Its version; without it only shell commands can be run."""


def far_state(pipe: "Pipe | None") -> FarState | None:
    if pipe is None:
        return None
    return FarState(command=pipe.command, cwd=pipe.cwd, python=pipe.facts.python or None)
