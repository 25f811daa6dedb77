"""Files are put back where they belong, whatever a program makes of the folders meanwhile."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spindle.workspace.put_back import Folder

FLIP = """
import ctypes, os, sys
exchange = ctypes.CDLL(None).syscall
number = {"x86_64": 316, "aarch64": 276}[os.uname().machine]
while os.path.exists("go-on"):
    exchange(number, -100, b"src", -100, b"link", 2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="exchanges two names in one step")
def test_a_folder_that_becomes_a_link_again_and_again_leads_nobody_out(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    (work / "src").mkdir(parents=True)
    outside.mkdir()
    for number in range(500):
        for folder in (work / "src", outside):
            (folder / f"old-{number}").touch(0o600)
    (work / "link").symlink_to(outside)
    (work / "go-on").touch()
    flips = subprocess.Popen([sys.executable, "-c", FLIP], cwd=work)
    back, done = Folder(str(work), {}, [], 0o755), 0
    try:
        for number in range(500):
            attempts: list[tuple[Any, ...]] = [
                (back.write, f"src/new-{number}", stat.S_IFREG | 0o644, b""),
                (back.set_mode, f"src/old-{number}", 0o666),
                (back.remove, f"src/old-{number}"),
            ]
            for attempt, path, *more in attempts:
                try:
                    attempt(path, *more)
                    done += 1
                except OSError:
                    pass  # it was a link at that moment
    finally:
        (work / "go-on").unlink()
        flips.wait()
        back.close()
    assert done
    assert sorted(os.listdir(outside)) == sorted(f"old-{number}" for number in range(500))
    assert {stat.S_IMODE(one.stat().st_mode) for one in outside.iterdir()} == {0o600}
