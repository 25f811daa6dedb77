"""What a sandbox says of the place it is in: commands may write what others run there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spindle.programs.fence import Support
from spindle.workspace.area import Wanted
from spindle.workspace.sandbox import Sandbox
from tests.tools.test_sandbox import shell
from tests.tools.test_sandbox import using as using


def _gaps(folder: Path, using: Support) -> str:
    return "\n".join(Sandbox(Wanted("workspace-write", str(folder)), using).does_not_hold())


def test_programs_that_commands_may_change_are_told(
    tmp_path: Path, using: Support, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"/usr/bin{os.pathsep}{tmp_path}/home/bin")
    (tmp_path / "home/work").mkdir(parents=True)
    assert "PATH" not in _gaps(tmp_path / "home/work", using)
    assert "Spindle itself" not in _gaps(tmp_path / "home/work", using)
    told = _gaps(tmp_path / "home", using)
    assert f"those that git runs: {tmp_path}/home/bin" in told
    assert f"obey in {tmp_path}/home can be changed" in told
    monkeypatch.setenv("SPINDLE_DIR", f"{tmp_path}/home/.agent")
    (tmp_path / "home/.agent").mkdir()
    is_open = f"{tmp_path}/home/.agent can be read and written" in (told := _gaps(tmp_path / "home", using))
    assert is_open == (using.bwrap is None) == ("obeys what commands put there" in told)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "home/work/.venv"))
    assert f"Spindle itself runs from {tmp_path}/home/work/.venv" in _gaps(tmp_path / "home/work", using)


def test_a_program_that_we_start_by_its_name_stays_away(
    tmp_path: Path, using: Support, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start of Spindle looks for `bwrap` on PATH, and runs it outside of any fence."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text("mine")
    sandbox = Sandbox(Wanted("workspace-write", str(tmp_path)), using)
    said = "".join(
        shell(sandbox, f"echo evil > {name}; chmod +x {name}")[1] for name in ("bin/bwrap", "bin/ssh", "bin/x")
    )
    assert sorted(os.listdir(tmp_path / "bin")) == ["ssh", "x"]
    assert (tmp_path / "bin/ssh").read_text() == "mine"
    assert "bin/bwrap is protected and was changed" in said


def test_an_environment_can_be_made_where_it_is_on_the_path(
    tmp_path: Path, using: Support, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/.venv/bin{os.pathsep}{os.environ['PATH']}")
    sandbox = Sandbox(Wanted("workspace-write", str(tmp_path)), using)
    python = os.path.realpath(sys.executable)
    code, said = shell(sandbox, f"{python} -m venv --without-pip .venv; .venv/bin/python -c 'print(1)'")
    assert (code, said) == (0, "1\n")
    assert subprocess.check_output([tmp_path / ".venv/bin/python", "-c", "print(2)"]) == b"2\n"
