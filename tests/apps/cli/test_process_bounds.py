"""Limits that hold for all sessions of a process together."""

import json
import subprocess

import pytest

from tests.support import nursery
from tests.support.agent_process import AgentProcess, agent_environment
from tests.support.mock_model import call, gate, reply


def of(id, kind):
    return lambda frame: frame.get("sessionId") == id and frame["type"] == kind


def test_calls_of_a_provider_wait_for_their_turn(tmp_path):
    steps = [reply("one", gate("go"), match="one"), reply("two")]
    with AgentProcess(steps, args=["--limit", "modelCalls=1"], base=tmp_path) as agent:
        id = agent.data("open_session")["id"]
        agent.prompt("one")
        agent.mock.wait_gate("go")
        agent.call("prompt", message="two", sessionId=id)
        assert agent.data("get_state", sessionId=id)["isStreaming"]
        assert len(agent.mock.requests) == 1
        agent.call("abort", sessionId=id)  # one that waits can be stopped
        agent.wait(of(id, "agent_settled"))
        agent.call("prompt", message="two", sessionId=id)
        agent.mock.release("go")
        agent.wait(of(id, "agent_settled"))
        assert [request.body["messages"][-1]["content"][0]["text"] for request in agent.mock.requests] == ["one", "two"]


def test_a_session_runs_so_many_programs_at_a_time(tmp_path):
    calls = [call("bash", {"command": "sleep 1; echo ran"}, id=f"c{number}") for number in range(3)]
    with AgentProcess([reply(*calls), reply("done")], settings={"limits": {"children": 2}}, base=tmp_path) as agent:
        agent.run("go")
        results = [message for message in agent.data("get_messages")["messages"] if message["role"] == "toolResult"]
        texts = [result["content"][0]["text"] for result in results]
        assert sorted(text.strip() for text in texts if "ran" in text) == ["ran", "ran"]
        assert sum(text.startswith("2 programs of this session are running") for text in texts) == 1


def test_sessions_work_only_below_the_roots(tmp_path):
    (tmp_path / "work" / "below").mkdir(parents=True)
    (tmp_path / "out").symlink_to("/")
    with AgentProcess(args=["--root", str(tmp_path / "work")], base=tmp_path) as agent:
        assert agent.call("open_session", cwd=str(tmp_path / "work" / "below"))["success"]
        for cwd in ("/", str(tmp_path), str(tmp_path / "work" / ".."), str(tmp_path / "out" / "tmp")):
            refused = agent.call("open_session", cwd=cwd)
            assert not refused["success"] and "Sessions may not work in" in refused["error"]


def test_a_session_that_is_not_used_leaves_memory(tmp_path):
    with AgentProcess([reply("ok")], args=["--limit", "idleSeconds=1"], session=True, base=tmp_path) as agent:
        id = agent.data("open_session")["id"]
        agent.call("prompt", message="remember me", sessionId=id)
        assert agent.wait(of(id, "session_closed"))["reason"] == "idle"
        assert len(agent.data("list_live_sessions")["sessions"]) == 1
        assert "remember me" in json.dumps(agent.data("get_messages", sessionId=id))


def test_there_may_be_so_many_sessions(tmp_path):
    with AgentProcess(args=["--limit", "sessions=3"], base=tmp_path) as agent:
        assert agent.call("open_session")["success"] and agent.call("open_session")["success"]
        refused = agent.call("open_session")
        assert not refused["success"] and "3 sessions are open" in refused["error"]


@pytest.mark.parametrize(
    "args, said",
    [
        (["--limit", "nonsense=1"], "Unknown limit"),
        (["--limit", "sessions=many"], "whole number"),
        (["--root", "/no/such/place"], "no directory"),
    ],
)
def test_nonsense_is_refused(tmp_path, args, said):
    ended = nursery.run(
        [*nursery.SPINDLE, "--mode", "rpc", *args],
        cwd=tmp_path,
        env=agent_environment(tmp_path / "agent"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert ended.returncode == 2 and said in ended.stderr and "Traceback" not in ended.stderr


def test_calls_of_subagents_wait_for_their_turn(tmp_path):
    steps = [
        reply(call("task", {"prompt": "part one"}, id="c1"), call("task", {"prompt": "part two"}, id="c2")),
        reply("a", gate("part"), match="part (one|two)"),
        reply("done"),
    ]
    with AgentProcess(steps, args=["--limit", "modelCalls=1", "--tools", "task"], base=tmp_path) as agent:
        agent.prompt("go")
        agent.mock.wait_gate("part")
        agent.wait("tool_execution_start")
        agent.wait("tool_execution_start")
        while len(agent.data("get_subagents")["subagents"]) < 2:
            pass
        assert len(agent.mock.requests) == 2, "one of them waits"
        agent.mock.release("part")
        agent.wait("agent_settled")
        assert len(agent.mock.requests) == 4
