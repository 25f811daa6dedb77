"""The sandbox of an agent: who may choose it, what its tools obey, what is asked, what clients are told."""

import asyncio
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spindle import Agent, AgentError
from spindle.programs import fence
from spindle.testing import Script
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply
from tests.wires.acp.editor_process import EditorProcess

pytestmark = pytest.mark.skipif(not fence.support().works, reason=f"no sandbox here: {fence.support().told()}")

BACKGROUND = "bash,bash_output,bash_kill"


def in_loop(test):  # type: ignore[no-untyped-def]
    @functools.wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


TOOLS = ["bash", "read", "write", "edit", "grep", "find", "ls"]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("home/.ssh", "agent", "work"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "home/.ssh/key").write_text("secret")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "agent"))
    return tmp_path / "work"


async def results(work: Path, *calls: tuple[str, dict[str, Any]], **options: Any) -> list[str]:
    steps = [{"calls": [{"name": name, "arguments": arguments}]} for name, arguments in calls]
    model = Script([*steps, {"text": "Done."}]).model()
    options = {"sandbox": "workspace-write", "tools": TOOLS, "persist": False, **options}
    found = []
    async with await Agent.create(cwd=work, model=model, **options) as agent:
        async for event in agent.prompt("go"):
            if event.type == "tool_execution_end":
                found.append(event.result.content[0].text)
    return found


@in_loop
async def test_tools_of_our_process_obey_the_same_roots(work: Path) -> None:
    (work / "out").symlink_to(work.parent)
    found = await results(
        work,
        ("write", {"path": "../x", "content": "x"}),
        ("write", {"path": "out/x", "content": "x"}),
        ("write", {"path": ".mcp.json", "content": "{}"}),
        ("edit", {"path": "~/.ssh/key", "edits": [{"oldText": "secret", "newText": "x"}]}),
        ("read", {"path": "~/.ssh/key"}),
        ("grep", {"pattern": "secret", "path": "../home"}),
        ("find", {"pattern": "*", "path": "~/.ssh"}),
        ("ls", {"path": "~/.ssh"}),
        ("write", {"path": "sub/x", "content": "x"}),
        ("read", {"path": "sub/x"}),
    )
    assert all(text.startswith("EACCES: ") for text in found[:5]), found
    assert "secret" not in found[5].replace("a secret", "")
    assert all("is a secret" in text for text in found[6:8])
    assert found[8:] == ["Successfully wrote to sub/x", "x"]
    assert not (work.parent / "x").exists()
    assert sorted(os.listdir(work)) == ["out", "sub"]


@in_loop
async def test_read_only_and_what_is_asked_for_with_it(work: Path) -> None:
    sandbox = {"level": "read-only", "network": "off"}
    found = await results(
        work, ("write", {"path": "x", "content": ""}), ("bash", {"command": "echo > y"}), sandbox=sandbox
    )
    assert found[0].startswith("EACCES: ")
    assert f"[The sandbox (read-only) stopped this command: it may not write {work}/y]" in found[1]
    assert os.listdir(work) == []


