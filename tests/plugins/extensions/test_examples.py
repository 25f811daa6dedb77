"""The examples, each through the real process with a scripted model, and once without either."""

import importlib.util
import json
from types import ModuleType
from typing import Any

import pytest

from spindle.testing import load
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, gate, reply

from .helpers import EXAMPLES, answer, run


def start(name: str, steps=(), *, args=(), **options: Any) -> AgentProcess:
    return AgentProcess(list(steps), args=["-e", str(EXAMPLES / name), *args], **options)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ui(agent: AgentProcess, method: str) -> dict[str, Any]:
    return agent.wait(lambda f: f["type"] == "extension_ui_request" and f["method"] == method)


def result(agent: AgentProcess) -> str:
    ends = [f for f in agent.frames if f["type"] == "message_end" and f["message"]["role"] == "toolResult"]
    return ends[-1]["message"]["content"][0]["text"]


# -- the gate -----------------------------------------------------------------------------------------


def bash(command: str):
    return reply(call("bash", {"command": command}), finish="toolUse")


def test_the_gate_lets_harmless_commands_through_without_asking():
    with start("permission_gate.py", [bash("echo fine"), reply("ok")]) as agent:
        agent.run("go")
        assert result(agent) == "fine\n"
        assert not any(f["type"] == "extension_ui_request" for f in agent.frames)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_gate_asks_about_dangerous_commands(allowed):
    with start("permission_gate.py", [bash("rm -rf precious"), reply("ok")]) as agent:
        (agent.cwd / "precious").mkdir()
        agent.prompt("clean up")
        asked = ui(agent, "confirm")
        assert (asked["title"], asked["message"], asked["timeout"]) == ("Dangerous command", "rm -rf precious", 60000)
        answer(agent, asked, confirmed=allowed)
        agent.wait("agent_settled")
        assert (agent.cwd / "precious").exists() is not allowed
        if not allowed:
            assert result(agent) == "The user refused this command."
            assert ui(agent, "notify")["notifyType"] == "warning"


def test_the_gate_holds_when_the_client_vanishes():
    with start("permission_gate.py", [bash("rm -rf precious"), reply("ok")]) as agent:
        (agent.cwd / "precious").mkdir()
        agent.prompt("clean up")
        ui(agent, "confirm")
        assert agent.close_stdin() == 0
        assert (agent.cwd / "precious").exists()


def test_the_gate_has_an_option():
    steps = [bash("rm -rf build"), reply("ok")]
    with start("permission_gate.py", steps, args=["--gate-allow", "^rm -rf build$"]) as agent:
        (agent.cwd / "build").mkdir()
        agent.run("clean")
        assert not (agent.cwd / "build").exists()


@pytest.mark.parametrize(
    ("command", "dangerous"),
    [
        ("rm -rf x", True),
        ("rm -v -f x", True),
        ("rm -R x", True),
        ("rm x y -rf", True),
        ("rm --recursive x", True),
        ("ls; /bin/rm --force x", True),
        ("sudo ls", True),
        ("git push --force", True),
        ("git push origin main -f", True),
        ("dd if=/dev/zero of=/dev/sda", True),
        ("chmod -R 777 .", True),
        ("chmod 0777 x", True),
        ("rm x", False),
        ("rm x; tail -f log", False),
        ("ls -rf", False),
        ("git push", False),
        ("echo 'form -f'", False),
    ],
)
def test_what_the_gate_calls_dangerous(command, dangerous):
    async def check():
        agent = await load(example("permission_gate").extension)
        assert ((await agent.tool_call("bash", command=command)).blocked is not None) is dangerous

    run(check())


def test_the_gate_refuses_when_nobody_is_there():
    async def check():
        agent = await load(example("permission_gate").extension)
        agent.set(has_ui=False)
        refused = (await agent.tool_call("bash", command="sudo ls")).blocked
        assert refused == "Dangerous command refused: nobody is there to ask."
        assert agent.ui == []

    run(check())


