"""A client that another program makes of our OpenAPI document, against the real server.

Needs the command in SPINDLE_TEST_OPENAPI_CLIENT (`pip install openapi-python-client`, in an environment of its own).
"""

import json
import os
import subprocess
import urllib.request
from pathlib import Path

import pytest

from spindle.protocol.commands import COMMANDS
from tests.support.mock_model import reply
from tests.wires.server.server import TOKEN, ServerProcess

GENERATOR = Path(os.environ.get("SPINDLE_TEST_OPENAPI_CLIENT", "none"))
DRIVER = Path(__file__).parent / "clients" / "generated.py"


@pytest.mark.timeout(120)
@pytest.mark.skipif(not GENERATOR.exists(), reason="SPINDLE_TEST_OPENAPI_CLIENT names no openapi-python-client")
def test_a_generated_client_has_every_command_and_understands_the_answers(tmp_path):
    with ServerProcess([reply("quick")], base=tmp_path, env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server:
        address = f"http://{server.address}"
        asked = urllib.request.Request(f"{address}/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"})
        (tmp_path / "openapi.json").write_bytes(urllib.request.urlopen(asked).read())
        made = subprocess.run(
            [GENERATOR, "generate", "--path", "openapi.json", "--meta", "none", "--output-path", "made"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert made.returncode == 0 and "parsing" not in made.stdout, made.stdout + made.stderr
        python = GENERATOR.parent / "python"
        ran = subprocess.run(
            [python, DRIVER, tmp_path, address, TOKEN], capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        told = json.loads(ran.stdout)
        assert told["operations"] > len(COMMANDS) and len(told["called"]) > 30
        assert "Traceback" not in server.stderr

        wrong = subprocess.run(
            [python, "-c", WRONG_TOKEN, tmp_path, address], capture_output=True, text=True, timeout=30
        )
        assert wrong.stdout.strip().startswith("401 A valid token is required"), wrong.stderr


WRONG_TOKEN = """
import sys
sys.path.insert(0, sys.argv[1])
from made.api.sessions import list_sessions_alive
from made.client import AuthenticatedClient
found = list_sessions_alive.sync_detailed(client=AuthenticatedClient(base_url=sys.argv[2], token="no"))
print(int(found.status_code), found.parsed.error)
"""
