"""Host tools, todos, interrupt modes and stream rules, through the real process."""

import json
import time
from pathlib import Path

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.images import PIXEL
from tests.support.mock_model import call, gate, reply, stall

PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def host(name: str = "lend", **extra) -> dict:
    return {"name": name, "description": f"{name} something", "parameters": PARAMETERS, **extra}


def text(*parts: str) -> dict:
    return {"content": [{"type": "text", "text": part} for part in parts]}


def results(agent: AgentProcess) -> dict[str, dict]:
    found = [f["message"] for f in agent.frames if f["type"] == "message_end" and f["message"]["role"] == "toolResult"]
    return {message["toolCallId"]: message for message in found}


def wait_call(agent: AgentProcess) -> dict:
    return agent.wait("host_tool_call")


# -- host tools ---------------------------------------------------------------------------------------


def test_a_hundred_calls_in_flight_answered_backwards():
    calls = [call("lend", {"n": n}, id=f"c{n}") for n in range(100)]
    with AgentProcess([reply(*calls), reply("done")]) as agent:
        assert agent.data("set_host_tools", tools=[host()]) == {"toolNames": ["lend"]}
        agent.prompt("go")
        asked = [wait_call(agent) for _ in calls]
        for frame in reversed(asked):
            agent.send("host_tool_result", id=frame["id"], result=text(f"r{frame['arguments']['n']}"))
        agent.wait("agent_settled")
        assert [m["content"][0]["text"] for m in results(agent).values()] == [f"r{n}" for n in range(100)]


def test_thousands_of_host_tools_are_declared_in_no_time():
    names = [f"t{n}" for n in range(8000)]
    with AgentProcess([reply("x")]) as agent:
        for extra in ({}, {"hidden": True}):
            begin = time.monotonic()
            declared = agent.data("set_host_tools", tools=[host(name, **extra) for name in names])["toolNames"]
            assert declared == names
            assert time.monotonic() - begin < 4


def test_late_double_and_malformed_answers_do_no_harm():
    with AgentProcess(
        [reply(call("lend", {"n": 1}, id="c1")), reply(call("lend", {"n": 2}, id="c2")), reply("x")]
    ) as agent:
        agent.call("set_host_tools", tools=[host()])
        agent.prompt("go")
        first = wait_call(agent)["id"]
        agent.send("host_tool_update", id=first, partialResult=text("half"))
        assert agent.wait("tool_execution_update")["partialResult"] == text("half")
        agent.send("host_tool_update", id=first, partialResult={"content": [{"type": "zork"}]})
        agent.send("host_tool_result", id=first, result=text("one"))
        agent.send("host_tool_result", id=first, result=text("twice"))
        second = wait_call(agent)["id"]
        agent.send("host_tool_result", id=first, result=text("late"))
        agent.send("host_tool_result", id=second, result={"content": [{"type": "zork"}]})
        agent.wait("agent_settled")
        assert results(agent)["c1"]["content"] == text("one")["content"]
        assert results(agent)["c2"]["isError"] and "invalid result" in results(agent)["c2"]["content"][0]["text"]


def test_images_and_details_come_through():
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    with AgentProcess([reply(call("lend", {"n": 1}, id="c1")), reply("x")]) as agent:
        agent.call("set_host_tools", tools=[host()])
        agent.prompt("go")
        result = {"content": [image], "details": {"deep": [1]}}
        agent.send("host_tool_result", id=wait_call(agent)["id"], result=result)
        agent.wait("agent_settled")
        assert results(agent)["c1"]["content"] == [image] and results(agent)["c1"]["details"] == {"deep": [1]}


def test_a_new_set_holds_from_the_next_model_call_on():
    with AgentProcess([reply(call("lend", {"n": 1}, id="c1")), reply("x")]) as agent:
        agent.call("set_host_tools", tools=[host()])
        agent.prompt("go")
        pending = wait_call(agent)["id"]
        agent.call("set_host_tools", tools=[host("other"), host("secret", hidden=True)])
        agent.send("host_tool_result", id=pending, result=text("still valid"))
        agent.wait("agent_settled")
        names = [[tool["function"]["name"] for tool in r.body["tools"]] for r in agent.mock.requests]
        assert "lend" in names[0] and "lend" not in names[1]
        assert "other" in names[1] and "secret" not in names[1]


