"""Whether a look that asks the kernel once sees what one sees that asks each folder."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spindle.workspace import folder_events
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
    assert dirs._events.are_none()
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
    assert events.are_none()
    (tmp_path / "file").unlink()
    assert not events.are_none()
    assert events.are_none()
