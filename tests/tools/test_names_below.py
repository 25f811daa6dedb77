"""Names that an agent obeys which is started in that folder: protected at every depth, for tools and for commands."""

from pathlib import Path

import pytest

from spindle.programs import fence
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

pytestmark = pytest.mark.skipif(not fence.support().works, reason=f"no sandbox here: {fence.support().told()}")
NAMES = [".pi/extensions/x.py", ".spindle/x", ".claude/settings.json", ".mcp.json"]


@pytest.mark.parametrize("tool", ["write", "bash"])
def test_they_are_neither_made_nor_changed_at_any_depth(tmp_path: Path, tool: str) -> None:
    work = tmp_path / "work"
    for name in NAMES:
        there = work / "old/deep" / name
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text("mine")
    steps = []
    for place in ("old/deep", "new/sub"):
        for name in NAMES:
            path = f"{place}/{name}"
            command = f"mkdir -p {Path(path).parent}; echo evil > {path}"
            arguments = {"path": path, "content": "evil"} if tool == "write" else {"command": command}
            steps.append(reply(call(tool, arguments)))
    with AgentProcess([*steps, reply("ok")], base=tmp_path, args=["--sandbox", "workspace-write"]) as agent:
        agent.call("prompt", message="go")
        agent.wait("agent_settled", 60)
        told = [m["content"] for m in agent.mock.requests[-1].body["messages"] if m["role"] == "tool"]
    assert len(told) == 8 and all("protected" in str(one) or "agents obey" in str(one) for one in told), told
    for name in NAMES:
        assert (work / "old/deep" / name).read_text() == "mine"
        assert not (work / "new/sub" / name).exists()


def test_what_a_clone_or_a_package_brings_stays(tmp_path: Path) -> None:
    command = (
        "git init -q vendor && mkdir -p vendor/.claude node_modules/p/.claude src/plain && "
        "touch vendor/.claude/x vendor/.mcp.json node_modules/p/.claude/x && echo fine"
    )
    steps = [reply(call("bash", {"command": command})), reply("ok")]
    with AgentProcess(steps, base=tmp_path, args=["--sandbox", "workspace-write"]) as agent:
        agent.call("prompt", message="go")
        agent.wait("agent_settled", 60)
        told = next(m["content"] for m in agent.mock.requests[-1].body["messages"] if m["role"] == "tool")
    assert "fine" in str(told) and "obey" not in str(told)
    for path in ("vendor/.claude/x", "vendor/.mcp.json", "node_modules/p/.claude/x", "src/plain"):
        assert (tmp_path / "work" / path).exists()
