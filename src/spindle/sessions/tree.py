"""The entries of a session as a tree with a leaf, and the context of a model at that leaf.

Plain data in memory: nothing here knows files. The tree copes with all damage of a file: parents that are missing,
later or circular, and ids that occur twice. Nothing here recurses, so depth has no bound.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from spindle.sessions.entries import (
    Entry,
    Header,
    LabelEntry,
    SessionError,
    collector_paused,
    new_entry_id,
    parse_time,
    text_or_empty,
)
from spindle.sessions.facts import fact_in
from spindle.sessions.stand_ins import MAIN_ROLES, StandIn
from spindle.shapes.codec import encode
from spindle.shapes.messages import (
    AgentMessage,
    AssistantMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    OpaqueMessage,
    Text,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    message_from_value,
)

PAGE_BYTES = 1 << 20
"""A page of entries ends with the one that makes it so long."""


class EntryNotFound(SessionError):
    def __init__(self, entry_id: str) -> None:
        super().__init__(f"Entry {entry_id} not found")


class TreeNode(msgspec.Struct, eq=False, gc=False):
    entry: Entry
    children: list["TreeNode"] = []
    label: str | None = None
    label_timestamp: str | None = None


class Flaw(msgspec.Struct, frozen=True):
    """A fault in how one entry is linked to the others."""

    kind: str
    entry: Entry
    text: str


class Tree:
    def __init__(self, header: Header, entries: Iterable[Entry] = ()) -> None:
        self.header = header
        self.entries: list[Entry] = []
        """All entries in file order, also those whose id occurs again later."""
        self.leaf_id: str | None = None
        """The parent of the next entry; None: it becomes a root."""
        self.name: str | None = None
        """The session's name: the last one given, on whatever branch."""
        self.flaws: list[Flaw] = []
        self._by_id: dict[str | None, Entry] = {}
        """The last entry with each id; no entry has the id None."""
        self._labels: dict[str, Entry] = {}
        """Target → the label entry in force, in the order in which the labels were first set."""
        self._cut: set[str] = set()
        """Entries whose parent link would close a circle; they count as roots."""
        self._branch: list[Entry] = []
        """The path that `path_to` found last, mostly to the leaf. Empty until the first call."""
        self._children: dict[str | None, list[Entry]] | None = None
        """Built on the first call of `children`, then kept up to date."""
        self.adopt(entries)
        if self.entries:
            self.leaf_id = self.entries[-1].id

    # -- adding ----------------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Add a new entry below an existing one (or as a root) and make it the leaf."""
        self.entries.append(entry)
        self._by_id[entry.id] = entry
        if self._children is not None:
            self._children.setdefault(entry.parent_id, []).append(entry)
        if self._branch and self._branch[-1].id == entry.parent_id:
            self._branch.append(entry)
        self._note(entry)
        self.leaf_id = entry.id

    def adopt(self, entries: Iterable[Entry]) -> None:
        """Add entries from a file, in its order. The leaf stays where it is."""
        by_id = self._by_id
        doubles = []
        strays = [flaw.entry for flaw in self.flaws if flaw.kind == "orphan"]  # their parents may come now
        self.flaws = [flaw for flaw in self.flaws if flaw.kind != "orphan"]
        for entry in entries:
            if entry.parent_id is not None:
                parent = by_id.get(entry.parent_id)
                if parent is None:
                    strays.append(entry)
                else:
                    entry.parent_id = parent.id  # one string in memory instead of two equal ones
            if entry.id in by_id:
                doubles.append(entry)
            by_id[entry.id] = entry
            self.entries.append(entry)
            if entry.type in ("label", "session_info"):
                self._note(entry)
        self._branch, self._children = [], None
        for entry in doubles:
            self.flaws.append(Flaw("duplicate id", entry, f"id {entry.id} was used before; the later entry counts"))
        for entry in strays:
            if entry.parent_id not in by_id:
                self.flaws.append(Flaw("orphan", entry, f"the parent {entry.parent_id} of {entry.id} is missing"))
        # A circle needs a parent that comes later, or an id that comes twice.
        if doubles or any(entry.parent_id in by_id for entry in strays):
            self._cut_circles()

    def _note(self, entry: Entry) -> None:
        """Remember labels and names; the last one in file order wins."""
        if entry.type == "label":
            value = entry.value
            target = value.get("targetId")
            if isinstance(target, str):
                if isinstance(value.get("label"), str) and value["label"]:
                    self._labels[target] = entry
                else:
                    self._labels.pop(target, None)
        elif entry.type == "session_info":
            name = entry.value.get("name")
            self.name = (name.strip() if isinstance(name, str) else "") or None

    def _cut_circles(self) -> None:
        """Find every circle of parents and cut it where a walk up from its latest entry would close it."""
        self._cut.clear()  # a later entry with the same id may have opened a circle
        self.flaws = [flaw for flaw in self.flaws if flaw.kind != "cycle"]
        settled: set[str] = set()
        for entry in reversed(self.entries):
            trail: dict[str, None] = {}
            node: Entry | None = self._by_id[entry.id]
            while node is not None and node.id not in settled:
                if node.id in trail:
                    last = next(reversed(trail))
                    self._cut.add(last)
                    self.flaws.append(Flaw("cycle", self._by_id[last], f"{last} is among its own ancestors"))
                    break
                trail[node.id] = None
                node = self.parent(node)
            settled.update(trail)

    # -- looking ---------------------------------------------------------------------------------

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._by_id

    def get(self, entry_id: str | None) -> Entry | None:
        return self._by_id.get(entry_id)

    def require(self, entry_id: str) -> Entry:
        """Return the entry. Raises `EntryNotFound`."""
        entry = self._by_id.get(entry_id)
        if entry is None:
            raise EntryNotFound(entry_id)
        return entry

    def parent(self, entry: Entry) -> Entry | None:
        return None if entry.id in self._cut else self._by_id.get(entry.parent_id)

    def path_to(self, entry_id: str | None) -> list[Entry]:
        """Return the entries from the root to `entry_id`; an empty list if it is unknown."""
        by_id, cut = self._by_id, self._cut
        entry = by_id.get(entry_id)
        if entry is None:
            return []
        if not self._branch or self._branch[-1] is not entry:
            path = []
            while entry is not None:
                path.append(entry)
                entry = by_id.get(entry.parent_id) if entry.id not in cut else None
            path.reverse()
            self._branch = path
        return self._branch[:]

    def children(self, entry_id: str | None) -> list[Entry]:
        """Return the children in file order; of None: the roots."""
        if self._children is None:
            self._children = {}
            for entry in self._by_id.values():
                parent = self.parent(entry)
                self._children.setdefault(parent.id if parent else None, []).append(entry)
        return self._children.get(entry_id, [])

    def label(self, entry_id: str) -> str | None:
        entry = self._labels.get(entry_id)
        return entry.value["label"] if entry else None

    def labels(self) -> dict[str, tuple[str, str]]:
        """Return target → (label, time it was set)."""
        return {target: (entry.value["label"], entry.timestamp) for target, entry in self._labels.items()}

    # -- the whole tree --------------------------------------------------------------------------

    def nodes(self) -> list[TreeNode]:
        """Return the roots in file order, with all nodes below them; siblings are sorted by time."""
        by_id, cut = self._by_id, self._cut
        with collector_paused():
            nodes = {entry_id: TreeNode(entry) for entry_id, entry in by_id.items()}
            roots: list[TreeNode] = []
            for entry_id, node in nodes.items():
                parent = nodes.get(node.entry.parent_id) if entry_id not in cut else None
                (roots if parent is None else parent.children).append(node)
            for node in nodes.values():
                if len(node.children) > 1:
                    _sort_by_time(node.children)
            for target, (label, timestamp) in self.labels().items():
                if target in nodes:
                    nodes[target].label, nodes[target].label_timestamp = label, timestamp
        return roots

    def to_json(self, sent: Callable[[bytes], bytes] = bytes) -> bytes:
        """Return `nodes()` as a JSON array of `{entry, children, label?, labelTimestamp?}`; `sent` makes an entry."""
        pieces = [b"["]
        # A node to begin, or the text that ends one.
        stack: list[TreeNode | bytes] = list(reversed(self.nodes()))
        while stack:
            item = stack.pop()
            if isinstance(item, bytes):
                pieces.append(item)
                continue
            if pieces[-1].endswith(b"}"):
                pieces.append(b",")
            pieces += (b'{"entry":', sent(item.entry.wire), b',"children":[')
            label = b""
            if item.label is not None:
                label = b',"label":' + encode(item.label) + b',"labelTimestamp":' + encode(item.label_timestamp)
            stack.append(b"]" + label + b"}")
            stack += reversed(item.children)
        pieces.append(b"]")
        return b"".join(pieces)

    def to_flat_json(self, sent: Callable[[bytes], bytes] = bytes) -> bytes:
        """Return `nodes()` as a flat JSON array: parents before their children, siblings in order.

        An item is `{id, parentId, entry, label?, labelTimestamp?}`; `parentId` is null for a root.
        """
        items = []
        stack: list[tuple[TreeNode, str | None]] = [(root, None) for root in reversed(self.nodes())]
        while stack:
            node, parent_id = stack.pop()
            item = {"id": node.entry.id, "parentId": parent_id, "entry": msgspec.Raw(sent(node.entry.wire))}
            if node.label is not None:
                item |= {"label": node.label, "labelTimestamp": node.label_timestamp}
            items.append(item)
            stack += [(child, node.entry.id) for child in reversed(node.children)]
        return encode(items)

    def page_to_json(
        self, since: str | None, before: str | None, limit: int | None, sent: Callable[[bytes], bytes] = bytes
    ) -> tuple[bytes, bool]:
        """Return entries (after `since`, before `before`) as a JSON array in file order. Raises `SessionError`.

        With a limit they are the last ones, not much longer than 1 MiB together; the second value says whether there
        are more.
        """
        start = 0 if since is None else self._place(since) + 1
        end = len(self.entries) if before is None else self._place(before)
        if limit is None:
            return b"[%b]" % b",".join([sent(entry.wire) for entry in self.entries[start:end]]), False
        lines: list[bytes] = []
        size = 0
        while end > start and len(lines) < limit and size < PAGE_BYTES:
            end -= 1
            lines.append(sent(self.entries[end].wire))
            size += len(lines[-1])
        return b"[%b]" % b",".join(reversed(lines)), end > start

    def _place(self, entry_id: str) -> int:
        """Return where an entry stands in the file; most that are asked for are near the end. Raises `SessionError`."""
        entry = self._by_id.get(entry_id)
        if entry is None:
            raise SessionError(f"Entry not found: {entry_id}")
        return next(at for at in range(len(self.entries) - 1, -1, -1) if self.entries[at] is entry)


