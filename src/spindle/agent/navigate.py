"""Jumps in the session tree: where the conversation goes on, and notes on the branch that is left."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.compaction.plan import FileLists, append_file_lists, file_lists
from spindle.agent.compaction.summary import BRANCH, summary_request
from spindle.agent.engine import Engine
from spindle.agent.lifecycle import Aborted, Phase, RequestKind
from spindle.llm.history import estimate_tokens
from spindle.sessions.entries import Entry
from spindle.sessions.session import Session
from spindle.sessions.tree import entry_message
from spindle.shapes.messages import AgentMessage, CustomMessage, ToolResultMessage, Usage, UserMessage, Wire, text_of

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession


SUMMARY_TOKENS = 2048
PREAMBLE = (
    "Another branch of this conversation was explored before it continued from here.\n"
    "These are the notes on that branch:\n\n"
)
_SUMMARIES = ("compaction", "branch_summary")


class Jump(Struct, frozen=True):
    """A request to jump to an entry of the session tree."""

    target_id: str
    summarize: bool = False
    instructions: str | None = None
    replace_instructions: bool = False
    label: str | None = None


class Navigated(Wire):
    """The result of a jump in the session tree."""

    cancelled: bool
    aborted: bool = False
    editor_text: str | None = None
    """Text of the user message that was jumped to, to be edited and sent again."""
    summary_entry: dict[str, Any] | None = None


class TreePreparation(Wire):
    """Where a jump in the session tree leads, as hooks see it."""

    target_id: str
    old_leaf_id: str | None
    common_ancestor_id: str | None
    entries_to_summarize: list[dict[str, Any]]
    user_wants_summary: bool
    custom_instructions: str | None = None
    replace_instructions: bool = False
    label: str | None = None


class _Notes(Struct, frozen=True):
    """A summary of the branch that is left, for the place where the conversation goes on."""

    text: str
    details: Any
    from_hook: bool
    usage: Usage | None = None


async def navigate(agent: "AgentSession", engine: Engine, jump: Jump) -> Navigated:
    """Go on from another entry of the session. Raises `AgentError`. If it fails or is cancelled, nothing has changed.

    If the entry is a user message, the conversation goes on before it, and its text is returned to be edited and
    sent again.
    """
    place, _ = landing(_target(agent.session, jump))
    if place == agent.session.leaf_id == jump.target_id:
        return Navigated(False)
    async with engine.lifecycle.alone(RequestKind.SUMMARY, Phase.SUMMARIZING, engine.stop) as signal:
        session = agent.session  # another session may be in its place by now
        target = _target(session, jump)
        old_leaf = session.leaf_id
        left, _ = _only_in_old(session.branch(), session.branch(jump.target_id))
        try:
            with signal:
                about = jump
                answer = await agent.hooks.ask(
                    "session_before_tree", lambda: {"preparation": preparation(session, about)}
                )
                if answer.get("cancel"):
                    return Navigated(True)
                jump, notes = _changed(jump, answer)
                if notes is None and jump.summarize and left:
                    notes = await _summarize(engine, left, jump)
        except Aborted:
            return Navigated(True, aborted=True)
        place, editor_text = landing(target)
        summary_id = None
        if notes is not None:
            summary_id = session.branch_with_summary(place, notes.text, notes.details, notes.from_hook, notes.usage)
        else:
            session.move(place)
        if jump.label:
            session.append_label(summary_id or jump.target_id, jump.label)
        agent.rebuild("tree")
    entry = session.entry(summary_id) if summary_id else None
    made = Navigated(False, editor_text=editor_text, summary_entry=entry.value if entry else None)
    await agent.hooks.notify(
        "session_tree",
        new_leaf_id=session.leaf_id,
        old_leaf_id=old_leaf,
        summary_entry=made.summary_entry,
        from_extension=notes.from_hook if notes else None,
    )
    return made


def _target(session: Session, jump: Jump) -> Entry:
    target = session.entry(jump.target_id)
    if target is None:
        raise AgentError(f"Entry {jump.target_id} not found")
    return target


def _only_in_old(old: Sequence[Entry], new: Sequence[Entry]) -> tuple[list[Entry], str | None]:
    """Return the entries that only the old branch has, oldest first, and the id of the last entry that both have."""
    kept = {entry.id for entry in new}
    common = [entry.id for entry in old if entry.id in kept]
    return [entry for entry in old if entry.id not in kept], common[-1] if common else None


def landing(target: Entry) -> tuple[str | None, str | None]:
    """Return the id of the entry to go on from, and the text to edit if the target is a message that was sent."""
    message = entry_message(target)
    if isinstance(message, UserMessage | CustomMessage):
        return target.parent_id, text_of(message.content)
    return target.id, None


# -- extensions ----------------------------------------------------------------------------------


def preparation(session: Session, jump: Jump) -> TreePreparation:
    left, ancestor = _only_in_old(session.branch(), session.branch(jump.target_id))
    return TreePreparation(
        jump.target_id,
        session.leaf_id,
        ancestor,
        [entry.value for entry in left],
        jump.summarize,
        jump.instructions,
        jump.replace_instructions,
        jump.label,
    )


def _changed(jump: Jump, answer: dict[str, Any]) -> tuple[Jump, _Notes | None]:
    """Apply the answer of extensions: other instructions, a label, or the summary itself. Raises `AgentError`."""
    changed = replace(
        jump,
        instructions=answer.get("customInstructions", jump.instructions),
        replace_instructions=bool(answer.get("replaceInstructions", jump.replace_instructions)),
        label=answer.get("label", jump.label),
    )
    given = answer.get("summary")
    if given is None:
        return changed, None
    if not isinstance(given, dict) or not isinstance(given.get("summary"), str):
        raise AgentError("An extension supplied a branch summary without a text")
    return changed, _Notes(given["summary"], given.get("details"), True)


# -- the summary ---------------------------------------------------------------------------------


async def _summarize(engine: Engine, left: Sequence[Entry], jump: Jump) -> _Notes | None:
    """Ask the model for notes on the branch that is left. Returns None if it has no messages. Raises `AgentError`."""
    model = engine.model
    if model is None:
        raise AgentError("No model available for summarization")
    budget = model.context_window - engine.settings.branch_summary.reserve_tokens
    messages = _newest_within(left, budget)
    if not messages:
        return None
    if jump.replace_instructions and jump.instructions:
        request = summary_request(messages, jump.instructions)
    else:
        request = summary_request(messages, BRANCH, instructions=jump.instructions)
    made = await engine.compactor.ask(request, SUMMARY_TOKENS, "Branch summarization failed", "branchSummary", None)
    files = _files(left)
    return _Notes(PREAMBLE + append_file_lists(made.text, files), files, False, made.answer.usage)


def _newest_within(left: Sequence[Entry], budget: int) -> list[AgentMessage]:
    """Return the messages to summarise, oldest first: as many of the newest as fit into the budget."""
    chosen: list[AgentMessage] = []
    used = 0
    for entry in reversed(left):
        message = entry_message(entry)
        if message is None or isinstance(message, ToolResultMessage):
            continue
        size = estimate_tokens(message)
        # A summary holds much in little space, so it may exceed the budget.
        if used + size > budget and not (entry.type in _SUMMARIES and used < 0.9 * budget):
            break
        chosen.append(message)
        used += size
    return chosen[::-1]


def _files(left: Sequence[Entry]) -> FileLists:
    messages = [message for entry in left if (message := entry_message(entry)) is not None]
    known = next((entry.value for entry in left if entry.type in _SUMMARIES), {})
    return file_lists(messages, known)
