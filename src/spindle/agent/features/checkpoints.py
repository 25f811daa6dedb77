"""Checkpoints: the state of the files before a turn first writes, so that changes can be shown and taken back.

The hook takes them and notes each in the session, so that they go along with branches, forks and later processes.
`agent/features/undo.py` compares them and puts them back; `base/snapshots.py` holds the files.
"""

import os
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from msgspec import Meta, Struct, ValidationError, convert, field

from spindle.agent import AgentError
from spindle.agent.conversation import Conversation
from spindle.agent.hooks import Hooks
from spindle.agent.run.meter import Meter
from spindle.agent.run.options import Chain
from spindle.agent.shell import Shell
from spindle.base.agent_dir import agent_dir
from spindle.resources.loader import Resources
from spindle.sessions.entries import Entry
from spindle.shapes.builtin_tools import kind_of, only_reads
from spindle.shapes.events import EntryAppended, Event, Notice
from spindle.shapes.messages import AssistantMessage, UserMessage
from spindle.tools.base import Tool, ToolError, ToolSettings

if TYPE_CHECKING:  # loaded with the first checkpoint
    from spindle.base.snapshots import Snapshots
    from spindle.base.states import Change, State
    from spindle.base.workspace.pipe import Pipe

ENTRY = "checkpoint"
"""Type of the custom entries."""
AFTER = "+"
"""Added to the id of the last checkpoint of a run: the state when the run had ended."""
SLOW = 0.5
"""Seconds of a checkpoint that users are told of."""


class Noted(Struct):
    """A checkpoint, as its entry in the session has it. The file may come from anywhere."""

    id: Annotated[str, Meta(pattern=r"^[0-9a-f]{12}\Z")]
    """Also the name of a file."""
    root: str
    kind: str
    covers: str
    leaf: str | None = None
    run: str | None = None
    restored: str | None = None
    files: int | None = None
    skipped: int | None = None
    duration_ms: int | None = field(default=None, name="durationMs")


class CheckpointPort(Protocol):
    """What checkpoints need of the engine."""

    conversation: Conversation
    resources: Resources
    chain: Chain | None

    def publish(self, event: Event) -> None: ...