def _sort_by_time(siblings: list[TreeNode]) -> None:
    """Put the oldest first; leave them in file order if a time cannot be read."""
    times = {id(node): parse_time(node.entry.timestamp) for node in siblings}
    if None not in times.values():
        siblings.sort(key=lambda node: times[id(node)] or 0)


def branched_entries(tree: Tree, leaf_id: str) -> list[Entry]:
    """Return copies of the entries from the root to `leaf_id`, linked without gaps.

    Label entries of the path are left out; labels that are in force on it are set again at its end.
    """
    path = tree.path_to(leaf_id)
    successors: dict[str, str | None] = {}
    following = None
    for entry in reversed(path):
        if entry.type == "label":
            successors[entry.id] = following
        else:
            following = entry.id
    entries = chain((entry for entry in path if entry.type != "label"), successors)
    kept = {entry.id for entry in entries}
    taken = set(kept)
    for target, (label, timestamp) in tree.labels().items():
        if target in kept:
            entries.append(Entry.of(LabelEntry(new_entry_id(taken), entries[-1].id, timestamp, target, label)))
            taken.add(entries[-1].id)
    return entries


def chain(path: Iterable[Entry], successors: Mapping[str, str | None] | None = None) -> list[Entry]:
    """Return the entries, each with the one before it as parent; `successors` maps left out ids to their stand-ins."""
    chained: list[Entry] = []
    for entry in path:
        changes: dict[str, str | None] = {}
        parent_id = chained[-1].id if chained else None
        if entry.parent_id != parent_id:
            changes["parentId"] = parent_id
        if successors and entry.type == "compaction":
            first_kept = entry.value.get("firstKeptEntryId")
            if isinstance(first_kept, str) and first_kept in successors:
                changes["firstKeptEntryId"] = successors[first_kept] or entry.id
        chained.append(entry.edited(changes) if changes else entry)
    return chained


