"""A run that the end of its process cut off: what the session says of it, and how it goes on in another process."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.agent_process import AgentProcess, agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply
from tests.support.nursery import SPINDLE, run
from tests.wires.server.server import ServerProcess

TRUTH = "The process ended while this ran; it may have taken effect: look before you repeat it."


def steps(*more: Any) -> list[Any]:
    """One answer with a command that marks what it did and hangs, beside a call that only reads."""
    slow = call("bash", {"command": "echo ran >> marker; sleep 60"}, id="slow")
    return [reply(slow, call("read", {"path": "notes.txt"}, id="quick"), usage=(40, 5, 0)), *more]


class Cut:
    """A session whose process was killed in the middle of a tool call."""

    def __init__(self, base: Path, *, prompt: dict[str, Any] | None = None, calls: Sequence[Any] = ()) -> None:
        self.base = base
        with AgentProcess(steps() if not calls else list(calls), base=base, session=True) as agent:
            (agent.cwd / "notes.txt").write_text("what I noted")
            agent.prompt("do it", **(prompt or {}))
            agent.wait(lambda frame: frame["type"] == "tool_execution_start" and frame["toolCallId"] == "slow")
            marker = agent.cwd / "marker"
            while not marker.exists():
                agent.call("get_state")
            self.file = Path(agent.data("get_state")["sessionFile"])
            agent.kill()
        self.marker = marker

    def reopened(self, *answers: Any, args: Sequence[str] = ()) -> AgentProcess:
        return AgentProcess(list(answers), base=self.base, session=True, args=["--session", str(self.file), *args])

    def records(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        return [line["data"] for line in lines if line.get("customType") == "spindle.run"]


def tool_results(request: Any) -> list[str]:
    return [message["content"] for message in request.body["messages"] if message["role"] == "tool"]


def test_the_session_says_when_a_run_begins_and_ends(tmp_path: Path) -> None:
    with AgentProcess([reply("done")], base=tmp_path, session=True) as agent:
        agent.prompt("hello", maxTurns=5)
        agent.wait("agent_settled")
        state = agent.data("get_state")
        assert "interruptedRun" not in state
        lines = [json.loads(line) for line in Path(state["sessionFile"]).read_text().splitlines()]
    begun, ended = (line["data"] for line in lines if line.get("customType") == "spindle.run")
    [message] = [line for line in lines if line["type"] == "message" and line["message"]["role"] == "user"]
    assert begun["state"] == "begun" and begun["limits"] == {"maxTurns": 5} and begun["prompt"] == message["id"]
    assert (ended["id"], ended["state"], ended["stopReason"]) == (begun["id"], "ended", "end")
    assert ended["used"]["turns"] == 1


def test_a_list_says_which_session_was_left_in_the_middle_of_a_run(tmp_path: Path) -> None:
    cut = Cut(tmp_path)
    with AgentProcess([], base=tmp_path, session=True) as other:
        [item] = other.data("list_sessions")["sessions"]
        assert item["path"] == str(cut.file) and item["interrupted"] is True
    with cut.reopened(reply("it ran")) as agent:
        agent.call("resume_run")
        agent.wait("agent_settled")
        assert all("interrupted" not in one for one in agent.data("list_sessions")["sessions"])


def test_a_killed_run_is_told_and_goes_on_without_a_second_effect(tmp_path: Path) -> None:
    cut = Cut(tmp_path, prompt={"maxTurns": 10})
    with cut.reopened(reply("I looked: it ran")) as agent:
        told = agent.wait("run_interrupted")["run"]
        state = agent.data("get_state")
        assert state["interruptedRun"] == told and state["isSettled"]
        assert told["prompt"] == "do it" and told["turns"] == 1 and told["limits"] == {"maxTurns": 10}
        assert {one["name"]: one["again"] for one in told["openCalls"]}["bash"] is False
        assert agent.data("get_run_result")["result"]["status"] == "interrupted"
        agent.call("resume_run")
        agent.wait("agent_settled")
        sent = tool_results(agent.mock.requests[0])
        assert len(sent) == 2 and TRUTH in sent and any("what I noted" in text for text in sent)
        result = agent.data("get_run_result")["result"]
        assert result["status"] == "ok" and result["turns"] == 2 and result["text"] == "I looked: it ran"
        assert "interruptedRun" not in agent.data("get_state")
    assert cut.marker.read_text() == "ran\n"
    assert [one["state"] for one in cut.records()] == ["begun", "resumed", "ended"]
    with cut.reopened() as agent:
        assert "interruptedRun" not in agent.data("get_state")


def test_limits_hold_over_the_end_of_the_process(tmp_path: Path) -> None:
    cut = Cut(tmp_path, prompt={"maxTurns": 2})
    with cut.reopened(reply(call("bash", {"command": "true"}))) as agent:
        agent.call("resume_run")
        assert agent.wait("agent_settled")["stopReason"] == "maxTurns"
        assert len(agent.mock.requests) == 1, "one call was used up before"


def test_a_run_that_used_up_its_limit_ends_at_once(tmp_path: Path) -> None:
    cut = Cut(tmp_path, prompt={"maxTurns": 1})
    with cut.reopened() as agent:
        agent.call("resume_run")
        assert agent.wait("agent_settled")["stopReason"] == "maxTurns"
        assert not agent.mock.requests
    assert [record["state"] for record in cut.records()] == ["begun", "resumed", "ended"]
    with cut.reopened(reply("fine")) as agent:
        assert "interruptedRun" not in agent.data("get_state")
        agent.run("and now?")
        assert TRUTH in tool_results(agent.mock.requests[0])


def test_an_abandoned_run_stays_abandoned_and_the_model_reads_the_truth(tmp_path: Path) -> None:
    cut = Cut(tmp_path)
    with cut.reopened(reply("fine")) as agent:
        agent.call("abandon_run")
        assert "interruptedRun" not in agent.data("get_state")
        again = agent.call("resume_run")
        assert not again["success"] and "no interrupted run" in again["error"]
        agent.run("and now?")
        assert TRUTH in tool_results(agent.mock.requests[0])
    assert cut.records()[1]["state"] == "abandoned"


def test_another_prompt_abandons_the_run(tmp_path: Path) -> None:
    cut = Cut(tmp_path)
    with cut.reopened(reply("fine")) as agent:
        agent.run("something else")
        assert TRUTH in tool_results(agent.mock.requests[0])
        assert "interruptedRun" not in agent.data("get_state")
    assert [one["state"] for one in cut.records()] == ["begun", "abandoned", "begun", "ended"]


def test_a_copy_of_the_session_has_no_open_run(tmp_path: Path) -> None:
    cut = Cut(tmp_path)
    with AgentProcess(base=tmp_path, session=True, args=["--fork", str(cut.file)]) as agent:
        assert "interruptedRun" not in agent.data("get_state")


def test_a_run_that_was_aborted_is_not_interrupted(tmp_path: Path) -> None:
    with AgentProcess(steps(), base=tmp_path, session=True) as agent:
        agent.prompt("do it")
        agent.wait("tool_execution_start")
        agent.call("abort")
        file = agent.data("get_state")["sessionFile"]
    with AgentProcess(base=tmp_path, session=True, args=["--session", file]) as agent:
        assert "interruptedRun" not in agent.data("get_state")


def test_a_run_whose_process_was_told_to_end_goes_on_in_the_next(tmp_path: Path) -> None:
    with AgentProcess(steps(), base=tmp_path, session=True) as agent:
        agent.prompt("do it")
        agent.wait("tool_execution_start")
        file = agent.data("get_state")["sessionFile"]
        agent.close_stdin()
    with AgentProcess([reply("went on")], base=tmp_path, session=True, args=["--session", file]) as agent:
        assert agent.data("get_state")["interruptedRun"]["openCalls"] == []
        agent.call("resume_run")
        agent.wait("agent_settled")
        assert agent.data("get_last_assistant_text")["text"] == "went on"


def spindle(cut: Cut, *args: str) -> Any:
    env = agent_environment(cut.base / "agent")
    return run([*SPINDLE, *args], capture_output=True, text=True, timeout=60, cwd=cut.base / "work", env=env)


def test_the_command_line_lists_it_and_goes_on_with_it(tmp_path: Path) -> None:
    cut = Cut(tmp_path)
    assert "[interrupted] do it" in spindle(cut, "sessions").stdout
    with MockModel([reply("went on from the command line")]) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        done = spindle(cut, "-c", "-p", "--resume-run", "--model", "mock/m1")
    assert (done.returncode, done.stdout) == (0, "went on from the command line\n"), done.stderr
    assert "interrupted" not in spindle(cut, "sessions").stdout
    again = spindle(cut, "-c", "-p", "--resume-run", "--model", "mock/m1")
    assert again.returncode == 1 and "no interrupted run" in again.stderr
    assert cut.marker.read_text() == "ran\n"


def test_a_server_goes_on_with_all_of_them(tmp_path: Path) -> None:
    cut = Cut(tmp_path)
    with ServerProcess([reply("recovered")], base=tmp_path, args=["--recover"]) as server:
        server.mock.wait_requests(1)
        deadline = time.monotonic() + 20
        while '"state":"ended"' not in cut.file.read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
    assert [one["state"] for one in cut.records()] == ["begun", "resumed", "ended"]
    assert cut.marker.read_text() == "ran\n"


def test_a_tool_of_the_client_may_be_safe_to_retry(tmp_path: Path) -> None:
    tools = [
        {"name": name, "description": "Looks.", "parameters": {"type": "object"}, "safeToRetry": name == "look"}
        for name in ("look", "act")
    ]
    steps = [reply(call("look", {}, id="look"), call("act", {}, id="act"))]
    with AgentProcess(steps, base=tmp_path, session=True) as agent:
        agent.call("set_host_tools", tools=tools)
        agent.prompt("go")
        agent.wait("host_tool_call")
        agent.wait("host_tool_call")
        file = agent.data("get_state")["sessionFile"]
        agent.kill()
    with AgentProcess([reply("done")], base=tmp_path, session=True, args=["--session", file]) as agent:
        agent.call("set_host_tools", tools=tools)
        agent.call("resume_run")
        asked = agent.wait("host_tool_call")
        assert asked["toolName"] == "look"
        result = {"content": [{"type": "text", "text": "seen"}]}
        agent.write(json.dumps({"type": "host_tool_result", "id": asked["id"], "result": result}).encode() + b"\n")
        agent.wait("agent_settled")
        assert sorted(tool_results(agent.mock.requests[0])) == sorted([TRUTH, "seen"])


def test_what_a_subagent_spent_in_a_cut_call_counts(tmp_path: Path) -> None:
    slow = call("bash", {"command": "echo ran >> marker; sleep 60"}, id="slow")
    look = call("bash", {"command": "true"}, id="true")
    steps = [
        reply(call("task", {"prompt": "look into it"}, id="task"), usage=(100, 10, 0)),
        reply(look, usage=(1000, 10, 0)),
        reply(slow, usage=(2000, 10, 0)),
    ]
    args = ["--tools", "bash,task"]
    with AgentProcess(steps, base=tmp_path, session=True, args=args) as agent:
        agent.prompt("do it", maxTurns=4)
        marker = agent.cwd / "marker"
        while not marker.exists():
            agent.call("get_state")
        file = agent.data("get_state")["sessionFile"]
        agent.kill()
    for _ in range(2):
        with AgentProcess([reply(call("bash", {"command": "true"}))], base=tmp_path, session=True,
                          args=["--session", file, *args]) as agent:  # fmt: skip
            assert agent.data("get_state")["interruptedRun"]["turns"] == 3
            assert agent.data("get_run_result")["result"]["tokens"]["input"] == 3100
    with AgentProcess([reply(call("bash", {"command": "true"}))], base=tmp_path, session=True,
                      args=["--session", file, *args]) as agent:  # fmt: skip
        agent.call("resume_run")
        assert agent.wait("agent_settled")["stopReason"] == "maxTurns"
        assert agent.data("get_run_result")["result"]["turns"] == 4 and len(agent.mock.requests) == 1