@in_loop
async def test_whoever_names_a_level_gets_it_or_an_error(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = work.parent / "agent/settings.json"
    for wrong, message in [
        ("workspace", "Unknown sandbox level"),
        ({"level": "read-only", "network": [0]}, "from 1 to 65535"),
        ({"network": "off"}, "needs a sandbox"),
    ]:
        with pytest.raises(AgentError, match=message):
            await results(work, sandbox=wrong)
    for slip in ({"level": "readonly"}, {"levl": "read-only"}, {"network": 5}, "on"):
        settings.write_text(json.dumps({"sandbox": slip}))
        with pytest.raises(AgentError, match="sandbox in the user settings"):
            await results(work, sandbox=None)
    settings.write_text(json.dumps({"sandbox": {"level": "read-only"}}))
    (text,) = await results(work, ("write", {"path": "x", "content": ""}), sandbox=None)
    assert "read-only" in text
    monkeypatch.setattr("spindle.workspace.sandbox.support", lambda: fence.Support(0, None, False))
    with pytest.raises(AgentError, match=r"cannot be had here.*Choices"):
        await results(work, sandbox=None)


@in_loop
async def test_a_client_may_be_stricter_but_not_looser(work: Path) -> None:
    async with await Agent.create(
        cwd=work, model=Script([{"text": "x"}]).model(), persist=False, sandbox="workspace-write"
    ) as agent:
        session = agent.session
        for looser in ("off", {"writable": ["/"]}):
            with pytest.raises(AgentError, match="a client cannot"):
                session.set_permissions(sandbox=looser)
        session.set_permissions(sandbox={"level": "read-only", "network": "off"})
        state = session.state().sandbox
        assert (state.level, state.network, len(state.writable)) == ("read-only", "off", 1)
        assert any("Network: off" in line for line in state.holds)
        temporary = state.writable[0]
        assert os.path.isdir(temporary)
    assert not os.path.exists(temporary)


@in_loop
async def test_rules_let_commands_run_outside(work: Path) -> None:
    (work.parent / "agent/settings.json").write_text(json.dumps({"sandbox": {"outside": ["Bash(touch *)"]}}))
    command = "touch ../x"
    assert await results(work, ("bash", {"command": command})) == ["(no output)"]
    assert (work.parent / "x").exists()
    (text,) = await results(work, ("bash", {"command": f"{command}; echo > ../y"}))
    assert "stopped this command" in text


@in_loop
async def test_a_program_is_asked_about_running_outside(work: Path) -> None:
    asked = []

    async def can_use_tool(name: str, arguments: Any) -> bool:
        asked.append((name, arguments))
        return True

    options = {"can_use_tool": can_use_tool, "permission_mode": "bypass"}
    assert await results(work, ("bash", {"command": "echo > ../x"}), **options) == ["(no output)"]
    stopped = f"it may not write {work.parent}/x"
    assert asked == [("bash outside of the sandbox", {"command": "echo > ../x", "stoppedBy": stopped})]
    assert (work.parent / "x").exists()


def answer_dialog(agent: AgentProcess, title: str, wanted: str) -> None:
    dialog = agent.wait(lambda frame: frame.get("type") == "extension_ui_request")
    assert dialog["title"].startswith(title)
    value = next(option for option in dialog["options"] if option.startswith(wanted))
    given = {"type": "extension_ui_response", "id": dialog["id"], "value": value}
    agent.write(json.dumps(given).encode() + b"\n")


def test_the_question_over_the_wire_and_a_rule_for_always(tmp_path: Path) -> None:
    commands = [f"touch {tmp_path}/{name}" for name in "abc"]
    steps = [reply("", call("bash", {"command": command})) for command in commands]
    with AgentProcess([*steps, reply("ok")], args=["--sandbox", "workspace-write"]) as agent:
        state = agent.data("get_state")["sandbox"]
        assert state["level"] == "workspace-write"
        assert state["holds"]
        agent.prompt("go")
        for wanted in ("Deny", "Always allow"):
            answer_dialog(agent, "Run it outside of the sandbox? touch ", wanted)
        agent.wait(lambda frame: frame.get("type") == "agent_end")
        answer = agent.call("set_permissions", sandbox="off")
        assert not answer["success"]
        assert "a client cannot" in answer["error"]
    assert [os.path.exists(f"{tmp_path}/{name}") for name in "abc"] == [False, True, True]


def test_background_commands_are_told_the_reason_and_asked_about(tmp_path: Path) -> None:
    """One is stopped at once, while its call waits for the first lines; the other when the agent is idle again."""
    first, later = f"touch {tmp_path}/a", f"until [ -e go ]; do sleep 0.05; done; touch {tmp_path}/b"
    steps = [reply("", call("bash", {"command": line, "background": True})) for line in (first, later)]
    with AgentProcess([*steps, reply("ok")], args=["--sandbox", "workspace-write", "--tools", BACKGROUND]) as agent:
        agent.prompt("go")
        answer_dialog(agent, "Run it outside of the sandbox? touch", "Deny")
        agent.wait("agent_settled")
        (agent.cwd / "go").touch()
        answer_dialog(agent, "Run it outside of the sandbox? until", "Allow")
        agent.wait(lambda frame: frame["type"] == "background_end" and frame["id"] == "bg3")
        agent.wait("agent_settled")
        told = [message for message in agent.data("get_messages")["messages"] if message["role"] != "assistant"]
    text = json.dumps(told)
    assert f"stopped this command: it may not write {tmp_path}/a" in text
    assert f"stopped this command: it may not write {tmp_path}/b" in text and "runs again as bg3" in text
    assert (os.path.exists(tmp_path / "a"), os.path.exists(tmp_path / "b")) == (False, True)


def test_nothing_is_loaded_for_a_sandbox_that_is_off(work: Path) -> None:
    code = (
        "import asyncio, sys\nfrom spindle import Agent\nfrom spindle.testing import Script\n"
        "async def main():\n"
        "    model = Script([{'calls': [{'name': 'bash', 'arguments': {'command': 'true'}}]}, {'text': 'x'}]).model()\n"
        "    async with await Agent.create(model=model, persist=False) as agent:\n"
        "        await agent.ask('go')\n"
        "        assert agent.session.state().sandbox.level == 'off'\n"
        "asyncio.run(main())\n"
        "names = ('ctypes', 'spindle.programs.fence', 'spindle.workspace.sandbox')\n"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=work, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_an_editor_chooses_the_level() -> None:
    with EditorProcess([reply("", call("bash", {"command": "touch x"})), reply("ok")]) as editor:
        session = editor.new()
        answer = editor.ok("session/set_config_option", sessionId=session, configId="sandbox", value="read-only")
        assert {one["id"]: one["currentValue"] for one in answer["configOptions"]}["sandbox"] == "read-only"
        prompt = editor.say(session, "go")
        question = editor.request("session/request_permission")
        assert "outside of the sandbox" in json.dumps(question["params"])
        no = next(o["optionId"] for o in question["params"]["options"] if o["kind"].startswith("reject"))
        editor.reply(question, outcome={"outcome": "selected", "optionId": no})
        assert editor.stop_reason(prompt) == "end_turn"
        assert not (editor.cwd / "x").exists()


def test_the_agent_directory_may_lie_in_the_working_directory(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a home. The git directory of undo is no work of a command."""
    monkeypatch.setenv("SPINDLE_DIR", str(work / ".pi/agent"))
    command = [{"calls": [{"name": "bash", "arguments": {"command": "echo a > a"}}]}]
    (work.parent / "script.json").write_text(json.dumps([*command, *command, "Done."]))
    options = ("--sandbox", "workspace-write", "--model", f"scripted/{work.parent}/script.json")
    said = subprocess.check_output(
        [sys.executable, "-m", "spindle", "--mode", "json", "go", *options], cwd=work, text=True
    )
    assert '"toolName":"bash"' in said and "[Sandbox:" not in said
    (config,) = work.glob(".pi/agent/checkpoints/*/git/config")
    assert "hooksPath = /dev/null" in config.read_text()
