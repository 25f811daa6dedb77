"""Sessions of pi 1.5 and oh-my-pi 18.3, by hand from their published types: every kind of entry is kept, none harms."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import reply

STORED = Path(__file__).parent / "neighbours"
# File → what the model is sent, tokens and cost of the whole file, model, name.
FILES: dict[str, dict[str, Any]] = {
    "pi-1.5": {
        "said": ["one way?", "shortened", "first answer", "injected"],
        "unsaid": ["secret words", "You are pi"],
        "cost": 1.53,
        "input": 130,
        "model": "m1",
        "tools": ["bash", "edit", "grep", "read"],
        "gone": ["codemode"],
    },
    "pi-1.5-compacted": {
        "said": ["They spoke of old things.", "and now?", "now"],
        "unsaid": ["long ago", "You are pi"],
        "cost": 0.12,
        "input": 25,
        "model": "m1",
        "tools": ["ls", "read"],
        "gone": [],
    },
    "omp-18.3": {
        "said": ["after the reset", "a new answer"],
        "unsaid": ["before the reset", "an old answer", "You are omp"],
        "cost": 1.03,
        "input": 70,
        "model": "m2",
        "tools": None,
        "gone": [],
    },
}


def copied(name: str, folder: Path) -> Path:
    """Return a copy whose project is `folder`."""
    path = folder / f"{name}.jsonl"
    path.write_text((STORED / path.name).read_text().replace('"/project"', json.dumps(str(folder))))
    return path


@pytest.mark.parametrize("name", FILES)
def test_a_session_goes_on(name: str, tmp_path: Path) -> None:
    expected, path = FILES[name], copied(name, tmp_path)
    before = path.read_bytes()
    args = ["--session", str(path)]
    with AgentProcess([reply("on we go")], args=args, session=True, base=tmp_path / "base", model=None) as agent:
        state, stats = agent.data("get_state"), agent.data("get_session_stats")
        assert state["model"]["id"] == expected["model"]
        assert stats["cost"] == pytest.approx(expected["cost"])
        assert stats["tokens"]["input"] == expected["input"]
        frames = agent.run("go on")
        body = agent.mock.requests[0].body
        html = agent.data("export_html", outputPath=str(tmp_path / "page.html"))["path"]
        tree = json.dumps(agent.data("get_tree"))
    sent = json.dumps(body["messages"])
    assert all(text in sent for text in expected["said"]) and not any(text in sent for text in expected["unsaid"])
    tools = sorted(tool["function"]["name"] for tool in body["tools"])
    assert expected["tools"] in (None, tools)
    told = [f["message"] for f in frames if f["type"] == "notice"]
    gone = [f"The session had tools that are not here: {', '.join(expected['gone'])}"] if expected["gone"] else []
    assert [text for text in told if "tools" in text] == gone
    assert path.read_bytes().startswith(before), "every line is kept as it was"
    added = [json.loads(line) for line in path.read_bytes()[len(before) :].splitlines()]
    answers = [entry["message"] for entry in added if entry["type"] == "message"][1:]
    assert [answer.get("thinkingLevel") for answer in answers] == [
        state["thinkingLevel"] if expected["model"] == "m1" else None
    ]
    assert "after the reset" in Path(html).read_text() if name == "omp-18.3" else Path(html).stat().st_size
    kinds = {json.loads(line)["type"] for line in before.splitlines()} - {"session", "title"}
    assert all(f'"{kind}"' in tree for kind in kinds)


def test_another_session_brings_its_tools(tmp_path: Path) -> None:
    """What the user has named counts more; a session that tells nothing has the tools of the settings."""
    paths = {name: str(copied(name, tmp_path)) for name in FILES}
    with AgentProcess([reply("x")], session=True, base=tmp_path / "a") as agent:
        mine = [tool["name"] for tool in agent.data("get_state")["dumpTools"]]
        for name, tools in (("pi-1.5-compacted", ["read", "ls"]), ("omp-18.3", mine)):
            agent.data("switch_session", sessionPath=paths[name])
            assert [tool["name"] for tool in agent.data("get_state")["dumpTools"]] == tools
    args = ["--session", paths["pi-1.5"], "--tools", "read"]
    with AgentProcess([reply("x")], args=args, session=True, base=tmp_path / "b") as agent:
        assert [tool["name"] for tool in agent.data("get_state")["dumpTools"]] == ["read"]
