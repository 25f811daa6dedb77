"""From what a model writes to a path."""

import os
import unicodedata
from pathlib import Path

import pytest

from spindle.tools.base import ToolError, os_error_text
from spindle.tools.files import resolve_path
from spindle.workspace.disk import existing


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("a.txt", "/w/a.txt"),
        ("./a/../b.txt", "/w/b.txt"),
        ("../x", "/x"),
        ("/etc//hosts", "/etc/hosts"),
        ("//etc/hosts", "/etc/hosts"),
        ("", "/w"),
        ("@a.txt", "/w/a.txt"),
        ("@@a.txt", "/w/@a.txt"),
        ("~", "/home/me"),
        ("~/x", "/home/me/x"),
        ("~other/x", "/w/~other/x"),
        ("@~/x", "/home/me/x"),
        ("a\u00a0b\u2009c\u3000d\u202fe", "/w/a b c d e"),
        ("file:///tmp/a%20b", "/tmp/a b"),
        ("file://localhost/tmp/x", "/tmp/x"),
    ],
)
def test_resolve(path: str, resolved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert resolve_path(path, "/w") == resolved


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b", "file://elsewhere/x"])
def test_paths_no_file_can_have(path: str) -> None:
    with pytest.raises(ToolError):
        resolve_path(path, "/w")


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ("Shot at 5.01 PM.png", "Shot at 5.01\u202fPM.png"),
        ("Shot at 5.01 am.png", "Shot at 5.01\u202fam.png"),
        ("café.txt", unicodedata.normalize("NFD", "café.txt")),
        ("it's.txt", "it\u2019s.txt"),
        ("l'été.txt", unicodedata.normalize("NFD", "l\u2019été.txt")),
    ],
)
def test_reading_tries_the_spellings_of_macos(asked: str, there: str, tmp_path: Path) -> None:
    (tmp_path / there).write_text("x")
    assert existing(resolve_path(asked, str(tmp_path))) == str(tmp_path / there)
    (tmp_path / asked).write_text("y")
    assert existing(resolve_path(asked, str(tmp_path))) == str(tmp_path / asked)


def test_a_missing_file_keeps_the_name_that_was_asked_for(tmp_path: Path) -> None:
    assert existing(resolve_path("it's.txt", str(tmp_path))) == str(tmp_path / "it's.txt")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(2, "x"), "ENOENT: no such file or directory, open '/f'"),
        (PermissionError(13, "x"), "EACCES: permission denied, open '/f'"),
        (OSError(40, "x"), "ELOOP: too many symbolic links encountered, open '/f'"),
        (OSError(28, "x"), "ENOSPC: no space left on device, open '/f'"),
        (OSError(36, "x"), "ENAMETOOLONG: name too long, open '/f'"),
    ],
)
@pytest.mark.skipif(os.uname().sysname != "Linux", reason="error numbers of Linux")
def test_errors_of_the_system_in_words(error: OSError, text: str) -> None:
    assert os_error_text(error, "open", "/f") == text
