"""Export asked of real processes: over RPC, and on the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support import nursery
from tests.support.agent_process import AgentProcess, agent_environment
from tests.support.mock_model import reply

from .helpers import HEADER, SESSIONS, chain


def test_a_session_that_talks(tmp_path: Path) -> None:
    with AgentProcess([reply("The answer.")], session=True, base=tmp_path) as agent:
        assert agent.call("export_html")["error"] == "Nothing to export yet - start a conversation first"
        agent.run("A question")
        # Without a path: in the current folder, named after the session file.
        name = agent.data("export_html")["path"]
        assert Path(name).name == f"pi-session-{Path(agent.data('get_state')['sessionFile']).stem}.html"
        page = (agent.cwd / name).read_text()
        assert "<title>A question</title>" in page
        assert "The answer." in page
        assert "System prompt" in page
        assert "Tools (" in page
        # A path comes back as it was given.
        assert agent.data("export_html", outputPath="page.html")["path"] == "page.html"
        assert (agent.cwd / "page.html").exists()
        refused = agent.call("export_html", outputPath="no/such/folder.html")
        assert refused["error"].startswith("Cannot write ")


def test_a_session_in_memory() -> None:
    with AgentProcess([reply("hello")]) as agent:
        assert "Nothing to export yet" in agent.call("export_html")["error"]
        agent.run("hi")
        path = Path(agent.data("export_html")["path"])
        assert path.is_absolute() and "hi" in path.read_text()


def test_questions_are_answered_while_a_large_session_is_exported(tmp_path: Path) -> None:
    file = tmp_path / "large.jsonl"
    (tmp_path / "work").mkdir()
    lines = [{**HEADER, "cwd": str(tmp_path / "work")}, *chain(20_000)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with AgentProcess([], session=True, base=tmp_path, args=["--session", str(file)]) as agent:
        agent.data("get_state")
        # In one write, so that the order of the answers is the agent's doing and not this process's.
        export = {"type": "export_html", "id": "page", "outputPath": "page.html"}
        questions = [{"type": "get_state", "id": f"state {number}"} for number in range(3)]
        agent.write("".join(json.dumps(command) + "\n" for command in [export, *questions]).encode())
        assert agent.wait(lambda frame: frame.get("id") == "page")["success"]
        answered = [frame["id"] for frame in agent.frames if frame.get("type") == "response"]
        assert answered[-4:] == ["state 0", "state 1", "state 2", "page"]


def spindle(*args: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "spindle", *args]
    return nursery.run(
        command, cwd=cwd, env=agent_environment(cwd / "agent"), capture_output=True, text=True, timeout=60
    )


def test_the_command_line(tmp_path: Path) -> None:
    session = SESSIONS / "real-everything.jsonl"
    done = spindle("--export", str(session), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Exported to: pi-session-real-everything.html\n")
    assert os.listdir(tmp_path) == ["pi-session-real-everything.html"]
    failed = spindle("--export", "missing.jsonl", "out.html", cwd=tmp_path)
    assert (failed.returncode, failed.stderr) == (1, "Error: File not found: missing.jsonl\n")
