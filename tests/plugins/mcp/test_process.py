"""MCP servers of the real program: over RPC, on the command line, and in the process table after its end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spindle.apps.cli.main import run as main
from tests.support.agent_process import AgentProcess, agent_environment, write_models
from tests.support.mock_model import MockModel, call, gate, reply

from .helpers import below, entry, is_alive

MARK = "SPINDLE_TEST_MCP_MARK"


def marked(mark: str) -> list[int]:
    """Return the processes with this mark in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in Path(f"/proc/{name}/environ").read_bytes() and is_alive(int(name)):
                    found.append(int(name))
            except OSError:
                continue
    return found


def until(condition: Any, timeout: float = 10) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class WithServers(AgentProcess):
    """A process with servers in the user's file."""

    def __init__(self, servers: dict[str, Any], *steps: Any, **options: Any) -> None:
        self.servers = servers
        super().__init__(steps, **options)

    def configure(self) -> None:
        (self.agent_dir / "mcp.json").write_text(json.dumps({"mcpServers": self.servers}))

    def states(self) -> list[Any]:
        return list(self.data("get_state").get("mcpServers", []))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("end", ["kill", "eof"])
def test_nothing_outlives_the_agent(end: str, tmp_path: Path) -> None:
    mark = f"{end}-{os.getpid()}-{time.monotonic_ns()}"
    servers = {name: entry("--stubborn", env={MARK: mark}) for name in ("one", "two")}
    steps = [
        reply(call("tool_search", {"query": "child"})),
        reply(call("mcp__one__child", {}, id="a"), call("mcp__two__child", {}, id="b")),
        reply("done"),
        reply(gate("never")),
    ]
    with WithServers(servers, *steps, base=tmp_path) as agent:
        agent.run("go")
        states = agent.states()
        assert [state["state"] for state in states] == ["ready", "ready"]
        assert all(is_alive(state["pid"]) for state in states)
        until(lambda: len(marked(mark)) >= 6)  # a fork has its mark when its program has begun
        started = below(agent.process.pid)
        agent.prompt("again")
        agent.mock.wait_gate("never")
        if end == "kill":
            agent.kill()
        else:
            assert agent.close_stdin() == 0
        until(lambda: not marked(mark))
        until(lambda: not any(map(is_alive, started)))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part in it is for Linux")
def test_servers_end_though_all_who_look_after_them_are_killed(tmp_path: Path) -> None:
    mark = f"all-{os.getpid()}-{time.monotonic_ns()}"
    behind = entry("--plain", env={MARK: mark})  # as npx and uvx do it: the server is a child of what is started
    behind |= {"command": "sh", "args": ["-c", '"$@"; true', "sh", behind["command"], *behind["args"]]}
    servers = {"stubborn": entry("--stubborn", env={MARK: mark}), "behind": behind}
    with WithServers(servers, base=tmp_path) as agent:
        until(lambda: [state["state"] for state in agent.states()] == ["ready", "ready"])
        assert len(marked(mark)) == 3
        supervisors = [pid for pid in below(agent.process.pid) if pid not in marked(mark)]
        assert len(supervisors) >= 3  # one that forks, and one for each server
        for pid in supervisors:
            os.kill(pid, signal.SIGSTOP)  # nothing can be done by them any more
        for pid in (*supervisors, agent.process.pid):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not marked(mark))


def test_a_client_sets_servers_and_answers_their_questions() -> None:
    steps = [reply(call("tool_search", {"query": "ask"})), reply(call("mcp__mine__ask", {})), reply("done")]
    with WithServers({}, *steps) as agent:
        assert agent.states() == []
        shown = agent.data("set_mcp_servers", servers={"mine": entry()})["servers"]
        assert (
            shown[0]["name"] == "mine" and shown[0]["state"] in ("idle", "starting") and shown[0]["source"] == "client"
        )
        refused = agent.call("set_mcp_servers", servers={"bad": {"type": "pigeon", "url": "http://x"}})
        assert not refused["success"] and 'unknown type "pigeon"' in refused["error"]
        agent.prompt("go")
        for method, answer in (
            ("input", {"value": "Ada"}),
            ("select", {"value": "small"}),
            ("input", {"value": "30"}),
            ("confirm", {"confirmed": False}),
        ):
            request = agent.wait("extension_ui_request")
            assert request["method"] == method
            agent.write(json.dumps({"type": "extension_ui_response", "id": request["id"], **answer}).encode() + b"\n")
        agent.wait("agent_settled")
        result = next(m for m in agent.data("get_messages")["messages"] if m.get("toolName") == "mcp__mine__ask")
        content = {"name": "Ada", "size": "small", "age": 30, "sure": False}
        assert json.loads(result["content"][0]["text"]) == {"action": "accept", "content": content}
        state = agent.states()[0]
        assert state["tools"] == 16 and state["pid"] and "fake server starts" in state["stderr"]
        assert agent.data("set_mcp_servers", servers={})["servers"] == []
        until(lambda: not is_alive(state["pid"]))


