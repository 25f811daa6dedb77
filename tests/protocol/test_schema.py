"""The published schema and the reference page are made of the registry, and are true."""

import json
import re
from functools import cache
from pathlib import Path

from jsonschema import Draft202012Validator

from spindle.protocol import schema as made
from spindle.protocol.commands import COMMANDS
from tests.support import nursery
from tests.support.agent_process import AgentProcess, agent_environment
from tests.support.mock_model import call, reply, think

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text()  # test_manual.py says whether it is current
json_schema = cache(made.json_schema)


def test_the_page_is_printed():
    done = nursery.run([*nursery.SPINDLE, "schema", "--markdown"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, PAGE, "")


def test_the_page_has_an_example_of_every_command_and_event_that_fits():
    schema = json_schema()
    commands, answers, events = set(), set(), set()
    for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            frame = json.loads(line)
            kind = frame["type"]
            if kind == "response":
                named, seen = schema["responses"][frame["command"]], answers
                kind = frame["command"]
            elif kind in schema["commands"]:
                named, seen = schema["commands"][kind], commands
            else:
                named, seen = schema["events"][kind], events
            Draft202012Validator({**named, "$defs": schema["$defs"]}).validate(frame)
            seen.add(kind)
    assert commands == answers == schema["commands"].keys() and events == schema["events"].keys()


def test_the_page_names_every_field_and_its_note():
    assert "| *`timeout`* | integer or null | Milliseconds after which the agent goes on without an answer. |" in PAGE
    assert "| *`traceback`* | string or null | Where in the code of an extension it happened. |" in PAGE
    for name in set(re.findall(r"\]\(#([a-z]\w*)\)", PAGE)):
        assert re.search(rf"^### `?{name}`?$", PAGE, re.MULTILINE | re.IGNORECASE) or name == "shapes", name


def test_every_command_and_event_has_a_schema():
    schema = json_schema()
    assert schema["commands"].keys() == schema["responses"].keys() == COMMANDS.keys()
    assert {"agent_settled", "message_update", "ready", "host_tool_call", "extension_ui_request"} <= schema[
        "events"
    ].keys()
    assert all(spec.doc for spec in COMMANDS.values())


def test_it_is_printed_as_json():
    done = nursery.run([*nursery.SPINDLE, "schema"], capture_output=True, timeout=30)
    assert (done.returncode, json.loads(done.stdout)["title"]) == (0, "Spindle RPC")


def test_every_event_of_a_run_is_in_the_schema():
    steps = [reply("Let me see ", call("bash", {"command": "echo hi"})), reply("done")]
    with AgentProcess(steps) as agent:
        agent.run("go")
        kinds = {frame["type"] for frame in agent.frames} - {"response"}
        assert kinds <= json_schema()["events"].keys()


def test_what_is_printed_fits_the_schema():
    steps = [reply(think("hm"), "Let me see ", call("bash", {"command": "echo hi"})), reply("done")]
    schema = json_schema()
    with AgentProcess(steps, session=True) as agent:
        agent.run("go")
        commands = (
            "get_state",
            "get_messages",
            "get_run_result",
            "get_session_stats",
            "get_entries",
            "get_permissions",
        )
        for name in (*commands, "get_available_models", "list_sessions", "get_commands", "get_fork_messages"):
            agent.data(name)
        agent.call("set_model", provider="none", modelId="none")
        for frame in agent.frames:
            named = schema["responses"].get(frame.get("command")) or schema["events"].get(frame["type"])
            if frame.get("success") is False:
                named = {"$ref": "#/$defs/ErrorResponse"}
            problem = next(Draft202012Validator({**named, "$defs": schema["$defs"]}).iter_errors(frame), None)
            assert problem is None, f"{problem.message} in {frame}"


def test_the_result_of_a_run_fits_the_schema(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"text": "hello"}]))
    command = [*nursery.SPINDLE, "-p", "hi", "--output", "json", "--model", f"scripted/{script}"]
    environment = agent_environment(tmp_path / "agent")
    done = nursery.run(command, capture_output=True, timeout=30, cwd=tmp_path, env=environment)
    result = json.loads(done.stdout)
    schema = json_schema()
    Draft202012Validator({"$ref": "#/$defs/RunResult", "$defs": schema["$defs"]}).validate(result)
    assert (done.returncode, result["status"], result["text"]) == (0, "ok", "hello")