def test_a_silent_host_runs_into_its_time_out():
    with AgentProcess(
        [reply(call("lend", {"n": 1}, id="c1")), reply("x")], settings={"hostTools": {"timeoutMs": 100}}
    ) as agent:
        agent.call("set_host_tools", tools=[host()])
        agent.prompt("go")
        id = wait_call(agent)["id"]
        assert agent.wait("host_tool_cancel")["targetId"] == id
        agent.wait("agent_settled")
        assert results(agent)["c1"]["content"][0]["text"] == 'Host tool "lend" timed out after 0.1s'


def test_end_of_input_while_the_host_works_ends_with_0():
    with AgentProcess([reply(call("lend", {"n": 1}, id="c1"))]) as agent:
        agent.call("set_host_tools", tools=[host()])
        agent.prompt("go")
        wait_call(agent)
        assert agent.close_stdin() == 0


# -- todos --------------------------------------------------------------------------------------------

PLAN = [{"name": "Plan", "tasks": [{"content": "look"}, {"content": "act"}]}]


def done(*ids: str) -> list[dict]:
    return [{"op": "update", "id": id, "status": "completed"} for id in ids]


def test_a_plain_client_sees_no_todo_tool_until_todos_are_set():
    with AgentProcess([reply("a"), reply("b")]) as agent:
        agent.run("one")
        agent.call("set_todos", phases=PLAN)
        agent.run("two")
        names = [[tool["function"]["name"] for tool in r.body["tools"]] for r in agent.mock.requests]
        assert "todo_write" not in names[0] and "todo_write" in names[1]


def test_stopping_early_brings_one_reminder_until_there_is_progress():
    steps = [reply("I stop"), reply("I stop again"), reply("next prompt"), reply("end")]
    with AgentProcess(steps) as agent:
        agent.call("set_todos", phases=PLAN)
        frames = agent.run("go")
        reminders = [f for f in frames if f["type"] == "todo_reminder"]
        assert [(f["attempt"], f["maxAttempts"], len(f["todos"])) for f in reminders] == [(1, 3, 2)]
        assert [f["type"] for f in frames].count("agent_end") == 2
        assert [f["type"] for f in frames].count("agent_settled") == 1
        told = agent.mock.requests[1].body["messages"][-1]["content"]
        assert "You stopped with 2 incomplete todo item(s):" in json.dumps(told)
        assert "(Reminder 1/3)" in json.dumps(told)


def test_compactions_in_between_do_not_bring_reminders_for_ever():
    plan = call("todo_write", {"ops": [{"op": "replace", "phases": PLAN}]}, id="c1")
    steps = [reply(plan), reply("I stop. " * 50, usage=(99_000, 10, 0))]
    settings = {"compaction": {"keepRecentTokens": 10}}
    with AgentProcess(steps, settings=settings, args=["--tools", "read,todo_write"]) as agent:
        frames = agent.run("go " * 100)
        assert sum(f["type"] == "auto_compaction_end" for f in frames) > 0
        assert sum(f["type"] == "todo_reminder" for f in frames) == 1
        (phase,) = agent.data("get_state")["todoPhases"]
        assert [task["content"] for task in phase["tasks"]] == ["look", "act"]


def test_the_tool_changes_the_list_and_finished_todos_vanish():
    steps = [reply(call("todo_write", {"ops": done("task-1", "task-2")}, id="c1")), reply("all done")]
    with AgentProcess(steps, settings={"tasks": {"todoClearDelay": 0}}) as agent:
        agent.call("set_todos", phases=PLAN)
        agent.run("go")
        agent.wait("todo_auto_clear")
        agent.wait("todo_auto_clear")
        assert agent.data("get_state")["todoPhases"] == []
        assert "Remaining items: none." in results(agent)["c1"]["content"][0]["text"]
        assert not any(f["type"] == "todo_reminder" for f in agent.frames)


