"""A question that outlives the process: kept in the session, answered from another process, the call made once."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import AgentProcess, agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply
from tests.support.nursery import SPINDLE, run
from tests.wires.server.server import ServerProcess
from tests.wires.server.test_http import Http

WAIT = ["--on-question", "wait", "--ask", "Bash"]


def touch(name: str = "marker", id: str = "touch") -> Any:
    return call("bash", {"command": f"echo ran >> {name}"}, id=id)


class Waiting:
    """A session whose run waits, because `-p` had nobody to ask. Its process has ended."""

    def __init__(self, base: Path, *calls: Any, args: Sequence[str] = WAIT) -> None:
        self.base, self.work = base, base / "work"
        self.work.mkdir(parents=True)
        (self.work / "notes.txt").write_text("what I noted")
        self.done = self.print(reply(*(calls or [touch()]), usage=(40, 5, 0)), args=["-p", "do it", *args])
        self.result = json.loads(self.done.stdout)
        self.file = Path(self.result["sessionFile"])

    def print(self, *answers: Any, args: Sequence[str]) -> Any:
        with MockModel(list(answers)) as mock:
            write_models(self.base / "agent", mock.openai_url)
            given = [*SPINDLE, *args, "--model", "mock/m1", "--output", "json"]
            env = agent_environment(self.base / "agent")
            done = run(given, capture_output=True, text=True, timeout=60, cwd=self.work, env=env)
            self.asked = mock.requests
        return done

    def reopened(self, *answers: Any, args: Sequence[str] = WAIT) -> AgentProcess:
        return AgentProcess(list(answers), base=self.base, session=True, args=["--session", str(self.file), *args])

    @property
    def question(self) -> str:
        return str(self.result["questions"][0]["id"])

    def ran(self, name: str = "marker") -> str:
        file = self.work / name
        return file.read_text() if file.exists() else ""

    def facts(self, kind: str) -> list[str]:
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        return [line["data"]["state"] for line in lines if line.get("customType") == kind]


def results(request: Any) -> list[str]:
    return [message["content"] for message in request.body["messages"] if message["role"] == "tool"]


def test_a_run_that_cannot_ask_waits_and_says_so(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    assert waiting.done.returncode == 6, waiting.done.stderr
    assert (waiting.result["status"], waiting.result["stopReason"]) == ("waiting", "waiting")
    [question] = waiting.result["questions"]
    assert question["waits"] and question["toolName"] == "bash" and question["preview"]["kind"] == "command"
    assert question["id"] in waiting.done.stderr and not waiting.ran() and not waiting.result["denials"]
    with waiting.reopened() as agent:
        told = agent.wait("run_interrupted")["run"]
        assert told["questions"] == [question] and told["openCalls"] == [{"id": "touch", "name": "bash", "again": True}]
        assert agent.data("get_run_result")["result"]["status"] == "waiting"


@pytest.mark.parametrize(
    "answer, ran, model_reads",
    [
        ({"behavior": "allow"}, "ran\n", "no output"),
        ({"behavior": "deny", "reason": "not on a Friday"}, "", "not on a Friday"),
        ({"behavior": "allow", "input": {"command": "echo other >> marker"}}, "other\n", "changed the input"),
    ],
)
def test_the_answer_comes_from_another_process(
    tmp_path: Path, answer: dict[str, Any], ran: str, model_reads: str
) -> None:
    waiting = Waiting(tmp_path)
    with waiting.reopened(reply("so be it")) as agent:
        assert agent.data("answer_question", question=waiting.question, **answer)["disposition"] == "started"
        assert agent.wait("agent_settled")["stopReason"] == "end"
        [text] = results(agent.mock.requests[0])
        assert model_reads in text
        result = agent.data("get_run_result")["result"]
        assert result["turns"] == 2 and len(result["denials"]) == (answer["behavior"] == "deny")
        again = agent.call("answer_question", question=waiting.question, **answer)
        assert not again["success"] and "waits for an answer" in again["error"]
    assert waiting.ran() == ran
    assert waiting.facts("spindle.run") == ["begun", "waiting", "resumed", "ended"]
    assert waiting.facts("spindle.question") == ["asked", "answered", "used"]


def test_an_answer_that_makes_no_sense_leaves_the_question(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    with waiting.reopened(reply("done"), args=[*WAIT, "--deny", "Bash(rm *)"]) as agent:
        wrong = [
            ({"input": {"timeout": 1}}, "command"),
            ({"input": {"command": "rm x"}}, "refused"),
            ({"question": "no-such"}, "waits for an answer"),
        ]
        for fields, words in wrong:
            given = agent.call("answer_question", **{"question": waiting.question, "behavior": "allow", **fields})
            assert not given["success"] and words in given["error"], given
        assert agent.data("get_state")["interruptedRun"]["questions"]
        agent.call("answer_question", question=waiting.question, behavior="allow")
        agent.wait("agent_settled")
    assert waiting.ran() == "ran\n"


def test_all_questions_of_an_answer_wait_and_what_need_not_wait_is_done(tmp_path: Path) -> None:
    read = call("read", {"path": "notes.txt"}, id="read")
    waiting = Waiting(tmp_path, touch("one", "c1"), read, touch("two", "c2"))
    first, second = waiting.result["questions"]
    with waiting.reopened(reply("both")) as agent:
        answered = agent.data("answer_question", question=first["id"], behavior="allow")
        assert answered["disposition"] == "answered" and not waiting.ran("one")
    with waiting.reopened(reply("both")) as agent:
        [left] = agent.data("get_state")["interruptedRun"]["questions"]
        assert left["id"] == second["id"]
        agent.call("answer_question", question=second["id"], behavior="deny")
        agent.wait("agent_settled")
        assert len(results(agent.mock.requests[0])) == 3
    assert (waiting.ran("one"), waiting.ran("two")) == ("ran\n", "")


def test_calls_behind_a_question_wait_with_it_where_order_counts(tmp_path: Path) -> None:
    todo = call("todo_write", {"ops": [{"op": "init", "list": [{"phase": "A", "items": ["b"]}]}]}, id="todo")
    waiting = Waiting(tmp_path, touch("one", "c1"), todo)
    assert len(waiting.result["questions"]) == 1
    with waiting.reopened(reply("done")) as agent:
        assert all(one["again"] for one in agent.data("get_state")["interruptedRun"]["openCalls"])
        agent.call("answer_question", question=waiting.question, behavior="allow")
        agent.wait("agent_settled")
        assert not any("may have taken effect" in text for text in results(agent.mock.requests[0]))
    assert waiting.ran("one") == "ran\n"


def test_the_command_line_goes_on_by_rules(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    go_on = ["-c", "-p", "--resume-run"]
    again = waiting.print(args=[*go_on, *WAIT])
    assert again.returncode == 6 and json.loads(again.stdout)["questions"][0]["id"] == waiting.question, again.stderr
    done = waiting.print(reply("went on"), args=[*go_on, "--allow", "Bash(echo *)"])
    assert done.returncode == 0, done.stderr
    assert waiting.ran() == "ran\n" and len(waiting.asked) == 1


def test_who_cannot_be_asked_has_said_no_unless_waiting_was_chosen(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    done = waiting.print(reply("then not"), args=["-c", "-p", "--resume-run", "--ask", "Bash"])
    assert done.returncode == 3 and not waiting.ran()
    [denial] = json.loads(done.stdout)["denials"]
    assert denial["by"] == "nobody"


def test_another_prompt_gives_the_question_up_and_the_model_is_told(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    with waiting.reopened(reply("fine")) as agent:
        agent.run("something else")
        assert results(agent.mock.requests[0]) == ["This call did not run: its question was not answered."]
        late = agent.call("answer_question", question=waiting.question, behavior="allow")
        assert not late["success"]
    assert not waiting.ran()


@pytest.mark.parametrize("end", ["kill", "close_stdin"])
def test_an_open_question_outlives_its_process(tmp_path: Path, end: str) -> None:
    with AgentProcess([reply(touch())], base=tmp_path, session=True, args=WAIT) as agent:
        agent.prompt("do it")
        request = agent.wait("permission_request")
        assert request["waits"]
        file = agent.data("get_state")["sessionFile"]
        getattr(agent, end)()
    again = ["--session", file, *WAIT]
    with AgentProcess([reply("done")], base=tmp_path, session=True, args=again) as agent:
        [left] = agent.data("get_state")["interruptedRun"]["questions"]
        assert left["id"] == request["id"]
        agent.call("answer_question", question=left["id"], behavior="allow")
        agent.wait("agent_settled")
        assert "may have taken effect" not in results(agent.mock.requests[0])[0]
    assert (tmp_path / "work" / "marker").read_text() == "ran\n"


def test_a_resumed_run_asks_again_with_the_same_id(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    with waiting.reopened(reply("done")) as agent:
        agent.call("resume_run")
        request = agent.wait("permission_request")
        assert request["id"] == waiting.question
        assert agent.data("answer_question", question=request["id"], behavior="allow")["disposition"] == "answered"
        agent.wait("agent_settled")
    assert waiting.ran() == "ran\n"


def test_a_call_that_was_cut_off_after_its_answer_is_not_made_twice(tmp_path: Path) -> None:
    slow = call("bash", {"command": "echo ran >> marker; sleep 60"}, id="slow")
    waiting = Waiting(tmp_path, slow)
    with waiting.reopened() as agent:
        agent.call("answer_question", question=waiting.question, behavior="allow")
        while not waiting.ran():
            agent.call("get_state")
        agent.kill()
    with waiting.reopened(reply("I looked")) as agent:
        assert agent.data("get_state")["interruptedRun"]["openCalls"][0]["again"] is False
        agent.call("resume_run")
        agent.wait("agent_settled")
        assert "may have taken effect" in results(agent.mock.requests[0])[0]
    assert waiting.ran() == "ran\n"


def test_a_server_is_asked_over_http_killed_and_answered_by_the_next(tmp_path: Path) -> None:
    with ServerProcess([reply(touch())], base=tmp_path, args=WAIT) as server:
        web = Http(server)
        id = web.open()
        web.post(f"/v1/sessions/{id}/prompt", {"message": "do it"})
        server.mock.wait_requests(1)
        while not (requests := web.get(f"/v1/sessions/{id}/questions")[2]["requests"]):
            pass
        [question] = requests
        file = web.post(f"/v1/sessions/{id}/get_state", {})[2]["sessionFile"]
        server.process.kill()
        server.process.wait(10)
    with ServerProcess([reply("done")], base=tmp_path, args=WAIT) as server:
        web = Http(server)
        at = f"/v1/sessions/{web.open(session=file)}"
        state = web.post(f"{at}/get_state", {})[2]
        assert [one["id"] for one in state["interruptedRun"]["questions"]] == [question["id"]]
        status, _, given = web.post(f"{at}/answer_question", {"question": question["id"], "behavior": "allow"})
        assert status in (200, 202) and given["disposition"] == "started"
        server.mock.wait_requests(1)
    assert (tmp_path / "work" / "marker").read_text() == "ran\n"


def test_a_run_that_gets_no_answer_in_time_waits_and_the_same_process_goes_on(tmp_path: Path) -> None:
    settings = {"permissions": {"askTimeoutMs": 50}}
    with AgentProcess(
        [reply(touch()), reply("ok")], base=tmp_path, session=True, args=WAIT, settings=settings
    ) as agent:
        agent.prompt("do it")
        question = agent.wait("permission_request")
        assert agent.wait("agent_settled")["stopReason"] == "waiting"
        [waits] = agent.data("get_state")["interruptedRun"]["questions"]
        assert waits["id"] == question["id"]
        agent.call("answer_question", question=question["id"], behavior="allow")
        assert agent.wait("agent_settled")["stopReason"] == "end"
    assert (tmp_path / "work" / "marker").read_text() == "ran\n"
