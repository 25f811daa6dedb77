"""A subagent as clients see it: over RPC, in pi's dialect, and in an editor."""

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply
from tests.wires.acp.editor_process import EditorProcess

WRITES = reply(call("write", {"path": "a.txt", "content": "x"}, id="w1"))


def steps(*work):
    return [
        reply(call("task", {"prompt": "look at\nthis"}, id="t1")),
        *work,
        reply("looked"),
        reply("done"),
    ]


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
        assert (about["toolCallId"], about["title"], about["kind"]) == ("w1", "write a.txt", "edit")
        assert editor.stop_reason(prompt) == "end_turn"
        calls = [update for update in editor.updates(session) if update.get("toolCallId")]
        assert {update["toolCallId"] for update in calls} == {"t1"}
        assert calls[0]["title"].startswith("task") and calls[0]["kind"] == "think"
        shown = [update["content"][0]["content"]["text"] for update in calls if update.get("content")]
        assert "general: 0 calls, thinking" in shown and shown[-1] == "looked"
        assert any(update.get("title") == "task general: look at this" for update in calls)