# -- the tool -----------------------------------------------------------------------------------------


def test_the_tool_counts_and_tells_its_progress():
    steps = [reply(call("count_lines", {"pattern": "*.txt", "limit": "2"}), finish="toolUse"), reply("ok")]
    with start("count_lines.py", steps) as agent:
        for number in range(1, 4):
            (agent.cwd / f"f{number}.txt").write_text("x\n" * number)
        agent.run("count")
        assert result(agent) == "       3 f3.txt\n       2 f2.txt"
        end = next(f for f in agent.frames if f["type"] == "tool_execution_end")
        assert end["result"]["details"] == {"files": 3, "lines": 6}
        update = agent.wait("tool_execution_update")
        assert "1 files so far" in update["partialResult"]["content"][0]["text"]
        told = agent.mock.requests[0].body
        (spec,) = [tool["function"] for tool in told["tools"] if tool["function"]["name"] == "count_lines"]
        assert spec["parameters"]["properties"]["pattern"]["description"].startswith("Glob")
        assert spec["parameters"]["required"] == ["pattern"]
        assert "Count the lines of files that match a glob" in told["messages"][0]["content"]


def test_the_tool_fails_in_words_the_model_can_read():
    steps = [reply(call("count_lines", {"pattern": "*.none"}), finish="toolUse"), reply("ok")]
    with start("count_lines.py", steps) as agent:
        agent.run("count")
        assert result(agent) == "No file matches *.none"


# -- the command --------------------------------------------------------------------------------------


def test_the_command_keeps_its_state_in_the_session():
    with start("todo_command.py", [reply("done")], session=True) as agent:
        ui(agent, "setStatus")
        for line, status in [("add milk", "1 open"), ("add bread", "2 open"), ("done 1", "1 open")]:
            assert agent.prompt(f"/todo {line}")["success"]
            assert ui(agent, "setStatus")["statusText"] == status
        agent.prompt("/todo list")
        assert ui(agent, "notify")["message"] == "2. bread"
        agent.prompt("/todo nonsense")
        assert ui(agent, "notify")["notifyType"] == "warning"
        agent.prompt("/todo send")
        agent.wait("agent_settled")
        assert "Work through these items:\\n- bread" in json.dumps(agent.mock.requests[0].body)
        file = agent.data("get_state")["sessionFile"]
        base = agent.base
        agent.close_stdin()
        with start("todo_command.py", args=["--session", file], session=True, base=base) as later:
            assert ui(later, "setStatus")["statusText"] == "1 open"
            later.prompt("/todo add eggs")
            later.prompt("/todo list")
            assert ui(later, "notify")["message"] == "2. bread\n3. eggs"


def test_each_branch_has_its_own_list():
    with start("todo_command.py", [reply("x")], session=True) as agent:
        agent.prompt("/todo add before")
        agent.prompt("/todo list")
        assert ui(agent, "notify")["message"] == "1. before"  # so it is in the session
        agent.run("hello")
        agent.prompt("/todo add after")
        entry = agent.data("get_fork_messages")["messages"][0]["entryId"]
        agent.data("fork", entryId=entry)
        agent.prompt("/todo list")
        assert ui(agent, "notify")["message"] == "1. before"


def test_the_command_works_while_the_model_writes_and_has_a_limit():
    with start("todo_command.py", [reply("a", gate("go"), "b")], args=["--todo-max", "1"]) as agent:
        agent.prompt("go")
        agent.wait_delta("a")
        agent.prompt("/todo add one")
        agent.prompt("/todo add two")
        assert ui(agent, "notify")["message"] == "Too many open items"
        agent.mock.release("go")
        agent.wait("agent_settled")


def test_the_command_completes():
    async def check():
        agent = await load(example("todo_command").extension)
        assert await agent.hooks.complete_command("todo", "d") == ["done "]

    run(check())
