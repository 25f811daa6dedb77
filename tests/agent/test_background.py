"""Shell commands in the background, driven over a pipe as a client does it."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spindle import Agent
from spindle.agent.run.meter import Meter
from spindle.base.settings import Runaway
from spindle.shapes.run_limits import RunLimits

from ..support.agent_process import AgentProcess, agent_environment, write_models
from ..support.mock_model import MockModel, call, gate, reply
from ..support.nursery import run

TOOLS = ("--tools", "read,bash,bash_output,bash_kill")
SERVER = f"{sys.executable} -u -m http.server 0 --bind 127.0.0.1"


def bash(command: str, id: str = "c1", **more: object):
    return call("bash", {"command": command, "background": True, **more}, id=id)


def results(agent: AgentProcess) -> list[str]:
    """Return the texts of all tool results so far."""
    ends = [frame for frame in agent.frames if frame.get("type") == "tool_execution_end"]
    return [frame["result"]["content"][0]["text"] for frame in ends]


def said_to_model(mock: MockModel, request: int = -1) -> str:
    return json.dumps(mock.requests[request].body["messages"], ensure_ascii=False)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pid: int) -> None:
    end = time.monotonic() + 10
    while alive(pid):
        assert time.monotonic() < end, f"{pid} is still there"
        time.sleep(0.01)


def test_more_than_the_bound_are_refused_in_words():
    five = [bash("sleep 100", id=f"c{number}") for number in range(5)]
    steps = [reply(*five), reply(call("bash_kill", {"id": "bg2"})), reply(bash("sleep 100", id="c9")), reply("done")]
    with AgentProcess(steps, args=TOOLS, settings={"maxBackgroundCommands": 3}) as agent:
        agent.run("start five")
        told = results(agent)
        refused = [text for text in told[:5] if text.startswith("3 commands run in the background, more are not")]
        assert len(refused) == 2 and "bash_kill" in refused[0] and len(agent.data("get_state")["background"]) == 3
        assert "is running" in told[6]


def test_an_end_that_the_first_result_tells_is_not_told_again():
    """Also where the last lines come from the far side, which takes a moment."""
    steps = [reply(bash("sleep 0.1; echo over")), reply("done")]
    for far in ([], ["--exec", "env A=1"]):
        with AgentProcess(steps, args=[*TOOLS, *far]) as agent:
            agent.run("start it")
            [told] = results(agent)
            assert told.startswith("over") and "bg1 exited with code 0" in told
            assert [message["role"] for message in agent.data("get_messages")["messages"]][1:] == [
                "assistant",
                "toolResult",
                "assistant",
            ]


def test_a_server_and_its_test_in_one_run(tmp_path):
    """The server is started, waited for, asked, and ended, all in one run."""
    port = "PORT=$(sed -n 's/.*port \\([0-9]*\\).*/\\1/p' $(ls $TMPDIR/spindle-bash-*.log | head -1))"
    steps = [
        reply(bash(SERVER), finish="toolUse"),
        reply(call("bash_output", {"id": "bg1", "wait": 10, "pattern": "Serving HTTP"}), finish="toolUse"),
        reply(call("bash", {"command": f"{port}; curl -s http://127.0.0.1:$PORT/hello.txt"}), finish="toolUse"),
        reply(call("bash_kill", {"id": "bg1"}), finish="toolUse"),
        reply("done"),
    ]
    (tmp_path / "work").mkdir()
    (tmp_path / "work/hello.txt").write_text("hello from the server")
    with AgentProcess(steps, args=TOOLS, base=tmp_path) as agent:
        events = agent.run("start the server and ask it")
        told = results(agent)
        assert "bg1 is running" in told[0] and "spindle-bash-" in told[0]
        assert told[2] == "hello from the server"
        assert '"GET /hello.txt HTTP/1.1" 200' in told[3] and "bg1 was ended" in told[3]
        assert "background" not in events[-1]
        assert sum(event["type"] == "agent_start" for event in events) == 1
        started = agent.wait(lambda frame: frame.get("type") == "background_start")
        assert started["command"] == SERVER and os.path.isfile(started["outputFile"])
        assert agent.data("get_state").get("background") is None


def test_the_end_of_a_command_wakes_an_idle_agent(tmp_path):
    steps = [
        reply(bash("until [ -e go ]; do sleep 0.02; done; echo built; exit 3"), finish="toolUse"),
        reply("I wait."),
        reply("It failed."),
    ]
    with AgentProcess(steps, args=TOOLS, base=tmp_path, session=True) as agent:
        settled = agent.run("build it")[-1]
        assert settled["background"] == 1
        (listed,) = agent.data("get_state")["background"]
        assert listed["id"] == "bg1" and alive(listed["pid"])
        (tmp_path / "work/go").touch()
        assert agent.wait("background_end") == {"type": "background_end", "id": "bg1", "exitCode": 3}
        assert agent.wait("agent_settled").get("background") is None
        assert "bg1 exited with code 3" in said_to_model(agent.mock) and "built" in said_to_model(agent.mock)
        assert agent.data("get_last_assistant_text")["text"] == "It failed."
        assert agent.data("get_state").get("background") is None


def test_the_message_of_the_end_waits_for_the_end_of_the_answer(tmp_path):
    steps = [
        reply(bash("until [ -e go ]; do sleep 0.02; done"), finish="toolUse"),
        reply("a", gate("more"), "b"),
        reply("seen"),
    ]
    with AgentProcess(steps, args=TOOLS, base=tmp_path) as agent:
        agent.prompt("build it")
        agent.mock.wait_gate("more")
        (tmp_path / "work/go").touch()
        agent.wait("background_end")
        assert agent.data("get_state")["pendingMessageCount"] == 1
        agent.mock.release("more")
        agent.wait("agent_settled")
        assert [frame["type"] for frame in agent.frames].count("agent_start") == 1
        texts = [m["content"] for m in agent.mock.requests[-1].body["messages"][-2:]]
        assert "ab" in json.dumps(texts[0]) and "bg1 exited with code 0" in json.dumps(texts[1])


def test_a_model_that_has_seen_the_end_is_not_told_again(tmp_path):
    """Names that models know from elsewhere are understood, too."""
    steps = [
        reply(call("bash", {"command": "sleep 0.3; echo ready", "run_in_background": True}), finish="toolUse"),
        reply(call("BashOutput", {"bash_id": "bg1", "wait": True}), finish="toolUse"),
        reply(call("KillShell", {"shell_id": "bg1"}), finish="toolUse"),
        reply(bash("sleep 60", timeout=0.2), finish="toolUse"),
        reply("done"),
    ]
    with AgentProcess(steps, args=TOOLS, base=tmp_path) as agent:
        agent.run("go")
        assert "ready" in "".join(results(agent)[:2]) and "bg1 exited with code 0" in results(agent)[1]
        assert agent.data("get_state")["pendingMessageCount"] == 0
        assert len(agent.mock.requests) == 5 and "bg1 exited" in results(agent)[2]
        assert "bg2 timed out after " in results(agent)[3]


def test_waiting_has_an_end(tmp_path):
    """A pattern that does not come, one that is none, and one that would keep a backtracking matcher busy for ever."""
    steps = [
        reply(bash(f"printf {'a' * 60}!; sleep 60"), finish="toolUse"),
        reply(
            call("bash_output", {"id": "bg1", "wait": 0.3, "pattern": "never"}, id="a"),
            call("bash_output", {"id": "bg1", "wait": 5, "pattern": "(("}, id="b"),
            call("bash_output", {"id": "bg1", "wait": 0.3, "pattern": "(a+)+$"}, id="c"),
            call("bash_output", {"id": "bg1", "wait": 30, "pattern": "a!"}, id="d"),
            call("bash_output", {"id": "bg7"}, id="e"),
            finish="toolUse",
        ),
        reply("done"),
    ]
    with AgentProcess(steps, args=TOOLS, base=tmp_path) as agent:
        agent.run("go")
        messages = [f["message"] for f in agent.frames if f.get("type") == "message_end"]
        texts = {m["toolCallId"]: m["content"][0]["text"] for m in messages if m["role"] == "toolResult"}
        assert "No line matches never" in texts["a"] and "regex" in texts["b"] and "No line matches" in texts["c"]
        assert "No line" not in texts["d"] and "bg1 is running" in texts["d"]
        assert texts["e"] == "There is no background command bg7. Running: bg1"


def test_an_abort_leaves_commands_running_and_starts_nothing(tmp_path):
    steps = [
        reply(bash("until [ -e go ]; do sleep 0.02; done"), finish="toolUse"),
        reply("a", gate("never")),
        reply("next"),
    ]
    with AgentProcess(steps, args=TOOLS, base=tmp_path) as agent:
        agent.prompt("build it")
        agent.mock.wait_gate("never")
        agent.call("abort")
        assert agent.wait("agent_settled")["background"] == 1
        (tmp_path / "work/go").touch()
        agent.wait("background_end")
        assert not agent.data("get_state")["isStreaming"] and len(agent.mock.requests) == 2
        agent.run("go on")
        assert "bg1 exited with code 0" in said_to_model(agent.mock) and len(agent.mock.requests) == 3


def test_an_abort_while_a_command_starts_ends_it(tmp_path):
    """The model does not know its id, so nobody could end it."""
    with AgentProcess([reply(bash("sleep 100")), reply("after")], args=TOOLS, base=tmp_path) as agent:
        agent.prompt("start it")
        agent.wait("background_start")
        agent.call("abort")
        for _ in range(2):  # whichever comes first
            agent.wait(lambda frame: frame["type"] in ("background_end", "agent_settled"))
        assert results(agent) == ["Operation aborted"]
        assert not agent.data("get_state").get("background")
        agent.run("what was it?")
        assert "bg1" not in said_to_model(agent.mock)


@pytest.mark.parametrize(("most", "requests"), [(2, 2), (3, 3)])
def test_a_run_that_is_woken_has_the_limits_of_the_one_before(tmp_path, most, requests):
    steps = [
        reply(bash("until [ -e go ]; do sleep 0.02; done"), finish="toolUse"),
        reply("I wait."),
        reply(call("bash", {"command": "true"}), finish="toolUse"),
    ]
    with AgentProcess(steps, args=TOOLS, base=tmp_path) as agent:
        assert agent.prompt("build it", maxTurns=most)["success"]
        agent.wait("agent_settled")
        (tmp_path / "work/go").touch()
        agent.wait("background_end")
        if requests == 3:
            assert agent.wait("agent_settled")["stopReason"] == "maxTurns"
        assert not agent.data("get_state")["isStreaming"] and len(agent.mock.requests) == requests


def test_a_killed_agent_leaves_no_orphan_and_the_next_one_says_so(tmp_path):
    steps = [reply(bash("echo half; sleep 600 & sleep 600"), finish="toolUse"), reply("I wait.")]
    with AgentProcess(steps, args=TOOLS, base=tmp_path, session=True) as agent:
        agent.run("build it")
        state = agent.data("get_state")
        pid, output = state["background"][0]["pid"], state["background"][0]["outputFile"]
        agent.kill()
    wait_gone(pid)
    assert Path(output).read_text() == "half\n"
    again = [
        reply(call("bash_output", {"id": "bg1"}), finish="toolUse"),
        reply(bash("true"), finish="toolUse"),
        reply("ok"),
    ]
    with AgentProcess(again, args=(*TOOLS, "--session", state["sessionFile"]), base=tmp_path, session=True) as agent:
        agent.run("how is it?")
        told = said_to_model(agent.mock, 0)
        assert "bg1 (echo half; sleep 600 & sleep 600) is gone" in told and output in told
        assert "There is no background command bg1" in results(agent)[0]
        assert "bg2 exited with code 0" in results(agent)[1]  # numbers are not used twice
        agent.run("and now?")
        assert said_to_model(agent.mock).count("is gone") == 1


def test_commands_end_with_their_session(tmp_path):
    steps = [reply(bash("sleep 600"), finish="toolUse"), reply("ok")] * 2
    with AgentProcess(steps, args=TOOLS, base=tmp_path, session=True) as agent:
        agent.run("go")
        first = agent.data("get_state")["background"][0]["pid"]
        assert agent.call("new_session")["success"]
        wait_gone(first)
        assert agent.data("get_state").get("background") is None
        agent.run("go")
        second = agent.data("get_state")["background"][0]["pid"]
        agent.close_stdin()
    wait_gone(second)


def test_the_file_is_bounded(tmp_path):
    """`yes` writes as fast as it can; the newest output is what is kept."""
    steps = [
        reply(bash("timeout 1.5 yes; sleep 0.5; echo the end"), finish="toolUse"),
        reply(call("bash_output", {"id": "bg1", "wait": 20}), finish="toolUse"),
        reply("ok"),
    ]
    with AgentProcess(steps, args=TOOLS, base=tmp_path) as agent:
        agent.run("go")
        (file,) = tmp_path.glob("spindle-bash-*.log")
        assert file.stat().st_size < 1 << 30 and file.stat().st_mode & 0o077 == 0
        assert re.search(r"y\nthe end\n+\[bg1 exited with code 0 after [\d.]+ s\]$", results(agent)[1])
        assert len(results(agent)[1]) < 60_000


def test_a_rule_for_bash_holds_in_the_background(tmp_path):
    steps = [reply(bash("touch made"), finish="toolUse"), reply("ok")]
    with AgentProcess(steps, args=(*TOOLS, "--deny", "Bash(touch *)"), base=tmp_path) as agent:
        agent.run("go")
        assert "refused" in results(agent)[0] and not (tmp_path / "work/made").exists()


def test_a_summary_does_not_lose_commands(tmp_path):
    steps = [reply(bash("sleep 600"), finish="toolUse"), reply("x" * 4000), reply("SUMMARY"), reply("ok")]
    settings = {"compaction": {"keepRecentTokens": 10}}
    with AgentProcess(steps, args=TOOLS, base=tmp_path, settings=settings) as agent:
        agent.run("go")
        assert agent.call("compact")["success"]
        agent.run("go on")
        assert "bg1: sleep 600 (output: " in said_to_model(agent.mock)


# -- which requests have the tools ---------------------------------------------------------------


def one_shot(
    tmp_path: Path, *args: str, steps=None, **model: object
) -> tuple[MockModel, subprocess.CompletedProcess[bytes]]:
    agent_dir, work = tmp_path / "agent", tmp_path / "work"
    work.mkdir(exist_ok=True)
    with MockModel(steps or [reply("ok")]) as mock:
        write_models(agent_dir, mock.openai_url, **model)
        done = run(
            [sys.executable, "-m", "spindle", "-p", "--model", "mock/m1", "--no-session", *args, "go"],
            cwd=work,
            env=agent_environment(agent_dir),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
        )
    return mock, done


def request_tools(mock: MockModel, request: int = 0) -> dict[str, dict]:
    return {tool["function"]["name"]: tool["function"] for tool in mock.requests[request].body["tools"]}


def tokens(tools: dict[str, dict]) -> int:
    """Estimate tokens as the agent does: four characters each."""
    texts = (
        tool["name"] + tool["description"] + json.dumps(tool["parameters"], separators=(",", ":"))
        for tool in tools.values()
    )
    return sum(map(len, texts)) // 4


def test_which_requests_have_the_tools(tmp_path):
    mock, _ = one_shot(tmp_path, steps=[reply(bash("sleep 600"), finish="toolUse"), reply("ok")])
    assert list(request_tools(mock)) == ["read", "bash", "edit", "write", "task"]
    tools = request_tools(mock, 1)
    assert list(tools) == ["read", "bash", "edit", "write", "bash_output", "bash_kill", "task"]
    assert "background" in tools["bash"]["parameters"]["properties"]
    plain = request_tools(one_shot(tmp_path, "--tools", "read,bash,edit,write")[0])
    assert list(plain) == ["read", "bash", "edit", "write"]
    assert "background" not in json.dumps(plain)
    assert tokens(tools) - tokens(plain) <= 250
    assert {"bash_output", "bash_kill"}.isdisjoint(request_tools(one_shot(tmp_path, "--exclude-tools", "bash")[0]))
    with AgentProcess([reply("ok")], base=tmp_path) as agent:
        agent.run("go")
        assert request_tools(agent.mock) == plain


def test_a_small_model_has_subagents_only_if_they_are_named(tmp_path):
    assert "task" not in request_tools(one_shot(tmp_path, contextWindow=32_768)[0])
    assert "task" in request_tools(one_shot(tmp_path, "--tools", "read,task", contextWindow=32_768)[0])


def test_a_small_model_is_not_told_of_the_manual(tmp_path):
    def told(mock):
        return "its manual" in mock.requests[-1].body["messages"][0]["content"]

    assert not told(one_shot(tmp_path, contextWindow=32_768)[0]), "it takes that folder for the place of its work"
    assert told(one_shot(tmp_path, contextWindow=64_000)[0])
    with AgentProcess([reply("ok")] * 3, model="mock/m2") as agent:
        write_models(agent.agent_dir, agent.mock.openai_url, contextWindow=32_768)
        seen = []
        for model in ("m2", "m1", "m2"):
            agent.data("set_model", provider="mock", modelId=model)
            agent.run("go")
            seen.append(told(agent.mock))
        assert seen == [True, False, True]


def test_the_tools_come_with_the_first_command_and_stay_with_the_session(tmp_path):
    steps = [reply(call("bash_output", {"id": "bg1"}), finish="toolUse"), reply("none")]
    with AgentProcess(steps, args=TOOLS, base=tmp_path) as agent:
        agent.run("go")
        assert results(agent) == ["Tool bash_output not found. The tools are: read, bash"]
    with AgentProcess([reply(bash("true")), reply("ok")], args=TOOLS, base=tmp_path, session=True) as agent:
        agent.run("go")
        file = agent.call("get_state")["data"]["sessionFile"]
    steps = [reply("ok"), reply("ok")]
    with AgentProcess(steps, args=(*TOOLS, "--session", file), base=tmp_path, session=True) as agent:
        agent.run("go on")
        assert list(request_tools(agent.mock)) == ["read", "bash", "bash_output", "bash_kill"]
        assert agent.call("new_session")["success"]
        agent.run("from the start")
        assert list(request_tools(agent.mock, 1)) == ["read", "bash"]


@pytest.mark.parametrize("keep", [False, True])
def test_commands_end_with_a_one_shot_run_unless_they_are_kept(tmp_path, keep):
    steps = [reply(bash("echo $$ > pid; while sleep 0.05; do echo tick; done"), finish="toolUse"), reply("done")]
    mock, done = one_shot(tmp_path, *(["--keep-background"] if keep else []), steps=steps)
    assert done.returncode == 0 and done.stdout == b"done\n"
    pid = int((tmp_path / "work/pid").read_text())
    if not keep:
        assert "It ends with your last answer" in said_to_model(mock)
        wait_gone(pid)
        return
    try:
        (file,) = tmp_path.glob("spindle-bash-*.log")
        size, end = file.stat().st_size, time.monotonic() + 10
        while file.stat().st_size == size:  # it still writes
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        os.killpg(pid, signal.SIGKILL)


def test_a_program_that_prompts_waits_for_the_run_that_an_end_has_started(tmp_path, monkeypatch):
    for name, value in agent_environment(tmp_path / "agent").items():
        monkeypatch.setenv(name, value)
    build = bash("until [ -e go ]; do sleep 0.02; done")
    steps = [reply(build, finish="toolUse"), reply("I wait."), reply("It ", gate("woken"), "ended."), reply("Hello.")]

    async def talk(mock: MockModel) -> str:
        tools = ["bash", "bash_output", "bash_kill"]
        async with await Agent.create(cwd=tmp_path, model="mock/m1", persist=False, tools=tools) as agent:
            assert await agent.ask("build it") == "I wait."
            (tmp_path / "go").touch()
            await asyncio.to_thread(mock.wait_gate, "woken")
            asking = asyncio.create_task(agent.ask("hi"))
            await asyncio.sleep(0)
            mock.release("woken")
            return await asking

    with MockModel(steps) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        assert asyncio.run(talk(mock)) == "Hello."
        assert "It ended." in said_to_model(mock)


def test_the_time_of_a_run_goes_on_with_the_one_that_follows_from_it(monkeypatch):
    now = 100.0
    monkeypatch.setattr("spindle.agent.run.meter.time.monotonic", lambda: now)
    first = Meter(RunLimits(max_time=10), Runaway(), began=now)
    now += 4
    first.end()
    now += 1000  # idle
    second = first.go_on()
    second.began = now
    now += 3
    assert second.seconds_left() == 3 and second.reached() is None
    second.end()
    now += 1000
    third = second.go_on()
    third.began = now
    now += 3
    assert third.seconds_left() == 0 and third.reached() == "maxTime"
    assert (first.seconds, third.seconds) == (10, 3)
