"""What oh-my-pi 18.3 has under version 2: subagents, addresses of the host, logins, ids of messages, codes."""

from pathlib import Path
from typing import Any

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, failure, gate, reply

TASK = ["--tools", "read,write,bash,task"]


def begun(*args: Any, **options: Any) -> AgentProcess:
    return AgentProcess(*args, session=True, **options)


def test_subagents_are_listed_read_followed_and_stopped(tmp_path: Path) -> None:
    steps = [
        reply(call("task", {"prompt": "Look around\nwell", "agent": "explore"})),
        reply(call("ls", {"path": "."}), gate("seen")),
        reply("I looked.", gate("end")),
        reply("All done."),
    ]
    with begun(steps, args=TASK, base=tmp_path) as agent:
        assert agent.call("set_subagent_subscription", level="events")["error"].endswith("negotiate_protocol")
        agent.data("negotiate_protocol", protocolVersion=2)
        assert agent.data("set_subagent_subscription", level="events") == {"level": "events"}
        agent.prompt("go")
        agent.mock.wait_gate("seen")
        (working,) = agent.data("get_subagents")["subagents"]
        assert (working["agent"], working["agentSource"], working["status"]) == ("explore", "bundled", "running")
        assert working["description"] == "Look around well" and working["parentToolCallId"] == "call_1"
        agent.mock.release("seen")
        agent.mock.wait_gate("end")
        id, path = working["id"], working["sessionFile"]
        first = agent.data("get_subagent_messages", subagentId=id)
        assert first["sessionFile"] == path and [m["role"] for m in first["messages"]][:2] == ["user", "assistant"]
        agent.mock.release("end")
        agent.wait("session_settled")
        rest = agent.data("get_subagent_messages", sessionFile=path, fromByte=first["nextByte"])
        assert (
            rest["messages"][-1]["content"][0]["text"] == "I looked." and rest["nextByte"] == Path(path).stat().st_size
        )
        assert agent.data("get_subagent_messages", subagentId=id, fromByte=1 << 30)["reset"]
        assert "Unknown subagent" in agent.call("get_subagent_messages", sessionFile="/etc/passwd")["error"]
        assert agent.data("get_subagents") == {"subagents": []}
    told = [f["payload"] for f in agent.frames if f["type"] == "subagent_lifecycle"]
    assert [(step["id"], step["status"]) for step in told] == [(id, "started"), (id, "completed")]
    progress = [f["payload"]["progress"] for f in agent.frames if f["type"] == "subagent_progress"]
    assert progress[-1]["toolCount"] == 1 and progress[-1]["requests"] == 2 and progress[-1]["recentTools"] == ["ls"]
    events = [f["payload"] for f in agent.frames if f["type"] == "subagent_event"]
    assert {event["id"] for event in events} == {id} and "agent_end" in {event["event"]["type"] for event in events}


def test_a_subagent_is_stopped_and_the_run_goes_on() -> None:
    steps = [
        reply(call("task", {"prompt": "Look"})),
        reply("half", gate("never"), match="^Look$"),
        reply("Well then."),
    ]
    with begun(steps, args=TASK) as agent:
        agent.prompt("go")
        agent.mock.wait_gate("never")
        (working,) = agent.data("get_subagents")["subagents"]
        agent.data("stop_subagent", subagentId=working["id"])
        end = agent.wait("tool_execution_end")
        assert end["isError"] and "stopped" in end["result"]["content"][0]["text"]
        agent.wait("agent_settled")
        assert agent.data("get_last_assistant_text") == {"text": "Well then."}
        assert "no subagent" in agent.call("stop_subagent", subagentId=working["id"])["error"]
    assert not [f for f in agent.frames if f["type"].startswith("subagent_l")]
    assert {"subagentId"} <= next(f for f in agent.frames if f["type"] == "subagent_event").keys()


