"""Whatever is done to a session, its tree stays a tree and the file tells the same story after reopening."""

import json
import re
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spindle.sessions import SessionError, SessionManager
from spindle.shapes.codec import decode, encode

from .helpers import assistant, entry, user, write_session

texts = st.text(st.characters(), max_size=20)
picks = st.integers(0, 1_000_000)


class Session(RuleBasedStateMachine):
    """Keeps a simple account of its own beside the manager."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.manager = SessionManager.create("/srv/demo", self.directory, fsync="never")
        self.parents: dict[str, str | None] = {}
        self.leaf: str | None = None
        self.labels: dict[str, str] = {}
        self.name: str | None = None

    def teardown(self) -> None:
        if hasattr(self, "manager"):
            self.manager.close()
            shutil.rmtree(self.directory)

    def grew(self, entry_id: str) -> None:
        assert entry_id not in self.parents
        self.parents[entry_id] = self.leaf
        self.leaf = entry_id

    def some(self, pick: int) -> str:
        return list(self.parents)[pick % len(self.parents)]

    def is_on_disk(self) -> bool:
        return Path(self.manager.get_session_file() or "").exists()

    # -- what can be done ------------------------------------------------------------------------

    @rule(text=texts)
    def ask(self, text: str) -> None:
        self.grew(self.manager.append_message(user(text)))

    @rule(text=texts)
    def answer(self, text: str) -> None:
        self.grew(self.manager.append_message(assistant(text)))

    @rule(level=texts)
    def think(self, level: str) -> None:
        self.grew(self.manager.append_thinking_level_change(level))

    @rule(text=texts)
    def note(self, text: str) -> None:
        self.grew(self.manager.append_custom_message_entry("k", text, True))

    @rule(name=texts)
    def rename(self, name: str) -> None:
        self.grew(self.manager.append_session_info(name))
        self.name = re.sub(r"[\r\n]+", " ", name).strip() or None

    @precondition(lambda self: self.parents)
    @rule(pick=picks, label=st.none() | texts)
    def relabel(self, pick: int, label: str | None) -> None:
        target = self.some(pick)
        self.grew(self.manager.append_label_change(target, label))
        if label:
            self.labels[target] = label
        else:
            self.labels.pop(target, None)

    @precondition(lambda self: self.parents)
    @rule(pick=picks)
    def compact(self, pick: int) -> None:
        self.grew(self.manager.append_compaction("summary", self.some(pick), 1))

    @precondition(lambda self: self.parents)
    @rule(pick=picks)
    def jump(self, pick: int) -> None:
        self.leaf = self.some(pick)
        self.manager.branch(self.leaf)

    @rule()
    def jump_before_the_first(self) -> None:
        self.leaf = None
        self.manager.reset_leaf()

    @precondition(lambda self: self.parents)
    @rule(pick=picks)
    def jump_with_summary(self, pick: int) -> None:
        target = self.some(pick)
        summary = self.manager.branch_with_summary(target, "tried")
        self.leaf = target
        self.grew(summary)

    @precondition(lambda self: self.parents)
    @rule(pick=picks)
    def continue_a_copy_of_one_path(self, pick: int) -> None:
        target = self.some(pick)
        path = [e for e in self.manager.get_branch(target) if e.type != "label"]
        seen = len(self.manager.build_session_context().messages) if self.leaf == target else None
        self.manager.create_branched_session(target)
        ids = [e.id for e in path]
        self.labels = {t: label for t, label in self.labels.items() if t in ids}
        names = [e.value["name"].strip() or None for e in path if e.type == "session_info"]
        self.name = names[-1] if names else None
        self.parents, self.leaf = {}, None
        for grown in self.manager.get_entries():
            self.grew(grown.id)
        assert [e.id for e in self.manager.get_entries()][: len(ids)] == ids
        assert len(self.parents) == len(ids) + len(self.labels)
        if seen is not None:
            assert len(self.manager.build_session_context().messages) == seen

    @precondition(lambda self: self.is_on_disk())
    @rule()
    def reopen(self) -> None:
        self.manager.close()
        self.manager = SessionManager.open(self.manager.get_session_file() or "", fsync="never")
        assert self.manager.damage == []
        self.leaf = list(self.parents)[-1] if self.parents else None

    @precondition(lambda self: self.is_on_disk())
    @rule(torn=st.binary(min_size=1, max_size=30).map(lambda data: data.translate(None, b"\n}") or b"{"))
    def crash(self, torn: bytes) -> None:
        path = Path(self.manager.get_session_file() or "")
        self.manager.close()
        path.write_bytes(path.read_bytes() + b"{" + torn)
        self.manager = SessionManager.open(path, fsync="never")
        self.leaf = list(self.parents)[-1] if self.parents else None
        self.ask("after a crash")

    # -- what must be true -----------------------------------------------------------------------

    @invariant()
    def the_account_agrees(self) -> None:
        manager = self.manager
        assert {e.id: e.parent_id for e in manager.get_entries()} == self.parents
        assert [e.id for e in manager.get_entries()] == list(self.parents)
        assert manager.get_leaf_id() == self.leaf
        assert manager.get_session_name() == self.name
        assert {t: manager.get_label(t) for t in self.parents if manager.get_label(t)} == self.labels
        assert manager.write_error is None

    @invariant()
    def the_path_leads_from_a_root_to_the_leaf(self) -> None:
        path = [e.id for e in self.manager.get_branch()]
        expected: list[str] = []
        step = self.leaf
        while step is not None:
            expected.append(step)
            step = self.parents[step]
        assert path == expected[::-1]
        assert set(self.manager.build_session_context().entry_ids) <= set(path)

    @invariant()
    def the_tree_holds_each_entry_once_under_its_parent(self) -> None:
        found: dict[str, str | None] = {}
        stack: list[tuple[dict, str | None]] = [(node, None) for node in decode(self.manager.tree_json())]
        while stack:
            node, parent = stack.pop()
            assert node["entry"]["id"] not in found
            found[node["entry"]["id"]] = parent
            assert node.get("label") == self.labels.get(node["entry"]["id"])
            stack.extend((child, node["entry"]["id"]) for child in node["children"])
        assert found == self.parents


Session.TestCase.settings = settings(max_examples=40, stateful_step_count=25, suppress_health_check=list(HealthCheck))
TestSession = Session.TestCase


# -- files that nobody should have written -------------------------------------------------------

ids = st.sampled_from(["a", "b", "c", "d"])
odd_values = st.none() | st.booleans() | st.integers() | texts | st.lists(st.integers(), max_size=2)
odd_entries = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "label", "session_info", "compaction", "context_edit", "session", "x"])
        | odd_values,
        "id": ids | odd_values,
        "parentId": ids | odd_values,
        "timestamp": st.sampled_from(["2025-01-01T00:00:00.000Z", "soon"]) | odd_values,
        "message": odd_values
        | st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "system", "toolResult", "custom", "?"])},
            optional={"content": odd_values, "timestamp": odd_values, "usage": odd_values},
        ),
        "targetId": ids | odd_values,
        "label": odd_values,
        "name": odd_values,
        "summary": odd_values,
        "firstKeptEntryId": ids | odd_values,
        "replacement": odd_values,
    },
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(odd_entries | odd_values, max_size=8), junk=st.lists(st.binary(max_size=10), max_size=3))
@example(values=[{"type": "context_edit", "id": "a", "targetId": []}], junk=[])
def test_no_file_makes_us_fail_hang_or_write(tmp_path: Path, values: list[object], junk: list[bytes]) -> None:
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2025-01-01T00:00:00.000Z", "cwd": "/p"}
    path = tmp_path / "odd.jsonl"
    path.write_bytes(b"\n".join([encode(header), *map(encode, values), *junk]))
    before = path.read_bytes()
    try:
        manager = SessionManager.open(path, fsync="never")
    except SessionError:
        assert path.read_bytes() == before
        return
    with manager:
        manager.build_session_context()
        distinct = {entry.id for entry in manager.get_entries()}
        assert manager.tree_json().count(b'{"entry":') >= len(distinct)
        assert len(decode(manager.entries_json())) == len(manager.get_entries())
        SessionManager.list("/p", tmp_path)
        for entry_id in distinct:
            assert manager.get_branch(entry_id)[-1].id == entry_id
        assert path.read_bytes() == before
        mine = manager.append_message(user())
    start = before.rfind(b"\n") + 1  # a last line that looks torn goes
    assert path.read_bytes().startswith(before[:start] if before[start:].startswith(b"{") and start else before)
    with SessionManager.open(path, fsync="never") as again:
        assert again.get_leaf_id() == mine


# -- what another program adds while we are at it ------------------------------------------------

links = st.tuples(ids, st.none() | ids | st.just("gone"))
deeds = st.one_of(
    st.tuples(st.just("they write"), st.lists(links, min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["ask", "reset", "reopen"]), st.none()),
    st.tuples(st.sampled_from(["move", "look", "fork"]), picks),
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.lists(links, max_size=4), todo=st.lists(deeds, max_size=12))
@example(first=[("a", "b")], todo=[("they write", [("b", "a")])])  # the circle is closed by a later look at the file
@example(first=[("a", "b"), ("b", "a")], todo=[("they write", [("a", None)])])  # and this one is opened
def test_paths_and_children_follow_the_links_whatever_others_write(
    tmp_path: Path, first: list[tuple[str, str | None]], todo: list[tuple[str, Any]]
) -> None:
    path = write_session(tmp_path / "shared.jsonl", [entry(*link) for link in first])
    manager = SessionManager.open(path, fsync="never")
    for deed, what in [*todo, ("ask", None)]:
        known = [e.id for e in manager.get_entries()]
        some = known[what % len(known)] if isinstance(what, int) and known else None
        if deed == "they write":
            with path.open("a") as file:
                file.writelines(json.dumps(entry(*link)) + "\n" for link in what)
        elif deed == "ask":
            manager.append_message(user())
        elif deed == "reset":
            manager.reset_leaf()
        elif deed == "reopen":
            manager.close()
            manager = SessionManager.open(path, fsync="never")
        elif deed == "move" and some:
            manager.branch(some)
        elif deed == "look":
            manager.get_branch(some)
            manager.get_children(some)
        elif deed == "fork" and some:
            manager.create_branched_session(some)
            path = Path(manager.get_session_file() or "")
        _links_are_followed(manager)
    manager.close()


def _links_are_followed(manager: SessionManager) -> None:
    holders = {e.id: e for e in manager.get_entries()}  # the last one counts

    def ancestors(entry_id: str) -> list[str]:
        found: list[str] = []
        step = holders[entry_id].parent_id
        while step in holders and step not in found:
            found.append(step)
            step = holders[step].parent_id
        return found

    for entry_id in holders:
        path = manager.get_branch(entry_id)
        assert path[-1] is holders[entry_id]
        assert len({e.id for e in path}) == len(path)
        for parent, child in pairwise(path):
            assert parent is holders[child.parent_id or ""]
            assert child in manager.get_children(parent.id)
        root = path[0]
        assert root.parent_id not in holders or root.id in ancestors(root.id), "only a circle may be cut"
        assert root in manager.get_children(None)
