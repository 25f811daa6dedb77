"""The file with the whole output of a command."""

import os
from pathlib import Path

import pytest

from spindle.tools.truncate import OutputBuffer


def test_the_file_has_an_end_and_old_ones_go_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("spindle.workspace.texts.MAX_KEPT_BYTES", 200_000)
    old = tmp_path / "spindle-bash-0.log"
    old.write_text("of last week")
    os.utime(old, (1, 1))
    buffer = OutputBuffer()
    for _ in range(10):
        buffer.write(b"x" * 50_000)
    buffer.close()
    assert buffer.path is not None and os.path.getsize(buffer.path) == 200_000
    assert not old.exists()
