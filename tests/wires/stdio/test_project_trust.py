"""Trust of a project, and a far side that was never used here, are asked as questions that a client can answer."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spindle.client import Event, SyncRpcClient
from tests.client.test_with_spindle import SPINDLE, options
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import MockModel, call, reply


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "work" / ".pi").mkdir(parents=True)
    (tmp_path / "work" / ".pi" / "settings.json").write_text(json.dumps({"permissions": {"deny": ["Bash(touch *)"]}}))
    return tmp_path


def write_session(path: Path, cwd: Path, command: str) -> None:
    """Write a session that worked at the far side of a command."""
    said = {"role": "user", "content": [{"type": "text", "text": "hi"}], "timestamp": 1}
    at = "2026-01-01T00:00:00.000Z"
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": path.stem, "timestamp": at, "cwd": str(cwd)},
        {"type": "message", "id": "a1", "parentId": None, "timestamp": at, "message": said},
        {"type": "custom", "customType": "spindle.exec", "id": "a2", "parentId": "a1", "timestamp": at}
        | {"data": {"command": command}},
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def left_out(agent: AgentProcess) -> list[str]:
    return [Path(path).name for path in agent.data("get_state").get("untrustedResources", [])]


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_nothing_waits_for_the_answer_and_a_yes_may_be_kept(base: Path) -> None:
    with AgentProcess([reply("hi")], base=base) as agent:
        asked = agent.wait("permission_request")
        assert (asked["kind"], asked["summary"]) == ("trust", f"Trust {agent.cwd}?")
        assert asked["preview"]["text"].endswith("\n.pi/settings.json") and asked["keeps"] == ["user"]
        agent.run("go")  # it is not held
        assert left_out(agent) == ["settings.json"]
        wrong = agent.call("answer_permission", question=asked["id"], behavior="allow", keep="session")
        assert "Possible: user" in wrong["error"]
        assert agent.call("answer_permission", question=asked["id"], behavior="allow", keep="user")["success"]
        told = agent.wait("permission_answered")
        assert (told["id"], told["behavior"]) == (asked["id"], "allow")
        until(lambda: not left_out(agent))
        assert [rule["rule"] for rule in agent.data("get_permissions")["rules"]] == ["Bash(touch *)"]
    assert json.loads((base / "agent" / "trust.json").read_text()) == {str(base / "work"): True}
    with AgentProcess(base=base) as agent:
        assert left_out(agent) == []
        assert "permission_request" not in [frame["type"] for frame in agent.frames]


def test_a_yes_without_keep_holds_for_the_session_and_a_no_may_be_kept(base: Path) -> None:
    with AgentProcess(base=base) as agent:
        asked = agent.wait("permission_request")
        assert agent.call("answer_permission", question=asked["id"], behavior="allow")["success"]
        until(lambda: not left_out(agent))
    assert not (base / "agent" / "trust.json").exists()
    with AgentProcess(base=base) as agent:
        asked = agent.wait("permission_request")
        assert agent.call("answer_permission", question=asked["id"], behavior="deny", keep="user")["success"]
        until((base / "agent" / "trust.json").exists)
        assert left_out(agent) == ["settings.json"]
    with AgentProcess(base=base) as agent:
        agent.call("get_state")
        assert "permission_request" not in [frame["type"] for frame in agent.frames]


def test_what_has_changed_since_the_question_is_not_agreed_to(base: Path) -> None:
    with AgentProcess(base=base) as agent:
        asked = agent.wait("permission_request")
        (agent.cwd / ".pi" / "settings.json").write_text("{}")
        agent.call("answer_permission", question=asked["id"], behavior="allow", keep="user")
        assert (
            "changed"
            in agent.wait(lambda frame: frame["type"] == "notice" and "changed" in frame["message"])["message"]
        )
        assert left_out(agent) == ["settings.json"]
    assert not (base / "agent" / "trust.json").exists()


def bring_code(base: Path) -> None:
    """Write a server and an extension of the project; both leave a file where they run."""
    server = {"command": "touch", "args": [str(base / "server-ran")]}
    (base / "work" / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": server}}))
    (base / "work" / ".pi" / "extensions").mkdir()
    (base / "work" / ".pi" / "extensions" / "one.py").write_text(f"open({str(base / 'extension-ran')!r}, 'w')")


@pytest.mark.parametrize("keep", ["user", None])
def test_what_was_added_since_the_question_is_not_agreed_to(base: Path, keep: str | None) -> None:
    with AgentProcess(base=base) as agent:
        asked = agent.wait("permission_request")
        bring_code(base)
        agent.call("answer_permission", question=asked["id"], behavior="allow", keep=keep)
        agent.wait(lambda frame: frame["type"] == "notice" and "changed" in frame["message"])
        agent.data("new_session")
        assert left_out(agent)
    assert not list(base.glob("*-ran")) and not list((base / "agent").glob("*trust.json"))


@pytest.mark.parametrize("how", ["--approve", "asked"])
def test_code_that_comes_after_a_yes_for_now_is_not_agreed_to(base: Path, how: str) -> None:
    with AgentProcess(base=base, args=["--approve"] if how == "--approve" else []) as agent:
        if how == "asked":
            agent.call("answer_permission", question=agent.wait("permission_request")["id"], behavior="allow")
        until(lambda: not left_out(agent))
        bring_code(base)
        agent.send("new_session")
        assert "Load the extensions" in agent.wait("permission_request")["summary"]
        (server,) = agent.data("get_state")["mcpServers"]
        assert "has changed since you agreed" in server["error"]
    assert not list(base.glob("*-ran"))


def test_a_yes_takes_no_question_from_a_run(base: Path) -> None:
    steps = [reply("", call("bash", {"command": "echo > a"})), reply("ok")]
    with AgentProcess(steps, base=base, args=["--permission-mode", "default"]) as agent:
        trust = agent.wait("permission_request")
        agent.prompt("go")
        tool = agent.wait("permission_request")
        assert (trust["kind"], tool["kind"]) == ("trust", "tool")
        agent.call("answer_permission", question=trust["id"], behavior="allow")
        assert agent.call("reload")["success"]
        assert agent.call("answer_permission", question=tool["id"], behavior="allow")["success"]
        agent.wait("agent_settled")
        until(lambda: not left_out(agent))
    assert (base / "work" / "a").exists()


@pytest.mark.parametrize("dialect", ["pi-0.74", "pi-0.87", "pi-1.5", "xcsh", "omp"])
def test_neighbours_clients_see_nothing_of_it(base: Path, dialect: str) -> None:
    with AgentProcess([reply("hi")], base=base, args=["--dialect", dialect]) as agent:
        agent.prompt("go")
        agent.wait("agent_end")
        agent.call("get_state")
        assert not {"permission_request", "extension_ui_request"} & {frame["type"] for frame in agent.frames}


def test_a_client_with_dialogs_alone_sees_no_dialog(base: Path) -> None:
    with AgentProcess([reply("hi")], base=base) as agent:
        agent.run("go")
        assert "extension_ui_request" not in [frame["type"] for frame in agent.frames]


def test_a_far_side_that_was_never_used_is_asked_about(base: Path) -> None:
    stored, ran = base / "sessions" / "stored.jsonl", base / "ran"
    stored.parent.mkdir()
    write_session(stored, base / "work", f"touch {ran}")
    with AgentProcess(base=base, args=["--no-approve", "--session-dir", str(stored.parent)], session=True) as agent:

        def refused(name: str, **fields: str) -> bool:
            agent.send(name, id=name, **fields)
            asked = agent.wait("permission_request")
            assert asked["kind"] == "place" and f"touch {ran}" in asked["preview"]["text"]
            agent.call("answer_permission", question=asked["id"], behavior="deny")
            answer = agent.wait(lambda frame: frame.get("id") == name)
            return "never used here" in answer["error"]

        assert refused("switch_session", sessionPath=str(stored)) and refused("open_session", session=stored.stem)
        assert not ran.exists()
        agent.send("switch_session", id="again", sessionPath=str(stored))
        asked = agent.wait("permission_request")
        agent.call("answer_permission", question=asked["id"], behavior="allow")
        failed = agent.wait(lambda frame: frame.get("id") == "again")
        assert ran.exists() and "never used here" not in failed["error"]  # it ran, and is no shell
    ran.unlink()
    with AgentProcess(base=base, args=["--dialect", "pi-0.87"]) as agent:
        other = base / "other.jsonl"
        write_session(other, base / "work", "exit 4")
        assert "never used here" in agent.call("switch_session", sessionPath=str(other))["error"]  # at once


def test_a_plain_program_answers_in_a_thread(tmp_path: Path) -> None:
    with MockModel([reply("", call("bash", {"command": "touch a"})), reply("ok")]) as mock:
        agent = SyncRpcClient([*SPINDLE, "--no-session", "--permission-mode", "default"], **options(tmp_path, mock))
        asked: list[Event] = []

        def answer(request: Event) -> None:
            asked.append(request)
            agent.answer_permission(request["id"], "allow")

        agent.on_permission_request = answer
        assert agent.on_permission_request is answer
        with agent:
            assert agent.prompt_and_wait("go").text == "ok"
        assert [request["toolName"] for request in asked] == ["bash"] and (tmp_path / "work" / "a").exists()
