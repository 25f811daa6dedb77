"""Programs of users, read by type checkers: what the public API says of itself is what they rely on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.sync_stub import TARGET, stub

PROGRAM = Path(__file__).parent / "clients/typed_user.py"
PYRIGHT = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "none"), "pyright/index.js")


def test_mypy_agrees(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(not PYRIGHT.exists(), reason="SPINDLE_TEST_NODE_MODULES has no pyright")
def test_pyright_agrees() -> None:
    command = ["node", str(PYRIGHT), "--pythonpath", sys.executable, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_types_of_the_sync_client_are_those_of_the_client() -> None:
    assert TARGET.read_text() == stub(), "run scripts/sync_stub.py"
