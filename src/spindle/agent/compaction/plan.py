"""Decides where to cut a long conversation, and which part to summarise. Pure functions over session entries."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from msgspec import field

from spindle.llm.history import estimate_context, estimate_tokens
from spindle.sessions.entries import Entry
from spindle.sessions.tree import build_context, entry_message, results_in_call_order
from spindle.shapes.builtin_tools import kind_of
from spindle.shapes.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    ToolCall,
    UserMessage,
    Wire,
)

NO_HISTORY = "No prior history."
_TURN_ENTRIES = ("custom_message", "branch_summary")
FileLists: TypeAlias = dict[str, list[str]]
"""`readFiles` and `modifiedFiles` of the part that is summarised; sorted, disjoint."""


class CompactionPreparation(Wire):
    """What a compaction is about to do, as hooks see it too."""

    first_kept_entry_id: str
    messages_to_summarize: list[AgentMessage]
    """Whole turns."""
    turn_prefix_messages: list[AgentMessage]
    """The beginning of a turn whose end is kept."""
    is_split_turn: bool
    tokens_before: int
    previous_summary: str | None
    file_ops: FileLists
    settings: dict[str, Any] = field(default_factory=dict)
    """The user's settings, for hooks."""


def prepare_compaction(branch: Sequence[Entry], keep_recent_tokens: int) -> CompactionPreparation | None:
    """Plan a compaction of the branch (root first). Returns None if there is nothing to do."""
    if not branch or branch[-1].type == "compaction":
        return None
    previous = next((i for i in range(len(branch) - 1, -1, -1) if branch[i].type == "compaction"), None)
    start = 0 if previous is None else _first_kept(branch, previous)
    tokens_before = estimate_context(build_context(branch).messages)
    cut = _cut_point(branch, start, keep_recent_tokens)
    if cut is None:
        return None
    turn = None
    if not _starts_turn(branch[cut]):
        turn = next((i for i in range(cut, start - 1, -1) if _starts_turn(branch[i])), None)
    history_end = cut if turn is None else turn
    history = _messages(branch[start:history_end])
    prefix = [] if turn is None else _messages(branch[turn:cut])
    if not history and not prefix:
        return None
    before = branch[previous].value if previous is not None else {}
    files = file_lists([*history, *prefix], before)
    return CompactionPreparation(
        branch[cut].id, history, prefix, turn is not None, tokens_before, before.get("summary"), files
    )


def _first_kept(branch: Sequence[Entry], compaction: int) -> int:
    wanted = branch[compaction].value.get("firstKeptEntryId")
    return next((i for i in range(compaction) if branch[i].id == wanted), compaction + 1)


def _is_candidate(entry: Entry) -> bool:
    """Say whether the kept part may begin here: never with a tool result."""
    return _starts_turn(entry) or (entry.type == "message" and isinstance(entry.message, AssistantMessage))


def _starts_turn(entry: Entry) -> bool:
    if entry.type == "message":
        return isinstance(entry.message, UserMessage | BashExecutionMessage | CustomMessage)
    return entry.type in _TURN_ENTRIES


def _cut_point(branch: Sequence[Entry], start: int, keep_recent_tokens: int) -> int | None:
    candidates = [i for i in range(start, len(branch)) if _is_candidate(branch[i])]
    if not candidates:
        return None
    kept = 0
    cut = candidates[0]
    for index in range(len(branch) - 1, start - 1, -1):
        message = None if branch[index].type == "compaction" else entry_message(branch[index])
        if message is None:
            continue
        kept += estimate_tokens(message)
        if kept >= keep_recent_tokens:
            cut = next((i for i in candidates if i >= index), candidates[-1])
            break
    # Changes of model, labels and the like that stand right before the cut belong to the kept part.
    while cut > start and branch[cut - 1].type not in ("message", "compaction", *_TURN_ENTRIES):
        cut -= 1
    return cut


def _messages(entries: Iterable[Entry]) -> list[AgentMessage]:
    found = (None if entry.type == "compaction" else entry_message(entry) for entry in entries)
    messages = [message for message in found if message is not None]
    order = results_in_call_order(messages)
    return messages if order is None else [messages[at] for at in order]


def file_lists(messages: Iterable[AgentMessage], previous: dict[str, object]) -> FileLists:
    """Return the files that tool calls in `messages` touched, and those in `previous`, the entry of a summary."""
    read: set[str] = set()
    modified: set[str] = set()
    details = previous.get("details")
    if isinstance(details, dict) and not previous.get("fromHook"):
        read.update(path for path in details.get("readFiles") or () if isinstance(path, str))
        modified.update(path for path in details.get("modifiedFiles") or () if isinstance(path, str))
    for message in messages:
        if not isinstance(message, AssistantMessage):
            continue
        for block in message.content:
            if not isinstance(block, ToolCall) or not isinstance(block.arguments, dict):
                continue
            if isinstance(path := block.arguments.get("path"), str):
                if block.name == "read":
                    read.add(path)
                elif kind_of(block.name) == "edit":
                    modified.add(path)
    return {"readFiles": sorted(read - modified), "modifiedFiles": sorted(modified)}


def append_file_lists(summary: str, files: FileLists) -> str:
    for tag, paths in (("read-files", files["readFiles"]), ("modified-files", files["modifiedFiles"])):
        if paths:
            summary += f"\n\n<{tag}>\n" + "\n".join(paths) + f"\n</{tag}>"
    return summary
