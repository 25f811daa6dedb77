"""Version 2 of oh-my-pi's protocol: what a client gets after `negotiate_protocol`, and nobody before."""

import base64
import json
from pathlib import Path
from typing import Any

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, failure, reply, stall


def kinds(agent: AgentProcess) -> list[str]:
    return [frame["type"] for frame in agent.frames if frame["type"] in ("prompt_result", "session_settled")]


def test_nothing_new_before_it_is_negotiated() -> None:
    with AgentProcess([reply("one"), reply("x" * 1_200_000)]) as agent:
        ready = agent.wait("ready")
        assert {key: ready[key] for key in ready if key not in ("type", "version")} == {
            "protocolVersion": 1,
            "supportedProtocolVersions": [1, 2],
            "maxFrameBytes": 1 << 20,
            "maxReassembledFrameBytes": 64 << 20,
            "updateMode": "full",
            "updateModes": ["full", "delta"],
        }
        for version in (1, 3, "2"):
            assert not agent.call("negotiate_protocol", protocolVersion=version)["success"]
        agent.run("hi")
        agent.run("long")
        agent.data("get_state")
        assert kinds(agent) == [] and not [frame for frame in agent.frames if frame["type"] == "rpc_chunk"]


def test_every_prompt_has_one_result_after_its_events() -> None:
    steps = [
        reply(call("bash", {"command": "true"})),
        reply("one and two"),
        failure(400, "no"),
        reply("w", stall()),
        failure(503, "busy"),
        reply("x"),
    ]
    with AgentProcess(steps, settings={"retry": {"enabled": False}}) as agent:
        assert agent.data("negotiate_protocol", protocolVersion=2) == {"protocolVersion": 2}
        first = agent.send("prompt", message="one")
        second = agent.send("prompt", message="two", streamingBehavior="steer")
        results = [agent.wait("prompt_result") for _ in range(2)]
        assert {result.pop("id") for result in results} == {first, second}
        done = {"type": "prompt_result", "agentInvoked": True, "status": "completed", "sessionSettled": True}
        assert results == [done, done]
        agent.wait("session_settled")
        order = [frame["type"] for frame in agent.frames]
        assert order[-4:] == ["agent_settled", "prompt_result", "prompt_result", "session_settled"]

        refused = agent.send("prompt", message="three")
        result = agent.wait("prompt_result")
        assert (result["id"], result["status"], result["error"]["retryable"]) == (refused, "error", False)
        assert result["error"]["provider"] == "mock" and "no" in result["error"]["message"]

        agent.prompt("four")
        agent.wait_delta("w")
        last = agent.send("abort_and_prompt", message="five")
        assert agent.wait("prompt_result")["status"] == "aborted"
        result = agent.wait("prompt_result")
        assert (result["id"], result["status"], result["error"]["retryable"]) == (last, "error", True)
        assert not agent.call("prompt", message="", images=[1])["success"]  # refused: it has no result
        six = agent.send("prompt", message="six")
        assert agent.wait(lambda frame: frame["type"] == "prompt_result" and frame["id"] == six)["sessionSettled"]
        assert agent.data("get_state")["isSettled"] is True
        assert kinds(agent).count("prompt_result") == 6


def test_long_lines_come_in_chunks() -> None:
    text = "ü" * 700_000
    with AgentProcess([reply(text)], args=["--updates", "delta"]) as agent:
        agent.data("negotiate_protocol", protocolVersion=2)
        agent.prompt("long")
        agent.wait("agent_settled")
        id = agent.send("get_last_assistant_text")
        agent.data("get_state")
    whole, parts = [], []
    for line in agent.lines:
        frame = json.loads(line)
        if frame["type"] == "rpc_chunk":
            assert frame["index"] == len(parts)
            parts.append(base64.b64decode(frame["data"]))
            assert len(line) <= 1 << 20
            if len(parts) == frame["count"]:
                data = b"".join(parts)
                assert len(data) == frame["byteLength"] >= 1 << 20
                whole.append(json.loads(data))
                parts = []
        else:
            assert not parts and len(line) <= 1 << 20, "chunks of a line stand together"
    assert {"message_end", "agent_end", "response"} <= {frame["type"] for frame in whole}
    assert [frame["data"]["text"] for frame in whole if frame.get("id") == id] == [text]


def test_a_filter_leaves_out_events_and_nothing_else() -> None:
    tool = {"name": "lend", "description": "d", "parameters": {"type": "object"}}
    with AgentProcess([reply(call("lend", {})), reply("ok")]) as agent:
        agent.data("set_host_tools", tools=[tool])
        assert agent.data("set_event_filter", events=["turn_end", "turn_end"]) == {"events": ["turn_end"]}
        for wrong in (["a", 5], "turn_end"):
            assert not agent.call("set_event_filter", events=wrong)["success"]
        start = len(agent.frames)
        agent.prompt("hi")
        asked = agent.wait("host_tool_call")
        agent.send("host_tool_result", id=asked["id"], result={"content": [{"type": "text", "text": "lent"}]})
        agent.wait("turn_end")
        agent.wait("turn_end")
        assert {frame["type"] for frame in agent.frames[start:]} == {"response", "host_tool_call", "turn_end"}
        assert agent.data("set_event_filter", events=None) == {"events": None}


def test_pages_of_messages(tmp_path: Path) -> None:
    long = "y" * 300_000
    with AgentProcess([reply("a"), reply(long), reply(long), reply("b"), reply("w", stall())]) as agent:
        for text in "1234":
            agent.run(text)
        everything = agent.data("get_messages")["messages"]
        found: list[Any] = []
        sizes, cursor = [], None
        while True:
            page = agent.data("get_messages_page", cursor=cursor, limit=5)
            assert page["totalMessages"] == len(everything) == 8
            found += page["messages"]
            sizes.append(len(page["messages"]))
            cursor = page.get("nextCursor")
            if cursor is None:
                break
            kept = cursor
        assert found == everything and sizes == [5, 3]
        for wrong in ("", "x", "W10=", base64.urlsafe_b64encode(b'["s",null,1,9]').decode()):
            assert not agent.call("get_messages_page", cursor=wrong)["success"]
        for wrong in (0, 257, "5"):
            assert "limit" in agent.call("get_messages_page", limit=wrong)["error"]
        agent.prompt("5")
        agent.wait_delta("w")
        assert agent.call("get_messages_page")["code"] == "session_busy"
        agent.call("abort")
        assert agent.call("get_messages_page", cursor=kept)["code"] == "stale_cursor"
        assert "code" not in agent.call("get_messages_page", limit=0)


def test_commands_without_a_meaning_are_refused_clearly() -> None:
    with AgentProcess() as agent:
        assert "a command of oh-my-pi" in agent.call("set_fast_mode")["error"]
        assert "sessionDir" in agent.call("open_session", sessionDir="/tmp")["error"]
