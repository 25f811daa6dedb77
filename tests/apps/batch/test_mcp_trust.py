"""MCP servers of a project start only as long as the user agrees to the content of the file that names them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.mcp.helpers import entry
from tests.support.agent_process import AgentProcess

from ..cli.conftest import Place
from .conftest import Tasks, git, make_repo


def server(marks: Path, name: str) -> dict[str, Any]:
    """Return a server that leaves its name in a folder when it is started."""
    fake = entry()
    marks.mkdir(exist_ok=True)
    script = f'touch "{marks}/$0"; exec "$@"'
    return {"command": "sh", "args": ["-c", script, name, fake["command"], *fake["args"]]}


def write_servers(place: Place, name: str, file: str = ".mcp.json", folder: str = "project") -> None:
    place.write(f"{folder}/{file}", {"mcpServers": {name: server(place.root / "marks", name)}})


def started(place: Place) -> set[str]:
    """Return the servers that were started since the last time."""
    found = set()
    for mark in (place.root / "marks").iterdir():
        found.add(mark.name)
        mark.unlink()
    return found


@pytest.mark.parametrize("file", [".mcp.json", ".pi/mcp.json"])
def test_a_changed_file_starts_nothing(place: Place, file: str) -> None:
    write_servers(place, "one", file)
    assert place.run("trust").returncode == 0
    assert "one (stdio): ready" in place.run("mcp", "list").stdout and started(place) == {"one"}
    write_servers(place, "two", file)
    listed = place.run("mcp", "list").stdout
    assert "two" not in listed and "spindle trust" in listed and not started(place)
    done = place.run("-p", "--model", place.script("done"), "hi")
    assert done.stdout == "done\n" and done.stderr.count("has changed since you agreed") == 1
    assert not started(place)
    assert "two (stdio): ready" in place.run("mcp", "list", "--approve").stdout, "for one run"
    assert "two" not in place.run("mcp", "list").stdout
    assert place.run("trust").returncode == 0
    assert "two (stdio): ready" in place.run("mcp", "list").stdout


def test_a_file_that_came_after_the_trust_starts_nothing(place: Place) -> None:
    place.write("agent/settings.json", {"defaultProjectTrust": "always"})
    assert place.run("trust").returncode == 0
    write_servers(place, "one")
    assert "one (stdio)" not in place.run("mcp", "list").stdout and not started(place)


def test_what_the_user_adds_with_our_command_is_agreed_to(place: Place) -> None:
    assert place.run("trust").returncode == 0
    own = entry()
    done = place.run("mcp", "add", "--project", "own", "--", own["command"], *own["args"])
    assert done.returncode == 0, done.stderr
    assert "own (stdio): ready" in place.run("mcp", "list").stdout
    assert place.run("mcp", "add", "--project", "more", "--", own["command"], *own["args"]).returncode == 0
    assert "more (stdio): ready" in place.run("mcp", "list").stdout
    write_servers(place, "foreign")
    place.run("mcp", "add", "--project", "own", "--", own["command"], *own["args"])
    assert "ready" not in place.run("mcp", "list").stdout and not started(place), "the rest is still not agreed to"


@pytest.mark.parametrize("answer", [True, False, None])
def test_a_client_is_asked(place: Place, answer: bool | None) -> None:
    write_servers(place, "one", folder="work")
    work = place.root / "work"
    place.write("agent/trust.json", {str(work): True})
    with AgentProcess(base=place.root) as agent:
        asked = agent.wait("extension_ui_request")
        assert asked["method"] == "confirm" and "one: sh -c" in asked["message"]
        assert not started(place)
        reply = {"cancelled": True} if answer is None else {"confirmed": answer}
        agent.write(json.dumps({"type": "extension_ui_response", "id": asked["id"], **reply}).encode() + b"\n")
        while answer and "one" not in [state["name"] for state in agent.data("get_state")["mcpServers"]]:
            pass
        if not answer:
            assert "has changed since you agreed" in agent.wait("notice")["message"] and not started(place)
    started(place)
    assert ("one (stdio): ready" in place.run("mcp", "list", cwd=work).stdout) is bool(answer)


def test_an_approved_project_cannot_change_its_servers(place: Place) -> None:
    """`--approve` is for the servers that were there when the process began."""
    write_servers(place, "one", folder="work")
    with AgentProcess(args=["--approve"], base=place.root) as agent:
        assert [state["name"] for state in agent.data("get_state")["mcpServers"]] == ["one"]
        write_servers(place, "two", folder="work")
        agent.call("new_session")
        agent.call("reload")
        assert "two" not in str([state["name"] for state in agent.data("get_state")["mcpServers"]])


def test_a_checkout_has_the_servers_that_its_source_was_trusted_with(tasks: Tasks) -> None:
    repo = make_repo(tasks.place.project / "repo")
    write_servers(tasks.place, "one", folder="project/repo")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "one")
    assert tasks.place.run("trust", cwd=repo).returncode == 0
    write_servers(tasks.place, "two", folder="project/repo")
    git(repo, "commit", "-q", "-a", "-m", "two")
    write_servers(tasks.place, "one", folder="project/repo")
    tasks.script({"text": "done", "delay": 3})
    tasks.write({"id": "a", "prompt": "p", "repo": "repo"}, {"id": "b", "prompt": "p", "repo": "repo", "ref": "HEAD~1"})
    assert tasks.run("--jobs", "2").returncode == 0
    assert "agreed" in (tasks.runs / "a/log").read_text() and "agreed" not in (tasks.runs / "b/log").read_text()
    assert "two" not in started(tasks.place)
