"""Long sessions: no recursion, no step that grows faster than the session. CPU time and ratios, never wall time."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from spindle.sessions import SessionManager
from spindle.shapes.codec import encode

from .helpers import HEADER, user

DEEP = 100_000


def write_entries(path: Path, parents: Iterable[str | None]) -> Path:
    """Write one entry per parent; their ids are their numbers in hex."""
    lines = [encode(HEADER)]
    for number, parent in enumerate(parents):
        lines.append(
            b'{"type":"message","id":"%08x","parentId":%s,"timestamp":"2025-01-01T00:00:01.000Z",'
            b'"message":{"role":"user","content":"text","timestamp":1}}' % (number, encode(parent))
        )
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def write_chain(path: Path, count: int) -> Path:
    return write_entries(path, [None, *(f"{number:08x}" for number in range(count - 1))])


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chain(tmp_path_factory.mktemp("deep") / "s.jsonl", DEEP)


def cpu(work: Callable[[], object]) -> float:
    """Return the least CPU time of three runs."""

    def once() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return min(once() for _ in range(3))


def test_a_chain_of_a_hundred_thousand_entries(deep: Path) -> None:
    with SessionManager.open(deep, read_only=True) as manager:
        assert len(manager.get_branch()) == DEEP
        assert len(manager.build_session_context().messages) == DEEP
        rendered = manager.tree_json()
        assert rendered.count(b'{"entry":') == DEEP
        assert rendered.endswith(b"]}" * DEEP + b"]")
        assert len(manager.entries_json()) > DEEP * 100
        depth, level = 0, manager.get_tree()
        while level:
            depth, level = depth + 1, level[0].children
        assert depth == DEEP


def test_a_fan_of_a_hundred_thousand_children(tmp_path: Path) -> None:
    path = write_entries(tmp_path / "s.jsonl", [None, *("00000000" for _ in range(DEEP - 1))])
    with SessionManager.open(path, read_only=True) as manager:
        assert len(manager.get_children("00000000")) == DEEP - 1
        assert manager.tree_json().count(b'{"entry":') == DEEP


def test_a_circle_of_a_hundred_thousand_entries_is_cut_once(deep: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(deep.read_bytes().replace(b'"parentId":null', b'"parentId":"%08x"' % (DEEP - 1)))
    with SessionManager.open(path, read_only=True) as manager:
        assert [item.kind for item in manager.damage] == ["cycle"]
        assert len(manager.get_branch()) == DEEP


def test_opening_is_linear(tmp_path: Path) -> None:
    small, large = write_chain(tmp_path / "a.jsonl", 4_000), write_chain(tmp_path / "b.jsonl", 32_000)

    def load(path: Path) -> None:
        with SessionManager.open(path, read_only=True) as manager:
            manager.build_session_context()
            manager.tree_json()

    assert cpu(lambda: load(large)) < 8 * 2.5 * cpu(lambda: load(small))


def test_appends_do_not_slow_down_as_the_file_grows(deep: Path, tmp_path: Path) -> None:
    def append(manager: SessionManager) -> None:
        for _ in range(300):
            manager.append_message(user())

    with SessionManager.create("/srv/demo", tmp_path) as short:
        append(short)
        at_the_start = cpu(lambda: append(short))
    copy = tmp_path / "long.jsonl"
    copy.write_bytes(deep.read_bytes())
    with SessionManager.open(copy) as long:
        assert cpu(lambda: append(long)) < 3 * at_the_start