# -- the context -------------------------------------------------------------------------------------


class SessionContext(msgspec.Struct):
    messages: list[AgentMessage] = []
    thinking_level: str = "off"
    model: tuple[str, str] | None = None
    """Provider and model id."""
    entry_ids: list[str] = []
    """The entry that each message comes from."""
    stored: list[Any] = []
    """The messages as the file has them: some as JSON, with keys of other programs that we do not know."""

    @property
    def thinkingLevel(self) -> str:
        return self.thinking_level

    def pick(self, places: Sequence[int]) -> None:
        """Keep the messages at these places, in this order."""
        self.messages = [self.messages[at] for at in places]
        self.entry_ids = [self.entry_ids[at] for at in places]
        self.stored = [self.stored[at] for at in places]


def build_context(path: Sequence[Entry]) -> SessionContext:
    """Return the messages of `path` (root first) and the model and thinking level in force at its end.

    The last compaction replaces the messages before it, except those it kept. Entries of newer programs that hide or
    replace a message (`context_edit`) are respected.
    """
    marks = [entry for entry in path if entry.type != "message"]  # few, in a long session
    context = SessionContext(thinking_level=thinking_level_in_force(marks) or "off", model=model_in_force(path))
    with collector_paused():
        chosen = _choose(path, marks)
        edits = _edits(chosen) if any(entry.type == "context_edit" for entry in marks) else {}
        messages, ids, stored = context.messages, context.entry_ids, context.stored
        for entry in chosen:
            message: AgentMessage | None
            if entry.type == "message":
                message = entry.message
                if type(message) is OpaqueMessage and message.value is None:
                    continue
            else:
                message = entry_message(entry)
                if message is None:
                    continue
                # Newer programs store a system message with their compactions.
                system = entry.value.get("systemMessage") if entry.type == "compaction" else None
                if isinstance(system, dict) and entry.id not in edits:
                    messages.append(message_from_value(system))
                    ids.append(entry.id)
                    stored.append(messages[-1])
            if edits and entry.id in edits and (message := _edited(message, edits[entry.id])) is None:
                continue
            messages.append(message)
            ids.append(entry.id)
            stored.append(entry.as_stored(message))
    order = results_in_call_order(messages)
    if order is not None:
        context.pick(order)
    return context


