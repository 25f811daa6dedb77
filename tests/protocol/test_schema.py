"""The published schema and the reference page are made of the registry, and are true."""

import json
import subprocess
import sys
from pathlib import Path

from spindle.protocol.commands import COMMANDS
from spindle.protocol.schema import json_schema, reference_page
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

ROOT = Path(__file__).parents[2]


def test_the_reference_page_is_current():
    page = (ROOT / "docs" / "protocol.md").read_text()
    assert page == reference_page(), "run: spindle schema --markdown > docs/protocol.md"


def test_every_command_and_event_has_a_schema():
    schema = json_schema()
    assert schema["commands"].keys() == schema["responses"].keys() == COMMANDS.keys()
    assert {"agent_settled", "message_update", "ready", "host_tool_call", "extension_ui_request"} <= schema[
        "events"
    ].keys()
    assert all(spec.doc for spec in COMMANDS.values())


def test_it_is_printed_as_json():
    done = subprocess.run([sys.executable, "-m", "spindle", "schema"], capture_output=True, timeout=30, check=True)
    assert json.loads(done.stdout)["title"] == "Spindle RPC"


def test_every_event_of_a_run_is_in_the_schema():
    steps = [reply("Let me see ", call("bash", {"command": "echo hi"})), reply("done")]
    with AgentProcess(steps) as agent:
        agent.run("go")
        kinds = {frame["type"] for frame in agent.frames} - {"response"}
        assert kinds <= json_schema()["events"].keys()
