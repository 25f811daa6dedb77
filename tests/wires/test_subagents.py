"""A subagent as clients see it: on every wire, in pi's dialect, and in an editor."""

import http.client
import json
import subprocess
import sys

import pytest

from tests.support.agent_process import AgentProcess, agent_environment
from tests.support.mock_model import call, reply
from tests.support.nursery import run
from tests.wires.acp.editor_process import EditorProcess
from tests.wires.server.server import ServerProcess

WRITES = reply(call("write", {"path": "a.txt", "content": "x"}, id="w1"))


def steps(*work):
    return [
        reply(call("task", {"prompt": "look at\nthis"}, id="t1")),
        *work,
        reply("looked"),
        reply("done"),
    ]


def over_websocket(base):
    with ServerProcess(steps(), base=base) as server, server.rpc() as client:
        client.call("prompt", message="go")
        frames = [client.read()]
        while frames[-1]["type"] != "agent_settled":
            frames.append(client.read())
        return frames


def over_http(base):
    with ServerProcess(steps(), base=base) as server:
        session = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        session.request("POST", "/v1/sessions", b"{}")
        id = json.loads(session.getresponse().read())["id"]
        stream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        stream.request("GET", f"/v1/sessions/{id}/events")
        events, frames = stream.getresponse(), []
        session.request("POST", f"/v1/sessions/{id}/prompt", json.dumps({"message": "go"}))
        session.getresponse().read()
        while not frames or frames[-1]["type"] != "agent_settled":
            line = events.readline()
            assert line
            if line.startswith(b"data:"):
                frames.append(json.loads(line[5:]))
        stream.close()
        return frames


def in_an_editor(base):
    with EditorProcess(steps(), base=base, initialize=False) as editor:
        editor.ok("initialize", protocolVersion=1, _meta={"spindle": {"events": True}})
        assert editor.stop_reason(editor.say(editor.new(), "go")) == "end_turn"
        return [frame["params"]["event"] for frame in editor.frames if frame.get("method") == "_spindle/event"]


def as_json_lines(base):
    with AgentProcess(steps(), base=base) as model:  # for its files and its model
        words = [sys.executable, "-m", "spindle", "--mode", "json", "--no-session", "--model", "mock/m1", "go"]
        env = agent_environment(model.agent_dir)
        done = run(words, cwd=model.cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("wire", [over_websocket, over_http, in_an_editor, as_json_lines], ids=lambda one: one.__name__)
def test_events_name_the_call_that_they_belong_to(tmp_path, wire):
    """These wires have the tool without being asked for it."""
    told = [frame for frame in wire(tmp_path) if frame.get("parentToolCallId") == "t1"]
    assert {"agent_start", "message_end", "agent_settled"} <= {frame["event"]["type"] for frame in told}


def test_over_rpc_and_in_the_dialect_of_pi(tmp_path):
    tools = ("--tools", "read,bash,edit,write,task")
    with AgentProcess(steps(), base=tmp_path / "a", args=tools) as agent:
        agent.run("go")
        told = [frame for frame in agent.frames if frame.get("parentToolCallId") == "t1"]
        assert {"agent_start", "message_end", "agent_settled"} <= {frame["event"]["type"] for frame in told}
        assert agent.data("get_session_stats")["subagents"]["runs"] == 1
    with AgentProcess(steps(), base=tmp_path / "b", args=(*tools, "--dialect", "pi-0.87")) as agent:
        frames = agent.run("go")
        assert not any("parentToolCallId" in frame for frame in agent.frames)
        assert [frame["type"] for frame in frames].count("agent_end") == 1
        assert "subagents" not in agent.data("get_session_stats")
        (end,) = [frame for frame in frames if frame["type"] == "tool_execution_end"]
        assert end["result"]["content"][0]["text"] == "looked"


def test_an_editor_is_asked_about_a_call_of_a_subagent(tmp_path):
    work = steps(WRITES)
    with EditorProcess(work, base=tmp_path, args=("--permission-mode", "default")) as editor:
        session = editor.new()
        prompt = editor.say(session, "go")
        asked = editor.choose("allow_once")
        about = asked["params"]["toolCall"]
        assert (about["toolCallId"], about["title"], about["kind"]) == ("w1", "Make the file a.txt (1 line)", "edit")
        assert editor.stop_reason(prompt) == "end_turn"
        calls = [update for update in editor.updates(session) if update.get("toolCallId")]
        assert {update["toolCallId"] for update in calls} == {"t1"}
        assert calls[0]["title"].startswith("task") and calls[0]["kind"] == "think"
        shown = [update["content"][0]["content"]["text"] for update in calls if update.get("content")]
        assert "general: 0 calls, thinking" in shown and shown[-1] == "looked"
        assert any(update.get("title") == "task general: look at this" for update in calls)