def test_servers_that_a_client_sets_at_once_are_learned_too() -> None:
    with WithServers({"one": entry("--plain")}) as agent:
        agent.data("set_mcp_servers", servers={"two": entry("--plain")})  # those of the file are about to be learned
        until(lambda: [state["state"] for state in agent.states()] == ["ready", "ready"])


def test_a_question_goes_when_the_run_is_aborted() -> None:
    steps = [reply(call("tool_search", {"query": "select:ask"})), reply(call("mcp__mine__ask", {}))]
    with WithServers({"mine": entry()}, *steps) as agent:
        agent.prompt("go")
        asked = agent.wait("extension_ui_request")
        agent.call("abort")
        agent.wait("agent_settled")
        closed = agent.wait("extension_ui_request")
        assert closed["method"] == "cancel" and closed["targetId"] == asked["id"]


def test_files_of_a_project_need_trust(tmp_path: Path) -> None:
    (tmp_path / "work" / ".pi").mkdir(parents=True)
    (tmp_path / "work" / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": entry(), "b": entry()}}))
    (tmp_path / "work" / ".pi" / "mcp.json").write_text(json.dumps({"mcpServers": {"b": {"enabled": False}}}))
    servers = {"user": entry(), "a": {"command": "/other"}}
    with WithServers(servers, base=tmp_path) as agent:
        state = agent.data("get_state")
        assert [server["name"] for server in state["mcpServers"]] == ["user", "a"]
        skipped = [Path(path).name for path in state["untrustedResources"]]
        assert skipped == ["mcp.json", ".mcp.json"]
    with WithServers(servers, base=tmp_path, args=["--approve"]) as agent:
        states = {server["name"]: server for server in agent.states()}
        assert states["a"]["source"].endswith("work/.mcp.json") and states["b"]["state"] == "disabled"
    with WithServers(servers, base=tmp_path, args=["--no-mcp"]) as agent:
        assert agent.states() == []
        assert "MCP is off" in agent.call("set_mcp_servers", servers={})["error"]
    extra = tmp_path / "extra.json"
    extra.write_text('{"mcpServers": {"more": {"command": "x"}, "bad": {"type": "pigeon", "url": "http://x"}}} // mine')
    with WithServers(
        servers, base=tmp_path, args=["--mcp-config", str(extra), "--mcp-config", "missing.json"]
    ) as agent:
        states = {server["name"]: server for server in agent.states()}
        assert states["more"]["state"] == "idle" and states["bad"]["state"] == "invalid"
        assert any("no such file" in (state.get("error") or "") for state in states.values())
        agent.close_stdin()
        assert b'MCP server "bad" is left out' in agent.stderr


def test_the_command_line(agent: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(project)

    def spindle(*words: str, code: int = 0) -> str:
        assert main(list(words)) == code
        written = capsys.readouterr()
        return str(written.out + written.err)

    assert "No MCP servers" in spindle("mcp", "list")
    command = entry()
    spindle("mcp", "add", "good", "-e", "A=b", "--timeout", "50", "--", command["command"], *command["args"])
    spindle("mcp", "add", "away", "--header", "X: y", "http://127.0.0.1:1/mcp")
    spindle("mcp", "add", "here", "--project", "--", "sh", "-c", "echo words >&2; exit 4")
    assert json.loads((agent / "mcp.json").read_text()) == {
        "mcpServers": {
            "good": {**command, "env": {"A": "b"}, "timeout": 50.0},
            "away": {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"X": "y"}},
        }
    }
    assert (agent / "mcp.json").stat().st_mode & 0o077 == 0
    assert "cannot be the name" in spindle("mcp", "add", "a b", "--", "x", code=1)
    assert "is a program on this machine" in spindle("mcp", "login", "good", code=1)
    assert "there was no login" in spindle("mcp", "logout", "away")
    listed = spindle("mcp", "list")
    assert "good (stdio): ready, 16 tools, pid " in listed and "fake server starts" in listed
    assert "away (http): failed" in listed and "Cannot reach 127.0.0.1:1" in listed and "not trusted" in listed
    spindle("mcp", "remove", "good")
    assert "there is no server 'good'" in spindle("mcp", "remove", "good", code=1)
    shown = [json.loads(line) for line in spindle("mcp", "list", "--json", "--approve").splitlines()]
    failed = next(state for state in shown if state["name"] == "here")
    assert failed["state"] == "failed" and "exit code 4" in failed["error"] and "words" in failed["error"]
    (agent / "mcp.json").write_text(json.dumps({"servers": {"x": {"command": "x"}}}))
    spindle("mcp", "add", "z", "--", "z")
    assert list(json.loads((agent / "mcp.json").read_text())["servers"]) == ["x", "z"]
    spindle("mcp", "remove", "x")
    assert list(json.loads((agent / "mcp.json").read_text())["servers"]) == ["z"]
    (agent / "mcp.json").write_text('{"mcpServers": {}} // mine')
    assert f"{agent / 'mcp.json'}: " in spindle("mcp", "add", "z", "--", "z", code=1)
    (agent / "mcp.json").write_text(
        json.dumps({"mcpServers": {"x": {"type": "pigeon", "url": "http://x"}, "y": command}})
    )
    report = spindle("doctor", code=1)
    assert "MCP servers (2)" in report and "  y (stdio): ready, 16 tools" in report and "  error x: invalid" in report


def test_a_tool_runs_by_its_right_name_although_its_server_was_not_asked() -> None:
    steps = [
        reply(call("mcp__one__echo", {"text": "hi"}), call("mcp__broken__x", {}), call("mcp__one__none", {})),
        reply("done"),
    ]
    servers = {"one": entry(exposure="deferred"), "broken": {"command": "sh", "args": ["-c", "exit 3"]}}
    with WithServers(servers, *steps) as agent:
        agent.prompt("go")
        agent.wait("agent_settled")
        echo, broken, none = (m for m in agent.data("get_messages")["messages"] if m["role"] == "toolResult")
        assert (echo["content"][0]["text"], echo["isError"]) == ("echo: hi", False)
        assert "exit code 3" in broken["content"][0]["text"]
        assert "Tool mcp__one__none not found" in none["content"][0]["text"]
        offered = [tool["function"]["name"] for tool in agent.mock.requests[1].body["tools"]]
        assert "mcp__one__echo" in offered  # it stays loaded


def test_tools_of_servers_that_there_are_not(tmp_path: Path) -> None:
    for server in ("nowhere", "one"):
        args = ["--tools", f"mcp__{server}__echo,read"]
        with WithServers({"one": entry()}, base=tmp_path / server, args=args) as agent:
            agent.close_stdin()
            assert (b'no MCP server for the tool "mcp__nowhere__echo"' in agent.stderr) == (server == "nowhere")


@pytest.mark.parametrize("patience", [30, 0.3])
def test_a_run_of_one_prompt_waits_for_direct_servers(patience: float, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "sitecustomize.py").write_text(f"import spindle.base.limits as l; l.MCP_SEARCH = {patience}")
    with MockModel([reply("ok")]) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        slow = entry("--plain", "--delay", "1", exposure="direct")
        (tmp_path / "agent/mcp.json").write_text(json.dumps({"mcpServers": {"slow": slow}}))
        done = subprocess.run(
            [sys.executable, "-m", "spindle", "--model", "mock/m1", "--no-session", "-p", "go"],
            cwd=tmp_path / "work",
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=agent_environment(tmp_path / "agent") | {"PYTHONPATH": str(tmp_path)},
        )
        assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
        offered = [tool["function"]["name"] for tool in mock.requests[0].body["tools"]]
        assert ("mcp__slow__echo" in offered) == (patience > 1)
        missing = 'MCP server "slow" did not start within 0.3 s: the model is asked without its tools'
        assert (missing in done.stderr) == (patience < 1)
