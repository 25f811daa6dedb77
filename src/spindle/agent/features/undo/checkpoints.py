"""Checkpoints: the state of the files before a turn first writes, so that changes can be shown and taken back.

The hook takes them and notes each in the session, so that they go along with branches, forks and later processes.
`undo.py` beside it compares them and puts them back; `states/store.py` holds the files.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from msgspec import Meta

from spindle.agent import AgentError
from spindle.agent.conversation import Conversation
from spindle.agent.hooks import Hooks
from spindle.agent.hub import Hub
from spindle.agent.run.meter import Meter
from spindle.agent.run.options import Chain
from spindle.agent.shell import Shell
from spindle.base import limits
from spindle.base.agent_dir import agent_dir
from spindle.resources.loader import Resources
from spindle.sessions.entries import Entry
from spindle.sessions.facts import Fact, fact_in, keep
from spindle.sessions.session import Session
from spindle.shapes.builtin_tools import kind_of, only_reads
from spindle.shapes.events import EntryAppended, Event, Notice
from spindle.shapes.messages import AssistantMessage, UserMessage
from spindle.tools.base import Tool, ToolError

if TYPE_CHECKING:  # loaded with the first checkpoint
    from spindle.states.state import Change, State
    from spindle.states.store import Snapshots
    from spindle.workspace.pipe import Pipe

AFTER = "+"
"""Added to the id of the last checkpoint of a run: the state when the run had ended."""
HEAD_START = 0.05
"""Seconds that the model has before its files are looked at: nothing is done for an answer that is there at once.
What calls did in less than that is left to the look right before the next call: it takes about as long."""
SLOW = 0.5
"""Seconds of a checkpoint that users are told of."""


class Noted(Fact):
    """A checkpoint, as the session has it."""

    entry_type: ClassVar[str] = "checkpoint"
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
    duration_ms: int | None = None


class CheckpointPort(Protocol):
    """What checkpoints need of the engine."""

    conversation: Conversation
    hub: Hub
    resources: Resources
    chain: Chain | None

    def offered_tools(self) -> dict[str, Tool]: ...


class Checkpoints(Hooks):
    of_the_owner = True

    listening = frozenset({"agent_end"})

    def __init__(self, port: CheckpointPort, user_shell: Shell) -> None:
        self._port = port
        self.user_shell = user_shell
        self.allowed = True
        """False: none are taken, whatever the settings say."""
        self._snapshots: tuple[Any, Snapshots] | None = None
        """The states that were asked for last, with what they are of."""
        self._noted: tuple[Session, str | None] | None = None
        """The session that was looked at last, with the folder of its last checkpoint."""
        self._run = ""
        self._first: State | None = None
        """The state before the chain wrote anything."""
        self._last: tuple[str, State] | None = None
        """The last checkpoint of the run, with its id."""
        self._is_taken = False
        """Whether there is a checkpoint of this turn, or it has failed."""
        self._taking = asyncio.Lock()
        """Held while one is taken: calls of other subagents, which come meanwhile, wait for it."""
        self._is_stale = True
        """Whether much may have been written since the files were looked at."""
        self._began: float | None = None
        """When the first call of the turn began that may write."""
        self._timer: asyncio.TimerHandle | None = None
        self._ahead: asyncio.Task[None] | None = None
        """Takes the state while the model is thinking."""
        self._working = ExitStack()
        """Tells other sessions in the folder that files are being written."""
        self._told: set[str] = set()
        """What the model is told with the next result: that there is no checkpoint."""
        self._is_tidied = False
        """Whether this process has removed checkpoints that are too old or too many."""

    @property
    def enabled(self) -> bool:
        resources = self._port.resources
        chosen, far = resources.options.checkpoints, resources.far
        wanted = resources.settings.checkpoints if chosen is None else chosen
        return self.allowed and wanted and (far is None or bool(far.facts.python))

    def snapshots(self) -> "Snapshots":
        """Return the states of the folder that the session works in."""
        if (far := self._port.resources.far) is not None:
            return self._there(far)
        from spindle.states.store import find_root

        session, stores = self._port.conversation.session, agent_dir() / "checkpoints"
        root, is_repository = find_root(session.cwd, above=not self._is_guest)
        if (noted := self._noted_root(os.path.realpath(session.cwd), stores)) not in (None, root):
            root, is_repository = noted, os.path.lexists(os.path.join(noted, ".git"))
        own = self._own(root)
        return self._known((root, own), lambda: self._here(stores, root, own, is_repository=is_repository))

    def _own(self, root: str) -> tuple[str, ...]:
        """Return the names in a folder that are ours: an undo must not give our session back as it was.

        The far side may share the files of this machine.
        """
        session = self._port.conversation.session
        return _names_of_ours(root, agent_dir(), session.path, session.directory)

    @property
    def _is_guest(self) -> bool:
        """Whether the session is that of a user of a server, who may not see the files of others beside it."""
        return self._port.resources.options.user_folder is not None

    def _noted_root(self, cwd: str, stores: Path) -> str | None:
        """Return the folder of the last checkpoint, if the working directory is in there.

        By then an agent may have removed a `.git`, or made one in a folder further down.
        """
        from spindle.states.store import store_of

        root = None if self._is_guest else self._last_root()
        # A session file may come from anywhere: only a folder counts that something is kept of.
        is_known = root is not None and Path(cwd).is_relative_to(root) and store_of(stores, root).is_dir()
        return root if is_known else None

    def _last_root(self) -> str | None:
        """Return the folder of the last checkpoint, wherever the session works now; None if there is no checkpoint."""
        session = self._port.conversation.session
        if self._noted is None or self._noted[0] is not session:
            last = next((fact for one in reversed(session.entries) if (fact := fact_in(one, Noted))), None)
            self._noted = session, None if last is None else last.root
        return self._noted[1]

    def _known(self, place: Any, make: "Callable[[], Snapshots]") -> "Snapshots":
        """Return the states that were asked for last, if they are of this place, else others."""
        if self._snapshots is None or self._snapshots[0] != place:
            self._snapshots = place, make()
        return self._snapshots[1]

    def _here(self, stores: Path, root: str, own: tuple[str, ...], *, is_repository: bool) -> "Snapshots":
        from spindle.states.recorder import Here
        from spindle.states.store import Snapshots, store_of

        resources, store = self._port.resources, store_of(stores, root)
        workspace, withheld = resources.workspace, resources.secret_variables()
        recorder = Here(workspace, store, root, is_repository=is_repository, own=own, withheld=withheld)
        return Snapshots(store, recorder)

    def _there(self, far: "Pipe") -> "Snapshots":
        from spindle.states.recorder import There, digest
        from spindle.states.store import Snapshots, store_of

        if not far.facts.python:
            raise AgentError(f"There are no checkpoints: the far side (`{far.command}`) has no Python 3.8 or newer")
        stores = agent_dir() / "checkpoints-elsewhere" / digest(far.command)
        around = far.cwd if self._is_guest else far.root
        root, is_repository = self._noted_root(far.cwd, stores) or around, far.in_repository and around == far.root
        own = self._own(root)
        recorder = There(self._port.resources.workspace, root, is_repository=is_repository, own=own)
        return self._known((far, root, own), lambda: Snapshots(store_of(stores, root), recorder))

    def _at_work(self) -> "Snapshots":
        """Return the states of the folder that the chain began with, though it may be a repository since."""
        return self.snapshots() if self._first is None or self._snapshots is None else self._snapshots[1]

    # -- a run -----------------------------------------------------------------------------------

    def begin_run(self) -> None:
        self._first = self._last = None
        self._is_stale, self._began = True, None
        self._working.close()

    async def before_turn(self) -> bool:
        self._is_taken = False
        if self._began is not None:
            self._is_stale = self._is_stale or time.monotonic() - self._began > HEAD_START
            self._began = None
        if self._is_stale and self.enabled:
            self._wait_no_more()
            self._timer = asyncio.get_running_loop().call_later(HEAD_START, self._begin_ahead)
        return True

    # -- ahead of a call -------------------------------------------------------------------------

    def _begin_ahead(self) -> None:
        """Take the state while the model is thinking, so that the first call finds little to do."""
        if self._ahead is None and any(map(self._writes, self._port.offered_tools().values())):
            self._ahead = asyncio.create_task(self._look_ahead(), name="spindle-checkpoint")
            self._ahead.add_done_callback(self._looked_ahead)

    async def _look_ahead(self) -> None:
        from spindle.states.git import GitError

        with suppress(GitError, OSError):  # the call finds it, too, and tells
            snapshots = self._at_work()
            async with snapshots.alone():
                await snapshots.now()
            self._is_stale = False

    def _looked_ahead(self, task: "asyncio.Task[None]") -> None:
        self._ahead = None

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _looked(self) -> None:
        """Wait until nothing is done ahead of a call."""
        self._wait_no_more()
        if self._ahead is not None:
            await asyncio.wait([self._ahead])

    async def leave(self) -> None:
        """End what was begun ahead of a call."""
        self._wait_no_more()
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.wait([self._ahead])

    # -- calls -----------------------------------------------------------------------------------

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        if self._writes(tool) and self.enabled and not self._only_reads(tool, args):
            async with self._taking:
                if not self._is_taken:
                    await self._or_tell(self._take)
                    self._is_taken = True
            self._began = self._began or time.monotonic()
            if kind_of(tool.name) == "edit" and self._last is not None:
                await self._or_tell(self._copy, args.get("path"))
        return args

    def _writes(self, tool: Tool) -> bool:
        return not (only_reads(tool.name) or tool.effect == "reads")

    def _only_reads(self, tool: Tool, args: Any) -> bool:
        """Say whether this call writes nothing, although other calls of the tool may."""
        if kind_of(tool.name) != "execute" or self._is_taken:
            return False
        from spindle.agent.features.undo.reading_lines import plainly_reads

        return isinstance(line := args.get("command"), str) and plainly_reads(line)

    async def user_bash(self, command: str, exclude_from_context: bool, cwd: str) -> dict[str, Any] | None:
        """Keep the state before the user's first command that may write: changes are shown from there on."""
        if self.enabled and self._last_root() is None:
            from spindle.agent.features.undo.reading_lines import plainly_reads

            if not plainly_reads(command):
                await self._or_tell(self._take_for_user, is_call=False)
        return None

    async def _or_tell(self, work: Callable[..., Awaitable[None]], *args: Any, is_call: bool = True) -> None:
        """Do something that keeps no tool from running. Users are told once if it fails; the model, for its calls."""
        from spindle.states.git import GitError

        try:
            await work(*args)
        except (GitError, OSError, ToolError) as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                self._port.hub.publish(Notice(f"No checkpoint of the files: {error}"))
                if is_call and self._port.chain is not None:
                    self._port.chain.remarks.append(
                        f"There is no checkpoint of the files ({error}): what this call changed cannot be undone."
                    )

    async def _take(self) -> None:
        began, leaf = time.monotonic(), self._leaf()
        snapshots = self._at_work()
        await self._looked()
        before, self._last = self._last, None
        if self._first is None:  # before the state is taken: a restore that begins now would have it half
            self._run = os.urandom(6).hex()
            self._working.push(await snapshots.at_work())
        async with snapshots.alone():
            state, id = await snapshots.now(), os.urandom(6).hex()
            snapshots.keep(id, state, before)
        self._is_stale = False
        self._first = self._first or state
        seconds = time.monotonic() - began
        self.note(id, state, leaf, kind="turn", run=self._run, duration_ms=round(seconds * 1000))
        self._last = id, state
        if seconds > SLOW:
            text = (
                f"Checkpoint of {state.files:,} files in {seconds:.1f} s; while little changes, the next ones are quick"
            )
            self._port.hub.publish(Notice(text, "info"))
        if state.tree is None and (why := f"{state.root}: {state.skipped['./']}") not in self._told:
            self._told.add(why)
            self._port.hub.publish(Notice(f"Checkpoints do not cover {why}"))

    async def _take_for_user(self) -> None:
        began, snapshots = time.monotonic(), self.snapshots()
        async with snapshots.alone():
            state, id = await snapshots.now(), os.urandom(6).hex()
            snapshots.keep(id, state)
            snapshots.keep(id + AFTER, state, (id, state))  # what differs from it later is not the agent's doing
        milliseconds = round((time.monotonic() - began) * 1000)
        self.note(id, state, self._port.conversation.session.leaf_id, kind="command", duration_ms=milliseconds)

    async def _copy(self, path: str) -> None:
        """Keep a file that the tree has not: it is ignored, large, or outside of the folder."""
        assert self._last is not None and self._first is not None
        snapshots, (id, state), [whole] = self._at_work(), self._last, await self.places([path])
        if snapshots.recorder.has(whole) or whole in self._first.copies:
            return
        async with snapshots.alone():
            copy = await snapshots.copy(whole)
            if copy is not None and whole.startswith(f"{state.root.rstrip('/')}/"):
                await snapshots.now()
                if snapshots.recorder.has(whole):  # another subagent has made it since: the tree is right without it
                    return
            state.copies[whole] = self._first.copies[whole] = copy
            snapshots.keep(id, state)

    def note(self, id: str, state: "State", leaf: str | None, **facts: Any) -> str:
        """Note a checkpoint in the session. Returns the id of the entry."""
        covers, files, skipped = "all" if state.tree else "edits", state.files, len(state.skipped)
        noted = Noted(id=id, root=state.root, covers=covers, leaf=leaf, files=files, skipped=skipped, **facts)
        session = self._port.conversation.session
        entry, self._noted = keep(session, noted), (session, state.root)
        self._port.hub.publish(EntryAppended(entry.value))
        return entry.id

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
            await self._or_tell(self._finish_in_time, is_call=False)
        self._end()

    def observe_soon(self, event: Event) -> None:
        self._end()

    def _end(self) -> None:
        self._wait_no_more()
        self._last = None
        self._working.close()

    async def _finish_in_time(self) -> None:
        """Every run ends, whatever holds up a look at the files."""
        try:
            async with asyncio.timeout(limits.CHECKPOINT_END):
                await self._finish()
        except TimeoutError:
            raise ToolError(f"after {limits.CHECKPOINT_END:g} s the files were not looked at") from None

    async def _finish(self) -> None:
        """Keep the state after the run: what differs from it later is not the agent's doing."""
        assert self._last is not None and self._first is not None
        snapshots, first = self._at_work(), self._first
        await self._looked()
        async with snapshots.alone():
            state = await snapshots.now()
            await snapshots.look_closer(state, first)
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
        paths = list(meter.files_changed)
        said = dict(zip(paths, await self.places(paths), strict=True)) if paths else {}
        others = [path for path, whole in said.items() if whole not in compared and not snapshots.recorder.has(whole)]
        meter.files_changed = dict.fromkeys([*(shown(path, cwd, first.root) for path in sorted(changed)), *others])

    @property
    def workdir(self) -> str:
        """The working directory, without links."""
        far = self._port.resources.far
        return os.path.realpath(self._port.conversation.session.cwd) if far is None else far.cwd

    async def places(self, paths: Iterable[str]) -> list[str]:
        """Return where paths lead, by whatever links. Raises `ToolError`."""
        from spindle.tools.files import resolve_path

        resources, cwd = self._port.resources, self._port.conversation.session.cwd
        workspace, workdir = resources.workspace, resources.workdir(cwd)
        return await workspace.real_paths([resolve_path(path, workdir, workspace.home) for path in paths])


def _is(entry: Entry, kind: type[Any]) -> bool:
    return entry.type == "message" and isinstance(entry.message, kind)


@lru_cache(maxsize=16)
def _names_of_ours(root: str, home: Path, session: Path | None, directory: Path | None) -> tuple[str, ...]:
    """Return the names in a folder that the agent directory, a session and their directory have there, links or not."""
    ours = [home, *([session] if session is not None else [])]
    if directory is not None and not Path(root).is_relative_to(os.path.realpath(directory)):
        ours.append(directory)
    places = {os.path.abspath(path) for path in ours} | {os.path.realpath(path) for path in ours}
    return tuple(sorted(os.path.relpath(path, root) for path in places if Path(path).is_relative_to(root)))


def shown(path: str, cwd: str, root: str) -> str:
    """Return an absolute path as people see it: from the working directory, if it is in the same folder."""
    return os.path.relpath(path, cwd) if path.startswith(f"{root.rstrip('/')}/") else path
