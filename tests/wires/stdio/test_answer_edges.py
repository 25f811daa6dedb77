"""The updates at the start and at the end of an answer: `start`, `done`, `error`, as pi's documents list them."""

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, failure, gate, reply

EDGES = ("start", "done", "error")


def edges(frames):
    events = [frame["assistantMessageEvent"] for frame in frames if frame["type"] == "message_update"]
    return [event for event in events if event["type"] in EDGES]


@pytest.mark.parametrize(
    ("step", "reason"),
    [(reply("hi"), "stop"), (reply(call("ls", {})), "toolUse"), (reply("cut", finish="length"), "length")],
)
def test_an_answer_has_a_start_and_an_end(step, reason):
    with AgentProcess([step, reply("ok")]) as agent:
        frames = agent.run("go")
        start, done = edges(frames)[:2]
        assert start["partial"]["role"] == "assistant"
        assert done["reason"] == reason and done["message"]["stopReason"] == reason
        order = [f["type"] if f["type"] != "message_update" else f["assistantMessageEvent"]["type"] for f in frames]
        assert order[order.index("start") - 1] == "message_start" and order[order.index("done") + 1] == "message_end"
        update = next(f for f in frames if f.get("assistantMessageEvent", {}).get("type") == "done")
        assert update["message"] == done["message"] and update["usage"] == done["message"]["usage"]


def test_a_model_that_fails_before_any_data():
    with AgentProcess([failure(401, "no")]) as agent:
        start, error = edges(agent.run("go"))
        assert start["partial"]["content"] == []
        assert error["reason"] == "error" and error["error"]["stopReason"] == "error"


def test_an_abort_is_told_as_one():
    with AgentProcess([reply("half", gate("never"))]) as agent:
        agent.prompt("go")
        agent.wait_delta("half")
        agent.call("abort")
        _, error = edges(agent.frames)
        assert error["reason"] == "aborted" and error["error"]["content"] == [{"type": "text", "text": "half"}]


def test_the_delta_form_leaves_messages_out():
    with AgentProcess([reply("hi")], args=["--updates", "delta"]) as agent:
        assert edges(agent.run("go")) == [{"type": "start"}, {"type": "done", "reason": "stop"}]


@pytest.mark.parametrize(("dialect", "count"), [("pi-0.74", 0), ("pi-0.87", 0), ("xcsh", 2)])
def test_dialects(dialect, count):
    with AgentProcess([reply("hi")], args=["--dialect", dialect]) as agent:
        agent.prompt("go")
        agent.wait("agent_end")
        assert len(edges(agent.frames)) == count