def test_the_host_serves_addresses() -> None:
    steps = [
        reply(
            call("read", {"path": "db://users/1"}, id="a"),
            call("write", {"path": "db://users/2", "content": "x"}, id="b"),
        ),
        reply(call("read", {"path": "db://users/3"}, id="c")),
        reply(call("write", {"path": "log://x", "content": "x"}, id="d")),
        reply("done"),
        reply(call("read", {"path": "db://slow"}, id="e")),
        reply("ended"),
    ]
    with begun(steps) as agent:
        for wrong in ([{"scheme": "file"}], [{"scheme": "a b"}], [5]):
            assert not agent.call("set_host_uri_schemes", schemes=wrong)["success"]
        schemes = [{"scheme": "DB", "writable": True}, {"scheme": "log"}]
        assert agent.data("set_host_uri_schemes", schemes=schemes) == {"schemes": ["db", "log"]}
        agent.prompt("go")
        asked = [agent.wait("host_uri_request") for _ in range(2)]
        for frame in asked:
            agent.send("host_uri_result", id=frame["id"], content="Anna", notes=["from the cache"])
        assert sorted((f["operation"], f["url"], f.get("content")) for f in asked) == [
            ("read", "db://users/1", None),
            ("write", "db://users/2", "x"),
        ]
        third = agent.wait("host_uri_request")
        agent.send("host_uri_result", id=third["id"], isError=True, error="no such user")
        agent.wait("agent_settled")
        results = {m["toolCallId"]: m for m in agent.data("get_messages")["messages"] if m["role"] == "toolResult"}
        texts = {id: result["content"][0]["text"] for id, result in results.items()}
        assert texts["a"] == "Anna\n\nfrom the cache" and texts["b"] == "Wrote 1 characters to db://users/2"
        assert texts["c"] == "no such user" and results["c"]["isError"]
        assert "db://" not in texts["d"] and (agent.cwd / "log:" / "x").exists(), "only db:// may be written to"
        described = {t["function"]["name"]: t["function"]["description"] for t in agent.mock.requests[0].body["tools"]}
        assert "db://, log://" in described["read"] and "db:// addresses" in described["write"]
        agent.prompt("again")
        slow = agent.wait("host_uri_request")
        agent.data("abort")
        assert agent.wait("host_uri_cancel")["targetId"] == slow["id"]
        agent.wait("agent_settled")
        assert agent.data("set_host_uri_schemes", schemes=[]) == {"schemes": []}


def test_ids_of_messages_kinds_of_errors_and_commands(tmp_path: Path) -> None:
    (tmp_path / "agent" / "prompts").mkdir(parents=True)
    (tmp_path / "agent" / "prompts" / "fix.md").write_text("---\ndescription: Fix it\n---\nFix")
    steps = [reply("one", call("bash", {"command": "true"})), reply("two"), failure(418, "teapot")]
    with begun(steps, base=tmp_path, settings={"retry": {"enabled": False}}) as agent:
        assert "code" not in agent.call("nonsense")
        agent.data("negotiate_protocol", protocolVersion=2)
        update = agent.wait("available_commands_update")
        assert update["commands"] == [{"name": "fix", "description": "Fix it", "source": "file"}]
        kinds = {
            "unknown_command": agent.call("nonsense"),
            "invalid_request": agent.call("set_model", provider=5, modelId="x"),
            "refused": agent.call("set_model", provider="no", modelId="x"),
        }
        assert all(answer["code"] == code for code, answer in kinds.items())
        agent.write(b"{\n")
        assert agent.wait(lambda f: f.get("command") == "parse")["code"] == "parse_error"
        assert "fast mode" in agent.call("set_fast_mode", enabled=True)["error"]
        agent.prompt("go")
        agent.wait("prompt_result")
        agent.prompt("again")
        assert agent.wait("prompt_result")["error"]["httpStatus"] == 418
    open_id, ids = None, []
    for frame in agent.frames:
        if frame["type"] == "message_start":
            assert open_id is None
            open_id = frame["messageId"]
            ids.append(open_id)
        elif frame["type"] in ("message_update", "message_end"):
            assert frame["messageId"] == open_id
            open_id = None if frame["type"] == "message_end" else open_id
    assert len(ids) == len(set(ids)) == 6


def test_a_login_over_the_wire_and_a_handoff(tmp_path: Path) -> None:
    steps = [reply("one " * 400), reply("two " * 400), reply("The hand-over.")]
    settings = {"compaction": {"keepRecentTokens": 100}}
    with begun(steps, base=tmp_path, settings=settings) as agent:
        providers = {p["id"]: p for p in agent.data("get_login_providers")["providers"]}
        assert providers["openrouter"] == {
            "id": "openrouter",
            "name": providers["openrouter"]["name"],
            "available": True,
            "authenticated": False,
        }
        assert "There is no provider nobody" in agent.call("login", providerId="nobody")["error"]
        id = agent.send("login", providerId="openrouter")
        opened = agent.wait(lambda f: f["type"] == "extension_ui_request" and f["method"] == "open_url")
        assert opened["url"].startswith("https://openrouter.ai/")
        asked = agent.wait(lambda f: f["type"] == "extension_ui_request" and f["method"] == "input")
        agent.send("extension_ui_response", id=asked["id"], value="http://localhost/?state=none")
        refused = agent.wait(lambda f: f["type"] == "response" and f.get("id") == id)
        assert not refused["success"] and "no code" in refused["error"]
        agent.run("a")
        agent.run("b")
        assert agent.data("handoff", customInstructions="Short") == {}
        roles = [message["role"] for message in agent.data("get_messages")["messages"]]
        assert roles[0] == "compactionSummary"
        assert not agent.call("handoff")["success"], "nothing is left to hand over"
