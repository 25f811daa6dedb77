"""Programs of users, read by a type checker: what the public API says of itself is what they rely on.

mypy reads them in tests/agent/test_python_api.py.
"""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spindle.client import RpcClient, SyncRpcClient

PROGRAM = Path(__file__).parent / "clients/typed_user.py"
PYRIGHT = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "none"), "pyright/index.js")


@pytest.mark.skipif(not PYRIGHT.exists(), reason="SPINDLE_TEST_NODE_MODULES has no pyright")
def test_pyright_agrees() -> None:
    command = ["node", str(PYRIGHT), "--pythonpath", sys.executable, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_sync_client_takes_what_the_client_takes() -> None:
    client, sync = RpcClient(["agent"]), SyncRpcClient(["agent"])
    methods = [name for name, _ in inspect.getmembers(client, inspect.ismethod) if not name.startswith("_")]
    assert {"steer", "run", "prompt_and_wait", "open_session", "tool"} <= {*methods}
    for name in ["__init__", *methods]:
        ours, theirs = (inspect.signature(getattr(one, name)).parameters for one in (sync, client))
        assert ours == theirs, name
