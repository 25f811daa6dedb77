"""What the strict client of a neighbouring agent takes for granted, checked frame by frame on a real process.

That client stops for good at the first frame it cannot place, so one run here goes through everything that has a
shape: text, thinking, tool calls, a host tool, a shell command, a retry, todos, an abort and a compaction.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, failure, reply, stall, think

Frame = dict[str, Any]

ROLES = {
    *("user", "developer", "assistant", "toolResult", "bashExecution", "pythonExecution"),
    *("custom", "hookMessage", "branchSummary", "compactionSummary", "fileMention"),
}
LEVELS = {"off", "minimal", "low", "medium", "high", "xhigh"}
STATUSES = {"pending", "in_progress", "completed", "abandoned"}
DIALECTS = ["spindle", "xcsh"]


def check_partial(event: Frame) -> None:
    assert event["partial"]["role"] == "assistant"
    if event["type"] != "start":
        assert type(event["contentIndex"]) is int


def check_update(event: Frame) -> None:
    match event["type"]:
        case "start" | "text_start" | "thinking_start" | "toolcall_start":
            check_partial(event)
        case "text_delta" | "thinking_delta" | "toolcall_delta":
            check_partial(event)
            assert isinstance(event["delta"], str)
        case "text_end" | "thinking_end":
            check_partial(event)
            assert isinstance(event["content"], str)
        case "toolcall_end":
            check_partial(event)
            assert isinstance(event["toolCall"], dict)
        case "done":
            assert event["reason"] in {"stop", "length", "toolUse"} and event["message"]["role"] == "assistant"
        case "error":
            assert event["reason"] in {"aborted", "error"} and event["error"]["role"] == "assistant"
        case unknown:
            pytest.fail(f"message_update of type {unknown}")


def check_todo(todo: Frame) -> None:
    assert isinstance(todo["content"], str) and todo["status"] in STATUSES
    assert all(isinstance(todo[key], str) for key in ("notes", "details") if key in todo)


def check_model(model: Frame) -> None:
    assert all(isinstance(model[key], str) for key in ("id", "name", "api", "provider", "baseUrl"))
    # The client reads another shape of `thinking` out of a model, and dies of any other object.
    assert not isinstance(model.get("thinking"), dict)


def check_state(state: Frame) -> None:
    assert isinstance(state["sessionId"], str) and isinstance(state["systemPrompt"], str)
    assert state["thinkingLevel"] in LEVELS and state["interruptMode"] in {"immediate", "wait"}
    assert {state["steeringMode"], state["followUpMode"]} <= {"all", "one-at-a-time"}
    assert all(isinstance(state.get(key), str | None) for key in ("sessionFile", "sessionName"))
    assert type(state["queuedMessageCount"]) is int
    for tool in state["dumpTools"]:
        assert isinstance(tool["name"], str) and isinstance(tool["description"], str)
    for phase in state["todoPhases"]:
        assert isinstance(phase["name"], str)
        for todo in phase["tasks"]:
            check_todo(todo)
    check_model(state["model"])


def messages_of(frame: Frame) -> Iterator[Frame]:
    if frame["type"] in {"message_start", "message_update", "message_end", "turn_end"}:
        yield frame["message"]
    if frame["type"] == "agent_end":
        yield from frame["messages"]
    if frame.get("command") == "get_messages":
        yield from frame["data"]["messages"]


def check(frame: Frame) -> None:
    for message in messages_of(frame):
        assert message["role"] in ROLES
    match frame["type"]:
        case "response":
            # Answers are looked up by id, errors without one by their command. Data is an object or is not there.
            assert isinstance(frame.get("id", None if frame["success"] else frame["command"]), str)
            assert isinstance(frame.get("data"), dict | None)
            if frame["command"] == "get_state":
                check_state(frame["data"])
        case "message_update":
            check_update(frame["assistantMessageEvent"])
        case "turn_end":
            assert all(result["role"] == "toolResult" for result in frame["toolResults"])
        case "tool_execution_end":
            assert isinstance(frame["isError"], bool)
        case "todo_reminder":
            for todo in frame["todos"]:
                check_todo(todo)
        case "auto_compaction_start":
            assert frame["reason"] in {"threshold", "overflow", "idle"}
        case "auto_compaction_end":
            assert isinstance(frame.get("result"), dict | None) and isinstance(frame["willRetry"], bool)
        case "host_tool_call":
            assert all(isinstance(frame[key], str) for key in ("id", "toolName", "toolCallId"))
            assert isinstance(frame["arguments"], dict)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_frame_has_the_shape_a_strict_client_needs(dialect):
    lend = {"name": "lend", "label": None, "description": "lends", "parameters": {"type": "object"}, "hidden": False}
    todos = [{"name": "Todos", "tasks": [{"content": "look", "status": "pending", "notes": None, "details": None}]}]
    steps = [
        reply(think("hm"), "I ", "look", call("lend", {}, id="c1"), call("bash", {"command": "echo hi"}, id="c2")),
        reply("I stop early"),
        reply("I stop again", usage=(99_000, 10, 0)),
        reply("THE SUMMARY"),
        failure(529, "overloaded"),
        reply("half", stall()),
    ]
    settings = {"compaction": {"keepRecentTokens": 10}}
    with AgentProcess(steps, args=["--dialect", dialect], settings=settings) as agent:
        assert agent.wait(lambda frame: True)["type"] == "ready"
        agent.data("set_host_tools", tools=[lend])
        agent.data("set_todos", phases=todos)
        agent.data("bash", command="echo hi")
        agent.call("prompt", message="go " * 100)
        asked = agent.wait("host_tool_call")["id"]
        agent.send("host_tool_update", id=asked, partialResult={"content": [{"type": "text", "text": "half"}]})
        agent.send("host_tool_result", id=asked, result={"content": [{"type": "text", "text": "lent"}], "details": {}})
        agent.wait("todo_reminder")
        agent.data("get_state")
        agent.wait("auto_compaction_end")
        agent.call("prompt", message="more")
        agent.wait("auto_retry_start")
        agent.wait_delta("half")
        agent.data("abort")
        agent.data("get_messages")
        agent.data("get_state")
        assert agent.call("cycle_model")["success"]
        agent.send("zork")
        assert not agent.wait(lambda frame: frame.get("command") == "zork")["success"]
        for frame in agent.frames:
            check(frame)
        seen = {frame["type"] for frame in agent.frames}
        assert {"auto_compaction_start", "tool_execution_update", "turn_end", "agent_end"} <= seen
        updates = {f["assistantMessageEvent"]["type"] for f in agent.frames if f["type"] == "message_update"}
        assert {"text_delta", "text_end", "thinking_end", "toolcall_start", "toolcall_delta", "toolcall_end"} <= updates


@pytest.mark.parametrize(
    "dialect, counted", [("spindle", True), ("xcsh", True), ("pi-0.74", False), ("pi-0.87", False)]
)
def test_the_answer_of_a_shell_command_counts_its_output(dialect, counted):
    with AgentProcess(args=["--dialect", dialect]) as agent:
        short = agent.data("bash", command="echo one; echo two")
        long = agent.data("bash", command="seq 1 5000")
        names = ("totalLines", "totalBytes", "outputLines", "outputBytes")
        assert [short.get(name) for name in names] == ([2, 8, 2, 8] if counted else [None] * 4)
        if counted:
            assert (long["totalLines"], long["totalBytes"]) == (5000, 23893)
            assert long["outputLines"] == len(re.findall(r"^\d+$", long["output"], re.M)) < 5000
            assert long["outputBytes"] == len(long["output"].encode())
