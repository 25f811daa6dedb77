"""Whether a look that asks the kernel once sees what one sees that asks each folder."""

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spindle.workspace import folder_events, git_dirs
from spindle.workspace.folder_events import FolderEvents
from spindle.workspace.git_dirs import GitDirs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify")


@pytest.fixture
def dirs(tmp_path: Path) -> GitDirs:
    (tmp_path / "a/b").mkdir(parents=True)
    dirs = GitDirs([str(tmp_path)])
    assert dirs.look() == {}
    if not dirs._events.can_tell:
        pytest.skip("the kernel cannot tell here")
    return dirs


def _plant(folder: Path) -> None:
    (folder / ".git/objects").mkdir(parents=True)
    (folder / ".git/refs").mkdir()
    (folder / ".git/HEAD").touch()


def _same_number(folder: Path) -> None:
    """Put a folder with the same number in the place of one."""
    number = folder.stat().st_ino
    folder.rmdir()
    folder.mkdir()
    if folder.stat().st_ino != number:
        pytest.skip("numbers are not used again here")


def _moved(folder: Path) -> None:
    folder.rename(folder.parent / "c")
    folder.mkdir()


def _flood(folder: Path) -> None:
    """More than the kernel keeps."""
    for index in range(9000):
        (folder / f"{index}").mkdir()
        (folder / f"{index}").rmdir()


@pytest.mark.parametrize("change", [_same_number, _moved, _flood, lambda folder: folder.chmod(0o700)])
def test_what_appears_in_a_folder_that_was_another(
    dirs: GitDirs, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    change(tmp_path / "a/b")
    assert dirs.look() == {}
    assert dirs._events.changed() == set()
    _plant(tmp_path / "a/b")
    assert list(dirs.look()) == [f"{tmp_path}/a/b/.git"]
    shutil.rmtree(tmp_path / "a/b")
    assert dirs.look() == {}


def test_a_top_that_is_another_folder(tmp_path: Path) -> None:
    (tmp_path / "above/top").mkdir(parents=True)
    dirs = GitDirs([str(tmp_path / "above/top")])
    assert dirs.look() == {}
    (tmp_path / "above").rename(tmp_path / "old")
    _plant(tmp_path / "above/top")
    assert list(dirs.look()) == [f"{tmp_path}/above/top/.git"]


def test_nothing_is_asked_of_folders_while_nothing_happens(dirs: GitDirs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirs, "_have_same_times", lambda: pytest.fail("asked"))
    monkeypatch.setattr(dirs, "_walk", lambda: pytest.fail("asked"))
    assert dirs.look() == {}


def test_where_the_kernel_cannot_tell_folders_are_asked(
    dirs: GitDirs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_events, "_MOST_WATCHED", 3)
    (tmp_path / "a/c").mkdir()
    assert dirs.look() == {}
    assert not dirs._events.can_tell
    _plant(tmp_path / "a/c")
    assert list(dirs.look()) == [f"{tmp_path}/a/c/.git"]


def test_attributes_of_files_are_no_change_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    events, status = FolderEvents(), os.stat(tmp_path)
    assert events.watch(str(tmp_path), (status.st_dev, status.st_ino))
    (tmp_path / "file").chmod(0o600)
    assert events.changed() == set()
    (tmp_path / "file").unlink()
    assert events.changed() == {(status.st_dev, status.st_ino)}
    assert events.changed() == set()


def test_only_what_has_changed_is_looked_at(dirs: GitDirs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    scanned = git_dirs._scanned

    def noted(path: str, *more: Any) -> Any:
        looked.append(path)
        return scanned(path, *more)

    monkeypatch.setattr(git_dirs, "_scanned", noted)
    monkeypatch.setattr(dirs, "_walk", lambda: pytest.fail("asked"))
    (tmp_path / "a/b/file").touch()
    assert dirs.look() == {}
    assert looked == [f"{tmp_path}/a/b"]
    _plant(tmp_path / "a/b/c/d")
    assert list(dirs.look()) == [f"{tmp_path}/a/b/c/d/.git"]
    assert f"{tmp_path}/a" not in looked


KINDS = ("folder", "repository", "bare", "link", "obeyed", "git file", "move", "swap", "remove", "close")


def _change(random: Random, top: Path) -> None:
    """Do something to a folder, in one that there is."""
    folders = [top, *(Path(where) / name for where, names, _ in os.walk(top) for name in names)]
    folders = [one for one in folders if not one.is_symlink()]
    where = random.choice(folders) / random.choice("xyz")
    match random.choice(KINDS):
        case "folder":
            where.mkdir(exist_ok=True)
        case "repository":
            if not os.path.lexists(where / ".git"):
                _plant(where)
        case "bare" if not (where / "HEAD").exists():
            for name in ("objects", "refs", "HEAD"):
                (where / name).mkdir(parents=True, exist_ok=True)
        case "link" if not os.path.lexists(where):
            where.symlink_to(random.choice(folders))
        case "obeyed":
            (where / random.choice([".pi", ".claude"])).mkdir(parents=True, exist_ok=True)
        case "git file" if where.is_dir() and not (where / ".git").exists():
            (where / ".git").write_text("gitdir: ../x\n")
        case "move" if not os.path.lexists(where):
            one = random.choice(folders)
            if one != top and not where.is_relative_to(one):
                one.rename(where)
        case "swap":
            one, other = random.choice(folders), random.choice(folders)
            if not one.is_relative_to(other) and not other.is_relative_to(one):
                one.rename(top / "between")
                other.rename(one)
                (top / "between").rename(other)
        case "remove" if where.is_dir() and not where.is_symlink():
            shutil.rmtree(where)
        case "close" if where.is_dir() and not where.is_symlink():
            where.chmod(random.choice([0o755, 0o700]))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_both_looks_see_the_same(tmp_path: Path, seed: int) -> None:
    random, top = Random(seed), tmp_path / "top"
    top.mkdir()
    dirs = GitDirs([str(top)])
    for _ in range(60):
        for _ in range(random.choice([0, 1, 1, 2, 5])):
            with suppress(OSError):  # a file or a link is in the way
                _change(random, top)
        fresh = GitDirs([str(top)])
        found = fresh.look()
        assert (dirs.look(), dirs.obeyed, dirs.links) == (found, fresh.obeyed, fresh.links)
        mine, theirs = ({one: (it.folders, *it.kind) for one, it in looks._known.items()} for looks in (dirs, fresh))
        assert mine == theirs
        fresh._events.give_up()


def test_a_folder_in_the_place_of_one_that_somebody_holds(dirs: GitDirs, tmp_path: Path) -> None:
    """The kernel tells of the end of a folder only when nobody has it open."""
    held = os.open(tmp_path / "a/b", os.O_RDONLY)
    try:
        (tmp_path / "a/b").rmdir()
        (tmp_path / "a/b").mkdir()
        _plant(tmp_path / "a/b/c")
        assert list(dirs.look()) == [f"{tmp_path}/a/b/c/.git"]
    finally:
        os.close(held)