def _edits(entries: Iterable[Entry]) -> dict[str, Any]:
    """Return the replacements of messages, by the ids of their entries."""
    changes = [entry.value for entry in entries if entry.type == "context_edit"]
    return {text_or_empty(change.get("targetId")): change.get("replacement", ...) for change in changes}


def results_in_call_order(messages: Sequence[AgentMessage]) -> list[int] | None:
    """Return the messages' positions with the results of each answer sorted by its calls; None if they are sorted.

    The file has results in the order in which the calls ended.
    """
    order: list[int] | None = None
    for index, answer in enumerate(messages):
        if type(answer) is not AssistantMessage:
            continue
        blocks = answer.content
        if len(blocks) < 2 or (len(blocks) == 2 and type(blocks[0]) is not ToolCall):
            continue  # most answers; a quick check, as long sessions have many
        calls = [block.id for block in blocks if type(block) is ToolCall]
        if len(calls) < 2:
            continue
        places = []
        for at in range(index + 1, len(messages)):
            message = messages[at]
            if isinstance(message, ToolResultMessage) and message.tool_call_id in calls:
                places.append((calls.index(message.tool_call_id), at))
            elif isinstance(message, AssistantMessage | UserMessage):
                break
        if places != sorted(places):
            order = order or list(range(len(messages)))
            for (_, at), (_, found) in zip(places, sorted(places), strict=True):
                order[at] = found
    return order


def entry_message(entry: Entry) -> AgentMessage | None:
    """Return the message or summary of one entry; None if it has neither."""
    if entry.type == "message":
        return entry.message
    if entry.type == "custom_message":
        return message_from_value({**entry.value, "role": "custom", "timestamp": parse_time(entry.timestamp)})
    if entry.type not in ("branch_summary", "compaction"):
        return None
    value, time = entry.value, parse_time(entry.timestamp)
    summary, origin, tokens = text_or_empty(value.get("summary")), value.get("fromId"), value.get("tokensBefore")
    if entry.type == "compaction":
        return CompactionSummaryMessage(summary, tokens if isinstance(tokens, (int, float)) else 0, time)
    return BranchSummaryMessage(summary, origin if isinstance(origin, str) else "root", time) if summary else None


