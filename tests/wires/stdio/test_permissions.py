"""Permissions over the wire, with a real process."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from spindle.inprocess import Agent
from spindle.shapes.events import Notice
from spindle.testing import Script
from tests.support import nursery
from tests.support.agent_process import AgentProcess, agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply


def touch(name: str):
    return reply("", call("bash", {"command": f"touch {name}"}))


def choose(agent: AgentProcess, wanted: str) -> dict:
    dialog = agent.wait(lambda f: f.get("type") == "extension_ui_request" and f["method"] == "select")
    value = next(option for option in dialog["options"] if option.startswith(wanted))
    agent.write(json.dumps({"type": "extension_ui_response", "id": dialog["id"], "value": value}).encode() + b"\n")
    return dialog


def results(frames: list[dict]) -> list[str]:
    return [frame["result"]["content"][0]["text"] for frame in frames if frame["type"] == "tool_execution_end"]


def test_a_denied_command_does_not_run_and_the_model_reads_the_rule():
    with AgentProcess([touch("a"), reply("ok")], args=["--deny", "Bash(touch *)"]) as agent:
        frames = agent.run("go")
        assert not (agent.cwd / "a").exists()
        assert results(frames) == [
            "Permission denied: this call of bash is refused by rule Bash(touch *) of the command line."
        ]
        (denied,) = [frame for frame in frames if frame["type"] == "permission_denied"]
        assert (denied["toolName"], denied["arguments"], denied["rule"]) == (
            "bash",
            {"command": "touch a"},
            "Bash(touch *)",
        )
        assert frames[-1] == {"type": "agent_settled", "aborted": False, "stopReason": "end"}


def test_a_question_may_be_answered_once_or_with_no():
    steps = [touch("a"), reply("ok"), touch("b"), reply("ok")]
    with AgentProcess(steps, args=["--permission-mode", "default"]) as agent:
        agent.prompt("go")
        dialog = choose(agent, "Allow once")
        assert dialog["title"] == "Allow bash? touch a"
        assert dialog["options"] == [
            "Allow once",
            "Always allow Bash(touch a *)",
            "Always allow Bash(touch a *) (in all sessions)",
            "Deny",
        ]
        agent.wait("agent_settled")
        agent.prompt("again")
        choose(agent, "Deny")
        agent.wait("agent_settled")
        assert (agent.cwd / "a").exists() and not (agent.cwd / "b").exists()


def test_always_holds_in_the_session_and_after_a_resume(tmp_path):
    steps = [touch("a"), touch("a"), reply("ok")]
    with AgentProcess(
        steps, base=tmp_path, session=True, settings={"permissions": {"defaultMode": "default"}}
    ) as agent:
        agent.prompt("go")
        choose(agent, "Always")
        agent.wait("agent_settled")
        assert agent.mock.requests and len([f for f in agent.frames if f["type"] == "extension_ui_request"]) == 1
        path = agent.data("get_state")["sessionFile"]
        agent.close_stdin()
    assert json.loads((tmp_path / "agent" / "settings.json").read_text())["permissions"] == {"defaultMode": "default"}
    (tmp_path / "work" / "a").unlink()
    steps = [touch("a"), touch("b"), reply("ok")]
    settings = {"permissions": {"defaultMode": "dontAsk"}}
    with AgentProcess(steps, base=tmp_path, session=True, settings=settings, args=["--session", path]) as agent:
        rules = agent.data("get_permissions")["rules"]
        assert rules == [{"behavior": "allow", "rule": "Bash(touch a *)", "source": "this session"}]
        agent.run("go")
        assert (agent.cwd / "a").exists() and not (agent.cwd / "b").exists()
        agent.call("new_session")
        assert agent.data("get_permissions")["rules"] == []


def test_always_may_be_saved(tmp_path):
    settings = {"permissions": {"defaultMode": "default", "allow": ["Bash(ls)"]}}
    with AgentProcess([touch("a"), reply("ok")], base=tmp_path, settings=settings) as agent:
        agent.prompt("go")
        dialog = agent.wait("extension_ui_request")
        answer = {"type": "extension_ui_response", "id": dialog["id"], "value": dialog["options"][2]}
        agent.write(json.dumps(answer).encode() + b"\n")
        agent.wait("agent_settled")
    saved = json.loads((tmp_path / "agent" / "settings.json").read_text())["permissions"]
    assert saved == {"defaultMode": "default", "allow": ["Bash(ls)", "Bash(touch a *)"]}


def test_always_may_mean_more_than_one_folder(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a").write_text("A")
    paths = [str(tmp_path / "x" / "a"), "/etc/hostname"]
    steps = [reply(*(call("read", {"path": path}, id=path) for path in paths[:1])), reply("ok")]
    steps += [reply(call("read", {"path": paths[1]}, id="second")), reply("ok")]
    for ask_first in (False, True):
        with AgentProcess(steps, args=["--permission-mode", "default"]) as agent:
            agent.call("set_approval", tools=ask_first)
            agent.prompt("go")
            dialog = agent.wait("extension_ui_request")
            offered = dialog["offers"] if ask_first else dialog["options"][1:-2]
            wide = "Always allow reading everywhere: Read"
            assert offered == [f"Always allow reading in {tmp_path}/x: Read(/{tmp_path}/x/**)", wide]
            answer = {"confirmed": True, "always": wide} if ask_first else {"value": wide}
            frame = {"type": "extension_ui_response", "id": dialog["id"], **answer}
            agent.write(json.dumps(frame).encode() + b"\n")
            agent.wait("agent_settled")
            agent.run("the other one")  # nothing is asked
            assert [rule["rule"] for rule in agent.data("get_permissions")["rules"]] == ["Read"]


def test_no_answer_in_time_is_a_no():
    settings = {"permissions": {"defaultMode": "default", "askTimeoutMs": 100}}
    with AgentProcess([touch("a"), reply("ok")], settings=settings) as agent:
        frames = agent.run("go")
        assert "there is no answer" in results(frames)[0] and not (agent.cwd / "a").exists()


def test_the_same_refusal_three_times_ends_the_run():
    with AgentProcess([touch("a")] * 6, args=["--deny", "Bash"]) as agent:
        assert agent.prompt("go")["success"]
        settled = agent.wait("agent_settled")
        assert settled["stopReason"] == "denied" and settled["aborted"] is False
        assert len(agent.mock.requests) == 3
        roles = [message["role"] for message in agent.data("get_messages")["messages"]]
        assert [role for role in roles if role != "custom"] == ["user", *["assistant", "toolResult"] * 3]
        assert roles.count("custom") == 1, "the remark that the second refusal was the same"
        agent.prompt("again")
        assert agent.wait("agent_settled")["stopReason"] == "denied"
        assert len(agent.mock.requests) == 6  # the count had begun again


def test_rules_of_an_untrusted_project_do_not_count(tmp_path):
    (tmp_path / "work" / ".pi").mkdir(parents=True)
    project = {"permissions": {"allow": ["Bash(touch *)"], "defaultMode": "bypass", "deny": ["Read"]}}
    (tmp_path / "work" / ".pi" / "settings.json").write_text(json.dumps(project))
    settings = {"permissions": {"defaultMode": "dontAsk", "deny": ["Bash(touch b)"]}}
    with AgentProcess([touch("a"), reply("ok")], base=tmp_path, settings=settings) as agent:
        agent.run("go")
        assert not (agent.cwd / "a").exists()
        assert [rule["rule"] for rule in agent.data("get_permissions")["rules"]] == ["Bash(touch b)"]
    steps = [touch("a"), touch("b"), reply("ok")]
    with AgentProcess(steps, base=tmp_path, settings=settings, args=["--approve"]) as agent:
        agent.run("go")
        assert (agent.cwd / "a").exists() and not (agent.cwd / "b").exists()
        sources = {rule["rule"]: rule["source"] for rule in agent.data("get_permissions")["rules"]}
        assert sources == {
            "Bash(touch b)": "user settings",
            "Read": "project settings",
            "Bash(touch *)": "project settings",
        }


def test_plan_mode_is_told_to_the_model_and_holds():
    with AgentProcess([touch("a"), reply("ok"), reply("done")]) as agent:
        assert agent.call("set_permissions", mode="plan", allow=["Bash"])["success"]
        agent.run("go")
        assert not (agent.cwd / "a").exists()
        assert "plan_mode" in json.dumps(agent.mock.requests[0].body)
        agent.call("set_permissions", mode="bypass")
        agent.run("go on")
        assert "Every other tool call is refused" not in json.dumps(agent.mock.requests[-1].body)


def test_get_permissions_explains_and_set_permissions_checks():
    with AgentProcess() as agent:
        assert agent.data("get_permissions") == {"mode": "bypass", "rules": []}
        assert agent.call("set_permissions", deny=["Bash(git push *)"], mode="default")["success"]
        found = agent.data("get_permissions", tool="bash", arguments={"command": "cd x && git push"})
        assert found["decision"] == {"behavior": "deny", "rule": "Bash(git push *)", "source": "client"}
        assert found["mode"] == "default"
        refused = agent.call("set_permissions", deny=["Bash("], mode="plan")
        assert not refused["success"] and "Not a permission rule" in refused["error"]
        assert not agent.call("set_permissions", mode="yolo")["success"]
        assert agent.data("get_permissions")["mode"] == "default"


def test_set_approval_asks_about_every_tool_as_before():
    with AgentProcess([touch("a"), reply("ok")], args=["--allow", "Bash"]) as agent:
        agent.call("set_approval", tools=True)
        agent.prompt("go")
        dialog = agent.wait("extension_ui_request")
        assert (dialog["method"], dialog["title"], dialog["message"]) == ("confirm", "Allow bash?", "touch a")
        answer = {"type": "extension_ui_response", "id": dialog["id"], "confirmed": False}
        agent.write(json.dumps(answer).encode() + b"\n")
        agent.wait("agent_settled")
        assert not (agent.cwd / "a").exists()


def spindle(base: Path, *args: str, steps=(), settings=None) -> subprocess.CompletedProcess:
    work = base / "work"
    work.mkdir(exist_ok=True)
    with MockModel(list(steps)) as mock:
        write_models(base / "agent", mock.openai_url)
        (base / "agent" / "settings.json").write_text(json.dumps(settings or {}))
        command = [sys.executable, "-m", "spindle", "--no-session", "--model", "mock/m1", *args]
        return nursery.run(
            command,
            cwd=work,
            env=agent_environment(base / "agent"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
        )


def test_a_run_without_a_user_is_not_asked(tmp_path):
    done = spindle(tmp_path, "-p", "go", "--permission-mode", "default", steps=[touch("a"), reply("ok")])
    assert (done.returncode, done.stdout) == (3, b"ok\n") and not (tmp_path / "work" / "a").exists()


def test_bad_rules_stop_the_start(tmp_path):
    done = spindle(tmp_path, "-p", "go", "--deny", "Bash(")
    assert done.returncode in (1, 2) and b"Not a permission rule" in done.stderr
    done = spindle(tmp_path, "-p", "go", "--permission-mode", "yolo")
    assert done.returncode in (1, 2) and b"acceptEdits" in done.stderr
    for settings in [{"deny": "Bash"}, {"deny": ["Bash("]}, {"defaultMode": "x"}]:
        done = spindle(tmp_path, "-p", "go", steps=[reply("no")], settings={"permissions": settings})
        assert done.returncode != 0 and not done.stdout, settings


def test_a_misspelt_tool_stops_the_start_and_an_unknown_one_is_told(tmp_path):
    for rule, said in {
        "Bsh(rm *)": b"Did you mean Bash?",
        "Bash( )": b"empty pattern",
        "Raed": b"Did you mean Read?",
    }.items():
        done = spindle(tmp_path, "-p", "go", "--deny", rule, steps=[reply("no")])
        assert done.returncode in (1, 2) and said in done.stderr and not done.stdout
        done = spindle(tmp_path, "-p", "go", steps=[reply("no")], settings={"permissions": {"allow": [rule]}})
        assert done.returncode != 0 and said in done.stderr and not done.stdout
    settings = {"permissions": {"deny": ["WebFetch", "Skill(x)", "Bash(rm *)", "deploy(prod)"]}}
    with AgentProcess([reply("a"), reply("b")], settings=settings) as agent:
        tool = {"name": "Deploy", "description": "d", "parameters": {"type": "object", "properties": {}}}
        assert agent.call("set_host_tools", tools=[tool])["success"]
        notices = [frame["message"] for frame in agent.run("go") if frame["type"] == "notice"]
        assert notices == ["These permission rules hold for no tool that there is: WebFetch, Skill(x)"]
        assert not [frame for frame in agent.run("again") if frame["type"] == "notice"]
        refused = agent.call("set_permissions", deny=["Edti(x)"])
        assert not refused["success"] and "Did you mean Edit?" in refused["error"]


def test_a_rule_for_no_tool_is_told_to_scripts_and_programs_too(tmp_path):
    done = spindle(tmp_path, "-p", "go", "--deny", "Foo(x)", steps=[reply("hello")])
    assert done.returncode == 0 and b"hello" in done.stdout
    told = "These permission rules hold for no tool that there is: Foo(x)"
    assert done.stderr.decode().count(told) == 1

    async def run():
        model = Script(["hello"]).model()
        async with Agent.create(model=model, cwd=str(tmp_path), deny=["Foo(x)"], hermetic=True, persist=False) as agent:
            seen = []
            agent.subscribe(seen.append)
            await agent.run("go")
            return [event.message for event in seen if isinstance(event, Notice)]

    assert asyncio.run(run()) == [told]


def test_an_empty_command_leaves_no_rule_behind():
    with AgentProcess([reply("", call("bash", {"command": " "})), reply("ok"), touch("a"), reply("ok")]) as agent:
        agent.call("set_approval", tools=True)
        agent.prompt("go")
        dialog = agent.wait("extension_ui_request")
        assert not dialog.get("always")
        answer = {"type": "extension_ui_response", "id": dialog["id"], "confirmed": True, "always": True}
        agent.write(json.dumps(answer).encode() + b"\n")
        agent.wait("agent_settled")
        assert agent.data("get_permissions")["rules"] == []


def test_a_search_leaves_out_files_that_may_not_be_read():
    search = reply("", call("grep", {"pattern": "KEY"}))
    with AgentProcess([search, reply("ok")], args=["--tools", "grep", "--deny", "Read(.env)"]) as agent:
        (agent.cwd / ".env").write_text("KEY=secret\n")
        (agent.cwd / "app.py").write_text("KEY = None\n")
        assert results(agent.run("go")) == ["app.py:1: KEY = None"]


def test_a_client_answers_with_another_input() -> None:
    steps = [reply(call("bash", {"command": "touch a"})), reply("ok")]
    with AgentProcess(steps, args=["--permission-mode", "default"]) as agent:
        agent.prompt("go")
        question = agent.wait("permission_request")
        preview = question["preview"]
        assert (preview["kind"], preview["command"], preview["directory"]) == ("command", "touch a", str(agent.cwd))
        assert (question["kind"], question["waits"], question["keeps"][0]) == ("tool", False, "session")
        wrong = agent.call("answer_permission", question=question["id"], behavior="allow", input={"comand": "x"})
        assert not wrong["success"] and "command" in wrong["error"]
        given = {"question": question["id"], "behavior": "allow", "input": {"command": "touch b"}}
        assert agent.call("answer_permission", **given)["success"]
        assert agent.wait("tool_execution_end")["changedInput"] == {"command": "touch b"}
        agent.wait("agent_settled")
        assert (agent.cwd / "b").exists() and not (agent.cwd / "a").exists()
