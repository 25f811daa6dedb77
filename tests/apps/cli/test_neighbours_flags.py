"""Flags of oh-my-pi's launchers: each works, or is refused by name."""

import json
from pathlib import Path

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import MockModel, call, reply

from .conftest import Place


def test_a_launcher_of_oh_my_pi_starts_an_agent(tmp_path: Path) -> None:
    there, more = tmp_path / "there", tmp_path / "more"
    there.mkdir()
    more.mkdir()
    steps = [reply(call("write", {"path": str(more / "x"), "content": "hi"})), reply("done")]
    args = ["--cwd", str(there), "--add-dir", str(more), "--max-time", "10m", "--approval-mode", "write"]
    with AgentProcess(steps, args=args, base=tmp_path) as agent:
        state = agent.data("get_state")
        assert state["permissionMode"] == "acceptEdits"
        agent.run("go")
        assert (more / "x").read_text() == "hi", "it is part of the workspace, so the edit is accepted"
        prompt = json.dumps(agent.mock.requests[0].body["messages"][0])
        assert str(more) in prompt and str(there) in prompt


@pytest.mark.parametrize("flag", ["--yolo", "--auto-approve"])
def test_nothing_is_asked(flag: str, place: Place) -> None:
    place.write("agent/settings.json", {"permissions": {"defaultMode": "dontAsk"}})
    with MockModel([reply(call("bash", {"command": "echo ran > out"})), reply("done")]) as mock:
        models = [{"id": "m1"}]
        spec = {"baseUrl": mock.openai_url, "api": "openai-completions", "apiKey": "k", "models": models}
        place.write("agent/models.json", {"providers": {"mock": spec}})
        assert place.run("-p", "go", "--model", "mock/m1", "--max-time", "1.5h", flag).returncode == 0
    assert list(place.agent.parent.rglob("out"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cwd", "/nowhere"], "--cwd /nowhere: No such file or directory"),
        (["--add-dir", "/nowhere"], "--add-dir /nowhere: there is no such folder"),
        (["--max-time", "soon"], "--max-time must be a number above 0, not 'soon'"),
        (["--approval-mode", "never"], '--approval-mode must be one of always-ask, write, yolo, not "never"'),
        (["--yolo", "--permission-mode", "plan"], "There are two permission modes: plan and bypass"),
        (["--smol", "x/y"], "Unknown option: --smol"),
        (["--from-claude"], "Unknown option: --from-claude"),
    ],
)
def test_the_rest_is_refused_by_name(words: list[str], told: str, place: Place) -> None:
    done = place.run("-p", "go", "--model", "scripted/x", *words)
    assert done.returncode == 2 and told in done.stderr, done.stderr
