"""The HTTP side against its own document: schemathesis sends what the document allows and what it forbids.

Needs the command in SPINDLE_TEST_SCHEMATHESIS (`pip install schemathesis`, in an environment of its own).
"""

import os
import subprocess

import pytest

from tests.support.mock_model import reply
from tests.wires.server.server import TOKEN, ServerProcess
from tests.wires.server.test_http import Http

SCHEMATHESIS = os.environ.get("SPINDLE_TEST_SCHEMATHESIS")
LEFT_OUT = ("get_events", "bash", "export_html", "abort_and_prompt")
"""A stream without an end; commands that run or write whatever comes to mind; one that waits for the run before."""


@pytest.mark.timeout(120)
@pytest.mark.skipif(not SCHEMATHESIS, reason="SPINDLE_TEST_SCHEMATHESIS names no schemathesis")
def test_what_the_document_says_is_so(tmp_path):
    """All of it is about one session that is there, so that commands are carried out and not only refused."""
    (tmp_path / "schemathesis.toml").write_text('[parameters]\n"path.id" = "stays"\n')
    args = ["--root", str(tmp_path), "--no-tools"]
    with ServerProcess([reply("ok")], base=tmp_path, args=args, env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server:
        web = Http(server, TOKEN)
        web.ask("PUT", "/v1/sessions/stays", {})
        assert web.post("/v1/sessions/stays/prompt?wait=true", {"message": "hi"})[0] == 200
        ended = subprocess.run(
            [
                *(str(SCHEMATHESIS), "run", f"http://{server.address}/openapi.json"),
                *("-H", f"Authorization: Bearer {TOKEN}"),
                *("--phases", "coverage,fuzzing", "--max-examples", "3", "--suppress-health-check", "all"),
                *("--seed", "1"),  # the same requests each time: a test that fails now and then is none
                *("--request-timeout", "20", "--no-color"),
                *(word for name in LEFT_OUT for word in ("--exclude-operation-id", name)),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert ended.returncode == 0, ended.stdout[-4000:]
        assert "Traceback" not in server.stderr
