"""What changed since a checkpoint, and the way back to it.

What the agent changed is known from its checkpoints and from the state at the end of each run. Other
changes are not the agent's: they are shown as conflicts, and overwritten only if the client says so.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from spindle.agent import AgentError
from spindle.agent.features.undo.checkpoints import AFTER, Noted, shown
from spindle.agent.lifecycle import Phase, RequestKind
from spindle.agent.navigate import Jump, landing, preparation
from spindle.sessions.entries import Entry
from spindle.sessions.facts import fact_in
from spindle.sessions.tree import entry_message
from spindle.shapes.checkpoints import ChangedFile, Checkpoint, CheckpointList, FileChanges, NotedFile, Restored
from spindle.shapes.messages import UserMessage, text_of
from spindle.states.git import GitError
from spindle.states.state import Change, Detail, State, StateGone
from spindle.states.store import MAX_AGE, STORE_BYTES, Snapshots
from spindle.tools.base import ToolError

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession

LARGEST_DIFFS = 4 << 20
"""Bytes of all diffs in one answer; files beyond that come without."""
MOST_NAMES = 100
"""Files that are not covered, in one answer."""
_UNKNOWN = "changed after the last checkpoint of a run that did not come to its end"
_CHANGED = "changed since, but not by this session's agent"


class _Plan:
    """What a restore would do."""

    def __init__(self, snapshots: Snapshots, now: State, target: State) -> None:
        self.snapshots = snapshots
        self.now = now
        self.target = target
        self.changes: list[Change] = []
        self.details: list[Detail] = []
        self.conflicts: dict[str, str] = {}
        self.left: dict[str, str] = {}
        """Files that stay as they are, because nothing is known of their former state."""

    def refusal(self) -> str:
        names = [f"{path} ({why})" for path, why in sorted(self.conflicts.items())]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        return f"Not restored, because this would be lost: {', '.join(names[:10])}{more}. With force it is overwritten"


async def _only(plan: _Plan, hunks: Sequence[str]) -> None:
    """Let a plan for one file take back only some hunks of it. Raises `AgentError`."""
    if len(plan.changes) != 1:
        raise AgentError("The file is as it was at the checkpoint, or a folder: there are no hunks")
    change = plan.changes[0]
    try:
        plan.changes = [await plan.snapshots.differences.without_hunks(change, hunks)]
    except ValueError as error:
        raise AgentError(f"The hunks do not fit {change.path}: {error}. get_changes has the present ones") from None
    lines = [line[:1] for hunk in hunks for line in hunk.split("\n")[1:]]
    plan.details = [Detail(change.path, "modified", added=lines.count("-"), removed=lines.count("+"))]


@asynccontextmanager
async def _at(snapshots: Snapshots, *, writes: bool = False) -> AsyncIterator[None]:
    try:
        with snapshots.nobody_at_work() if writes else nullcontext(True) as is_free:
            if not is_free:
                raise AgentError(f"Another session is at work in {snapshots.root}: wait for its end, or abort it")
            async with snapshots.alone():
                yield
    except (GitError, OSError, ToolError) as error:
        raise AgentError(f"Cannot read the checkpoints of {snapshots.root}: {error}") from None


def _is_wanted(snapshots: Snapshots, path: str, wanted: Sequence[str] | None) -> bool:
    whole = os.path.join(snapshots.root, path).rstrip("/")
    return wanted is None or any(whole == one or whole.startswith(f"{one.rstrip('/')}/") for one in wanted)


class Undo:
    """What the checkpoints of a session are good for. The methods raise `AgentError`."""

    def __init__(self, agent: "AgentSession") -> None:
        self._agent = agent

    async def checkpoints(self) -> CheckpointList:
        """Return the checkpoints of the session, the oldest first."""
        hook = self._agent.checkpoints
        snapshots = hook.snapshots()
        branch = {entry.id for entry in self._agent.session.branch()}
        found = []
        for entry, noted in self._noted():
            found.append(
                Checkpoint(
                    id=noted.id,
                    entry_id=entry.id,
                    timestamp=entry.timestamp,
                    kind=noted.kind,
                    prompt=text_of(prompt[1].content)[:200] if (prompt := self._prompt(noted)) else None,
                    prompt_id=prompt[0] if prompt else None,
                    on_branch=entry.id in branch,
                    is_kept=noted.root == snapshots.root and snapshots.has(noted.id),
                    covers=noted.covers,
                    files=noted.files,
                    not_covered=noted.skipped,
                    duration_ms=noted.duration_ms,
                    restored=noted.restored,
                )
            )
        size, days = await asyncio.to_thread(snapshots.size), int(MAX_AGE // 86400)
        return CheckpointList(found, hook.enabled, snapshots.root, size, STORE_BYTES, days)

    async def changes(self, since: str | None, until: str | None) -> FileChanges:
        """Return the files that differ between two checkpoints, by default between the first one and now.

        Raises `AgentError`.
        """
        ids = [noted.id for _, noted in self._noted()]
        if since is None and not ids:
            return FileChanges([], 0, 0, [])
        snapshots = self._agent.checkpoints.snapshots()
        async with _at(snapshots):
            now = await snapshots.now()
            old = await self._resolved(snapshots, ids[0] if since is None else since)
            if until is None:
                new, lost = now, await snapshots.look_closer(now, old)
            else:
                new = await self._resolved(snapshots, until)
                late, lost = await snapshots.copies(path for path in old.copies if path not in new.copies)
                new.copies |= late
            for path in lost:  # it differs, but nobody can say how
                del old.copies[path]
            details = await snapshots.differences.details(old, new, LARGEST_DIFFS)
            return self._told(snapshots, details, old.skipped | new.skipped | lost)

    async def restore(
        self,
        checkpoint: str,
        files: Sequence[str] | None,
        *,
        conversation: bool,
        dry_run: bool,
        force: bool,
        hunks: Sequence[str] | None = None,
    ) -> Restored:
        """Give files, and the conversation if wanted, the state that they had at a checkpoint. Raises `AgentError`.

        A client that leaves does not stop it half-way.
        """
        lifecycle = self._agent.lifecycle
        if hunks is not None and (files is None or len(files) != 1 or conversation):
            raise AgentError("hunks are of one file, which files names, and leave the conversation as it is")
        lifecycle.admit(RequestKind.RESTORE)
        if self._agent.checkpoints.user_shell.is_running:
            raise AgentError("A shell command is running: wait for its end, or abort it, and restore then")
        if (running := self._agent.background.running()) and not (force or dry_run):
            names = ", ".join(command.command for command in running)
            raise AgentError(f"Commands of the agent run in the background: {names}. End them, or restore with force")
        alone = AsyncExitStack()
        await alone.enter_async_context(lifecycle.alone(RequestKind.RESTORE, Phase.SWITCHING, self._agent.stop))

        async def carry_out() -> Restored:
            async with alone:
                jump = self._jump(checkpoint) if conversation else None
                if jump is not None and not dry_run and await self._is_vetoed(jump):
                    return Restored([], [], [], cancelled=True)
                async with _at(snapshots := self._agent.checkpoints.snapshots(), writes=True):
                    plan = await self._planned(snapshots, checkpoint, files)
                    if hunks is not None:
                        await _only(plan, hunks)
                    if dry_run:
                        return self._outcome(plan)
                    if plan.conflicts and not force:
                        raise AgentError(plan.refusal())
                    return await self._carry_out(plan, checkpoint, jump)

        return await self._agent.changes.to_the_end(carry_out(), "spindle-restore")

    async def _planned(self, snapshots: Snapshots, checkpoint: str, files: Sequence[str] | None) -> _Plan:
        now, target = await snapshots.now(), await self._resolved(snapshots, checkpoint)
        lost = await snapshots.look_closer(now, target)
        plan = _Plan(snapshots, now, target)
        wanted = None if files is None else await self._agent.checkpoints.places(files)
        left_out: list[Change] = []
        found = await snapshots.differences.compare(now, target, left_out)
        ignored = await snapshots.differences.not_to_remove(found, target)
        left = {path: f"what is new there stays: {why}" for path, why in now.skipped.items() if target.covers(path)}
        left |= {one.path: "not covered by the checkpoint" for one in left_out}
        left |= dict.fromkeys(ignored, "ignored at the time of the checkpoint")
        plan.changes = [one for one in found if one.path not in ignored and _is_wanted(snapshots, one.path, wanted)]
        chosen = {one.path for one in plan.changes}
        plan.left = {path: why for path, why in left.items() if _is_wanted(snapshots, path, wanted)}
        plan.left = {path: why for path, why in plan.left.items() if path not in chosen}
        details = await snapshots.differences.details(now, target, LARGEST_DIFFS)
        plan.details = [one for one in details if one.path in chosen or one.old_path in chosen]
        foreign = await self._foreign(snapshots, checkpoint, now)
        foreign |= {snapshots.differences.inside(path): f"cannot be kept: {why}" for path, why in lost.items()}
        plan.conflicts = {path: foreign[path] for path in chosen if path in foreign}
        return plan

    async def _carry_out(self, plan: _Plan, checkpoint: str, jump: Jump | None) -> Restored:
        """Keep the state as it is now, then change it: this can be taken back, and done again after a crash."""
        hook, snapshots, session = self._agent.checkpoints, plan.snapshots, self._agent.session
        await snapshots.differences.check_kept(plan.changes)
        id, old_leaf, text = uuid.uuid4().hex[:12], session.leaf_id, None
        snapshots.keep(id, plan.now)
        if jump is not None:
            place, text = self._place(jump, checkpoint)
            session.move(place)
        hook.note(id, plan.now, old_leaf, kind="restore", restored=checkpoint)
        try:
            failed = await snapshots.differences.put_back(plan.changes, plan.target)
            after = await snapshots.now()
            after.copies, _ = await snapshots.copies(plan.now.copies)
            snapshots.keep(id + AFTER, after)
        finally:
            if jump is not None:
                self._agent.rebuild("tree")
        if failed:
            raise AgentError(self._failure(plan, id, failed))
        told = self._outcome(plan)
        told.checkpoint, told.editor_text = id, text
        if jump is not None:
            leaf = session.leaf_id
            await self._agent.hooks.notify(
                "session_tree", new_leaf_id=leaf, old_leaf_id=old_leaf, summary_entry=None, from_extension=None
            )
        return told

    # -- the checkpoints of a session ----------------------------------------------------------------

    def _noted(self) -> list[tuple[Entry, Noted]]:
        found = [(entry, fact_in(entry, Noted)) for entry in self._agent.session.entries]
        return [(entry, noted) for entry, noted in found if noted is not None]

    def _of(self, id: str) -> Noted:
        for _, noted in self._noted():
            if noted.id == id:
                return noted
        raise AgentError(f"There is no checkpoint {id} in this session: list_checkpoints has them")

    def _prompt(self, noted: Noted) -> tuple[str, UserMessage] | None:
        """Return the message that the turn of a checkpoint was for, with the id of its entry."""
        if noted.kind != "turn" or noted.leaf is None or self._agent.session.entry(noted.leaf) is None:
            return None
        for entry in reversed(self._agent.session.branch(noted.leaf)):
            if isinstance(message := entry_message(entry), UserMessage):
                return entry.id, message
        return None

    async def _resolved(self, snapshots: Snapshots, id: str) -> State:
        """Return the state at a checkpoint. Raises `AgentError`.

        A copy of a file may be in that of a later turn: it was made before the first change.
        """
        noted = self._of(id)
        if noted.root != snapshots.root:
            raise AgentError(f"Checkpoint {id} is of another folder: {noted.root}")
        try:
            state = snapshots.load(id)
        except StateGone:
            raise AgentError(f"Checkpoint {id} is not kept any more") from None
        all_noted = [noted for _, noted in self._noted()]
        for later in all_noted[all_noted.index(noted) + 1 :]:
            if later.kind != "restore":  # whose copies are of the files as they were by then
                with suppress(StateGone):
                    state.copies = snapshots.load(later.id).copies | state.copies
        # A file in the tree may have been deleted, or have become large, before the copy was made.
        known = await snapshots.differences.in_tree(state, state.copies)
        state.copies = {path: copy for path, copy in state.copies.items() if path not in known}
        return state

    async def _foreign(self, snapshots: Snapshots, id: str, now: State) -> dict[str, str]:
        """Return what was changed since a checkpoint outside of the runs of this session."""
        all_noted = [noted for _, noted in self._noted() if noted.root == snapshots.root]
        at = next(at for at, noted in enumerate(all_noted) if noted.id == id)
        found: dict[str, str] = {}
        for noted, following in zip(all_noted[at:], [*all_noted[at + 1 :], None], strict=True):
            try:
                later = now if following is None else snapshots.load(following.id)
                if snapshots.has(noted.id + AFTER):
                    earlier, why = snapshots.load(noted.id + AFTER), _CHANGED
                elif following is not None and following.run == noted.run:
                    continue  # the next turn of the same run
                else:
                    earlier, why = snapshots.load(noted.id), _UNKNOWN
            except StateGone:
                continue
            changed = await snapshots.differences.compare(earlier, later)
            if changed and later is not now:  # it may be as the agent had left it by now, as after a restore
                still = {change.path for change in await snapshots.differences.compare(earlier, now)}
                changed = [change for change in changed if change.path in still]
            found = {change.path: why for change in changed} | found
        return found

    # -- the conversation ----------------------------------------------------------------------------

    def _jump(self, checkpoint: str) -> Jump:
        leaf = self._of(checkpoint).leaf
        if leaf is None or self._agent.session.entry(leaf) is None:
            raise AgentError("The conversation of this checkpoint is not in this session: restore only the files")
        return Jump(leaf)

    def _place(self, jump: Jump, checkpoint: str) -> tuple[str | None, str | None]:
        """Return the entry to go on from, and the prompt to be edited and sent again."""
        entry = self._agent.session.entry(jump.target_id)
        assert entry is not None
        return landing(entry) if self._of(checkpoint).kind == "turn" else (entry.id, None)

    async def _is_vetoed(self, jump: Jump) -> bool:
        session = self._agent.session
        answer = await self._agent.hooks.ask("session_before_tree", lambda: {"preparation": preparation(session, jump)})
        return bool(answer.get("cancel"))

    # -- answers -------------------------------------------------------------------------------------

    def _shown(self, snapshots: Snapshots, path: str) -> str:
        """Return a path as clients see it: from the working directory, or absolute."""
        root = snapshots.root
        near = shown(os.path.join(root, path), self._agent.checkpoints.workdir, root)
        return f"{near}/" if path.endswith("/") else near

    def _failure(self, plan: _Plan, id: str, failed: dict[str, str]) -> str:
        told = [f"{self._shown(plan.snapshots, path)} ({why})" for path, why in sorted(failed.items())]
        more = f" and {len(told) - MOST_NAMES} more" if len(told) > MOST_NAMES else ""
        return (
            f"Restored only in part, {len(failed)} of {len(plan.changes)} changes failed: "
            f"{', '.join(told[:MOST_NAMES])}{more}. Restore again when the reason is gone; checkpoint {id} has the "
            "state before"
        )

    def _outcome(self, plan: _Plan) -> Restored:
        def noted(found: dict[str, str]) -> list[NotedFile]:
            names = sorted(found.items())[:MOST_NAMES]
            return [NotedFile(self._shown(plan.snapshots, path), why) for path, why in names]

        files = [self._changed_file(plan.snapshots, one) for one in plan.details]
        return Restored(files, noted(plan.conflicts), noted(plan.left))

    def _changed_file(self, snapshots: Snapshots, one: Detail) -> ChangedFile:
        old_path = None if one.old_path is None else self._shown(snapshots, one.old_path)
        path = self._shown(snapshots, one.path)
        return ChangedFile(path, one.status, old_path, one.added, one.removed, one.diff)

    def _told(self, snapshots: Snapshots, details: Sequence[Detail], skipped: dict[str, str]) -> FileChanges:
        files = [self._changed_file(snapshots, one) for one in details]
        names = sorted(skipped.items())[:MOST_NAMES]
        return FileChanges(
            files,
            sum(one.added or 0 for one in details),
            sum(one.removed or 0 for one in details),
            [NotedFile(self._shown(snapshots, path), why) for path, why in names],
        )