def _choose(path: Sequence[Entry], marks: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries that count: all, or the last compaction, the entries it kept, and those that follow it.

    Nothing before the mark of oh-my-pi's `/clear` counts.
    """
    if (reset := next((entry for entry in reversed(marks) if entry.type == "reset_boundary"), None)) is not None:
        after = path.index(reset) + 1
        return _choose(path[after:], [entry for entry in path[after:] if entry.type != "message"])
    compaction = next((entry for entry in reversed(marks) if entry.type == "compaction"), None)
    if compaction is None:
        return path
    at = path.index(compaction)
    first_kept = compaction.value.get("firstKeptEntryId")
    start = next((index for index in range(at) if path[index].id == first_kept), at)
    # Older compactions do not count any more, and old system prompts are not kept.
    said = (entry for entry in islice(path, start, at) if entry.type != "compaction")
    kept = [entry for entry in said if entry.type != "message" or entry.message.role != "system"]
    return [compaction, *kept, *islice(path, at + 1, None)]


def _edited(message: AgentMessage, replacement: Any) -> AgentMessage | None:
    """Return the message with the replacement as its content; None if it is to be left out."""
    if replacement is None:
        return None
    content = replacement.get("content") if isinstance(replacement, dict) else None
    if not isinstance(content, (str, list)):
        return message
    if not isinstance(message, (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)):
        return message
    if isinstance(content, str) and isinstance(message, (AssistantMessage, ToolResultMessage)):
        content = [Text(content)]
    return message_from_value({**msgspec.to_builtins(message), "content": msgspec.to_builtins(content)})


def thinking_level_in_force(path: Sequence[Entry]) -> str | None:
    """Return the last thinking level that was set, if any."""
    for entry in reversed(path):
        if entry.type == "thinking_level_change":
            level = entry.value.get("thinkingLevel")
            return level if isinstance(level, str) else "off"
    return None


def model_in_force(path: Sequence[Entry]) -> tuple[str, str] | None:
    """Return the last model that was chosen or that answered, also before a compaction.

    If that model only stood in for another one, return the other one.
    """
    for index in range(len(path) - 1, -1, -1):
        entry = path[index]
        provider = model = None
        if entry.type == "model_change":
            value = entry.value
            provider, model = value.get("provider"), value.get("modelId")
            if isinstance(both := value.get("model"), str) and value.get("role") in (None, "default"):  # oh-my-pi
                provider, _, model = both.partition("/")
        elif entry.type == "message":
            message = entry.message
            if isinstance(message, AssistantMessage):
                return _stood_in_for(path[:index], message.provider, message.model)
            if isinstance(message, OpaqueMessage) and message.role == "assistant":
                provider, model = message.value.get("provider"), message.value.get("model")
        if isinstance(provider, str) and isinstance(model, str):
            return provider, model
    return None


def _stood_in_for(path: Sequence[Entry], provider: str, model: str) -> tuple[str, str]:
    """Return the model in whose place a model answered at the end of `path`; the model itself if it was chosen."""
    for entry in reversed(path):
        if entry.type == "model_change":
            break
        fact = fact_in(entry, StandIn)
        if fact is not None and fact.role in MAIN_ROLES and fact.after == f"{provider}/{model}":
            chosen, _, id = fact.chosen.partition("/")
            return chosen, id
    return provider, model


def tools_in_force(path: Sequence[Entry]) -> list[str] | None:
    """Return the tools that the model had at the end of `path`, as pi's system messages tell it; None if none does."""
    names: dict[str, None] | None = None
    for entry in path:
        system: Any = None
        if entry.type == "compaction":
            system = entry.value.get("systemMessage")
            names = {} if isinstance(system, dict) else names  # it tells all of them again
        elif entry.type == "message" and isinstance(entry.message, OpaqueMessage) and entry.message.role == "system":
            system = entry.message.value
        if isinstance(system, dict) and ("toolsAdded" in system or "toolsRemoved" in system):
            names = names or {}
            for name in _names(system.get("toolsRemoved")):
                names.pop(name, None)
            names |= dict.fromkeys(_names(system.get("toolsAdded")))
    return None if names is None else list(names)


def _names(tools: Any) -> list[str]:
    given = tools if isinstance(tools, list) else []
    return [tool["name"] for tool in given if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