def test_todos_come_back_with_the_session():
    steps = [reply(call("todo_write", {"ops": [{"op": "replace", "phases": PLAN}]}, id="c1")), reply("ok"), reply("ok")]
    args = ["--tools", "read,todo_write"]
    with AgentProcess(steps, session=True, args=args) as agent:
        agent.run("go")
        file = agent.data("get_state")["sessionFile"]
        agent.call("new_session")
        assert agent.data("get_state")["todoPhases"] == []
        agent.call("switch_session", sessionPath=file)
        (phase,) = agent.data("get_state")["todoPhases"]
        assert [task["content"] for task in phase["tasks"]] == ["look", "act"]


# -- stream rules -------------------------------------------------------------------------------------


def rule(base: Path, name: str, front: str, body: str = "Never say it.") -> None:
    folder = base / "agent" / "rules"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(f"---\n{front}\n---\n{body}")


def test_a_broken_rule_stops_the_answer_and_the_model_tries_again(tmp_path):
    rule(tmp_path, "no-foo", "condition: FORBIDDEN")
    steps = [reply("I will ", "use FORB", "IDDEN now", stall()), reply("allowed"), reply("FORBIDDEN again")]
    with AgentProcess(steps, base=tmp_path) as agent:
        frames = agent.run("go")
        (triggered,) = [f for f in frames if f["type"] == "ttsr_triggered"]
        assert triggered["rules"][0]["name"] == "no-foo"
        ends = [f["message"] for f in frames if f["type"] == "message_end" and f["message"]["role"] == "assistant"]
        assert [m["stopReason"] for m in ends] == ["aborted", "stop"]
        sent = json.dumps(agent.mock.requests[1].body["messages"])
        assert "Never say it." in sent and "I will" not in sent and 'rule=\\"no-foo\\"' in sent
        # once: the same words later stop nothing
        assert not any(f["type"] == "ttsr_triggered" for f in agent.run("more"))


def test_a_rule_about_files_looks_at_the_path(tmp_path):
    rule(tmp_path, "no-secrets", 'condition: "password"\nscope: "tool:write(*.py)"')
    steps = [
        reply(call("write", {"path": "notes.txt", "content": "password"}, id="c1")),
        reply(call("write", {"path": "a.py", "content": "password"}, id="c2"), stall()),
        reply("fine"),
    ]
    with AgentProcess(steps, base=tmp_path) as agent:
        frames = agent.run("go")
        assert sum(f["type"] == "ttsr_triggered" for f in frames) == 1
        assert (agent.cwd / "notes.txt").exists() and not (agent.cwd / "a.py").exists()


def test_a_rule_that_does_not_interrupt_is_told_in_the_next_turn(tmp_path):
    rule(tmp_path, "soft", "condition: oops\ninterruptMode: never", "Mind your words.")
    with AgentProcess([reply("oops"), reply("sorry")], base=tmp_path) as agent:
        frames = agent.run("go")
        assert not any(f["type"] == "ttsr_triggered" for f in frames)
        custom = [f["message"] for f in frames if f["type"] == "message_end" and f["message"]["role"] == "custom"]
        assert custom[0]["customType"] == "ttsr-injection" and "Mind your words." in custom[0]["content"]
        assert len(agent.mock.requests) == 2


def test_thinking_is_not_searched_unless_the_rule_says_so(tmp_path):
    from tests.support.mock_model import think

    rule(tmp_path, "quiet", "condition: hmm")
    rule(tmp_path, "mind", "condition: evil\nscope: thinking")
    with AgentProcess(
        [reply(think("hmm"), "ok"), reply(think("evil"), gate("x")), reply("good")], base=tmp_path
    ) as agent:
        assert not any(f["type"] == "ttsr_triggered" for f in agent.run("a"))
        assert any(f["type"] == "ttsr_triggered" for f in agent.run("b"))


@pytest.mark.parametrize("mode, expected", [("discard", False), ("keep", True)])
def test_what_was_stopped_is_dropped_or_quoted(tmp_path, mode, expected):
    rule(tmp_path, "no", "condition: BAD")
    with AgentProcess(
        [reply("prefix BAD"), reply("ok")], base=tmp_path, settings={"ttsr": {"contextMode": mode}}
    ) as agent:
        agent.run("go")
        assert ("prefix BAD" in json.dumps(agent.mock.requests[1].body["messages"])) is expected
