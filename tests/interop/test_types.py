"""Programs of users, read by a type checker: what the public API says of itself is what they rely on.

mypy reads them in tests/agent/test_python_api.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.sync_stub import TARGET, stub

PROGRAM = Path(__file__).parent / "clients/typed_user.py"
PYRIGHT = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "none"), "pyright/index.js")


@pytest.mark.skipif(not PYRIGHT.exists(), reason="SPINDLE_TEST_NODE_MODULES has no pyright")
def test_pyright_agrees() -> None:
    command = ["node", str(PYRIGHT), "--pythonpath", sys.executable, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_types_of_the_sync_client_are_those_of_the_client() -> None:
    assert TARGET.read_text() == stub(), "run scripts/sync_stub.py"
