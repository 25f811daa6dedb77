"""Every store keeps the promises of stores: `check_store` on files and on a real PostgreSQL."""

from pathlib import Path

import pytest

from spindle.sessions.store import open_store
from spindle.testing import BrokenPromise, check_store
from tests.support import postgres


def test_files_keep_the_promises(tmp_path: Path) -> None:
    assert "leases_to_one" in check_store(lambda: open_store(str(tmp_path / "store")))


def test_postgresql_keeps_the_promises() -> None:
    address = postgres.database()
    assert len(check_store(lambda: open_store(address))) == 10


def test_a_store_that_asks_for_no_lease_to_add_nothing_is_found_out(tmp_path: Path) -> None:
    from spindle.sessions.file_store import FileStore

    class Careless(FileStore):
        def within(self, space: str) -> "Careless":
            return Careless(tmp_path / space)

        def append(self, lease, lines, expected, card):  # type: ignore[no-untyped-def]
            return super().append(lease, lines, expected, card) if lines else None

    with pytest.raises(BrokenPromise, match="without lines"):
        check_store(lambda: Careless(tmp_path))


def test_a_store_that_forgets_a_line_is_found_out(tmp_path: Path) -> None:
    from spindle.sessions.file_store import FileStore

    class Forgetful(FileStore):
        def within(self, space: str) -> "Forgetful":
            return Forgetful(tmp_path / space)

        def load(self, session, since=0):  # type: ignore[no-untyped-def]
            found = super().load(session, since)
            return found and type(found)(found.revision, found.lines[:-1], found.card)

    with pytest.raises(BrokenPromise, match="byte for byte"):
        check_store(lambda: Forgetful(tmp_path))