class Checkpoints(Hooks):
    of_the_owner = True

    listening = frozenset({"agent_end"})

    def __init__(self, port: CheckpointPort, user_shell: Shell) -> None:
        self._port = port
        self.user_shell = user_shell
        self.allowed = True
        """False: none are taken, whatever the settings say."""
        self._snapshots: Snapshots | None = None
        self._own: list[Path] = []
        self._run = ""
        self._first: State | None = None
        """The state before the chain wrote anything."""
        self._last: tuple[str, State] | None = None
        """The last checkpoint of the run, with its id."""
        self._is_taken = False
        """Whether there is a checkpoint of this turn, or it has failed."""
        self._working = ExitStack()
        """Tells other sessions in the folder that files are being written."""
        self._told: set[str] = set()
        self._is_tidied = False
        """Whether this process has removed checkpoints that are too old or too many."""

    @property
    def enabled(self) -> bool:
        far = self._port.resources.far
        return self.allowed and self._port.resources.settings.checkpoints and (far is None or bool(far.facts.python))

    def snapshots(self) -> "Snapshots":
        """Return the states of the folder that the session works in."""
        if (far := self._port.resources.far) is not None:
            return self._far_snapshots(far)
        from spindle.base.snapshots import Snapshots, find_root

        session = self._port.conversation.session
        is_guest = self._port.resources.options.user_folder is not None  # who may not see the files of others beside it
        root, is_repository = find_root(session.cwd, above=not is_guest)
        own = [Path(session.path)] if session.path is not None else []
        if session.directory is not None and not root.is_relative_to(session.directory):
            own.append(Path(session.directory))
        if self._snapshots is None or self._snapshots.root != root or self._own != own:
            withheld = self._port.resources.secret_variables()
            stores = agent_dir() / "checkpoints"
            self._own = own
            self._snapshots = Snapshots(stores, root, is_repository=is_repository, own=own, withheld=withheld)
        return self._snapshots

    def _far_snapshots(self, far: "Pipe") -> "Snapshots":
        from spindle.agent.features.far_snapshots import FarSnapshots

        if not far.facts.python:
            raise AgentError(f"There are no checkpoints: the far side (`{far.command}`) has no Python 3.8 or newer")
        if not isinstance(self._snapshots, FarSnapshots) or self._snapshots.root != Path(far.root):
            settings = self._port.resources.tool_settings(None, None)
            self._snapshots = FarSnapshots(agent_dir() / "checkpoints-elsewhere", far, settings)
        return self._snapshots

    def _at_work(self) -> "Snapshots":
        """Return the states of the folder that the chain began with, though it may be a repository since."""
        return self.snapshots() if self._first is None or self._snapshots is None else self._snapshots

    # -- a run -----------------------------------------------------------------------------------

    def begin_run(self) -> None:
        self._run, self._first, self._last = uuid.uuid4().hex[:12], None, None
        self._working.close()

    async def before_turn(self) -> bool:
        self._is_taken = False
        return True

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        if not (only_reads(tool.name) or tool.effect == "reads") and self.enabled:
            if not self._is_taken:
                self._is_taken = True
                await self._or_tell(self._take)
            if kind_of(tool.name) == "edit" and self._last is not None:
                await self._or_tell(self._copy, args.get("path"))
        return args

    async def _or_tell(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Do something that must not keep the tool from running. Users are told once if it fails."""
        from spindle.base.git import GitError

        try:
            await work(*args)
        except (GitError, OSError, ToolError) as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                self._port.publish(Notice(f"No checkpoint of the files: {error}"))

    async def _take(self) -> None:
        began, leaf = time.monotonic(), self._leaf()
        snapshots = self._at_work()
        self._last = None
        if self._first is None:  # before the state is taken: a restore that begins now would have it half
            self._working.push(await snapshots.at_work())
        async with snapshots.alone():
            state, id = await snapshots.now(), uuid.uuid4().hex[:12]
            snapshots.keep(id, state)
        self._first = self._first or state
        seconds = time.monotonic() - began
        self.note(id, state, leaf, kind="turn", run=self._run, durationMs=round(seconds * 1000))
        self._last = id, state
        if seconds > SLOW:
            text = (
                f"Checkpoint of {state.files:,} files in {seconds:.1f} s; while little changes, the next ones are quick"
            )
            self._port.publish(Notice(text, "info"))
        if state.tree is None and (why := f"{state.root}: {state.skipped['./']}") not in self._told:
            self._told.add(why)
            self._port.publish(Notice(f"Checkpoints do not cover {why}"))

    async def _copy(self, path: str) -> None:
        """Keep a file that the tree has not: it is ignored, large, or outside of the folder."""
        assert self._last is not None and self._first is not None
        snapshots, (id, state), [whole] = self._at_work(), self._last, await self.places([path])
        if snapshots.has_in_tree(whole) or whole in self._first.copies:
            return
        async with snapshots.alone():
            state.copies[whole] = self._first.copies[whole] = await snapshots.copy(whole)
            snapshots.keep(id, state)

    def note(self, id: str, state: "State", leaf: str | None, **facts: Any) -> str:
        """Note a checkpoint in the session. Returns the id of the entry."""
        session = self._port.conversation.session
        data = {"id": id, "root": state.root, "covers": "all" if state.tree else "edits", "files": state.files}
        entry_id = session.append_custom(ENTRY, data | {"leaf": leaf, "skipped": len(state.skipped)} | facts)
        if entry := session.entry(entry_id):
            self._port.publish(EntryAppended(entry.value))
        return entry_id

    def _leaf(self) -> str | None:
        """Return the entry that the conversation goes back to with this checkpoint: the prompt, or the turn before."""
        session, kind = self._port.conversation.session, UserMessage if self._first is None else AssistantMessage
        entry = session.entry(session.leaf_id)
        while entry is not None and not _is(entry, kind):
            entry = session.entry(entry.parent_id)
        if entry is None:
            return None
        return entry.id if self._first is None else entry.parent_id

    # -- the end of a run ------------------------------------------------------------------------

    async def observe(self, event: Event) -> None:
        if self._last is not None:
            await self._or_tell(self._finish)
        self._end()

    def observe_soon(self, event: Event) -> None:
        self._end()

    def _end(self) -> None:
        self._last = None
        self._working.close()

    async def _finish(self) -> None:
        """Keep the state after the run: what differs from it later is not the agent's doing."""
        assert self._last is not None and self._first is not None
        snapshots, first = self._at_work(), self._first
        async with snapshots.alone():
            state = await snapshots.now()
            state.copies = {path: await snapshots.copy(path) for path in first.copies}
            snapshots.keep(self._last[0] + AFTER, state)
            changes = await snapshots.differences.compare(first, state)
        if self._port.chain is not None and state.tree is not None and first.tree is not None:
            await self._tell_meter(self._port.chain.meter, changes)
        if not self._is_tidied:
            self._is_tidied = True
            await snapshots.tidy()

    async def _tell_meter(self, meter: Meter, changes: Sequence["Change"]) -> None:
        """Put the files that differ into the result of the run. Tools are believed where nothing was compared."""
        assert self._first is not None
        first, snapshots, cwd = self._first, self._at_work(), self.workdir
        changed = {os.path.join(first.root, change.path) for change in changes if not change.path.endswith("/")}
        compared = changed | first.copies.keys()
        said = dict(zip(meter.files_changed, await self.places(meter.files_changed), strict=True))
        others = [path for path, whole in said.items() if whole not in compared and not snapshots.has_in_tree(whole)]
        meter.files_changed = dict.fromkeys([*(shown(path, cwd, first.root) for path in sorted(changed)), *others])

    @property
    def workdir(self) -> str:
        """The working directory, without links."""
        far = self._port.resources.far
        return os.path.realpath(self._port.conversation.session.cwd) if far is None else far.cwd

    async def places(self, paths: Iterable[str]) -> list[str]:
        """Return where paths lead, by whatever links. Raises `ToolError`."""
        from spindle.tools.files import resolve_path

        if (far := self._port.resources.far) is None:
            return [os.path.realpath(resolve_path(path, self._port.conversation.session.cwd)) for path in paths]
        from spindle.tools.elsewhere import Far

        there = [resolve_path(path, far.cwd, far.facts.home) for path in paths]
        return await Far(far, ToolSettings()).real_paths(there)


def _is(entry: Entry, kind: type[Any]) -> bool:
    return entry.type == "message" and isinstance(entry.message, kind)


def noted_in(entry: Entry) -> Noted | None:
    """Return what a checkpoint noted in its entry; None if it is no entry of a checkpoint, or a damaged one."""
    if entry.type != "custom" or entry.value.get("customType") != ENTRY:
        return None
    try:
        return convert(entry.value.get("data"), Noted)
    except ValidationError:
        return None


def shown(path: str, cwd: str, root: str) -> str:
    """Return an absolute path as people see it: from the working directory, if it is in the same folder."""
    return os.path.relpath(path, cwd) if path.startswith(f"{root.rstrip('/')}/") else path
