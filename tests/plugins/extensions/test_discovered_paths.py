"""Paths that extensions answer to `resources_discover` hold for their session and no longer."""

from pathlib import Path

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import reply

DISCOVERING = """
def extension(agent):
    agent.on("resources_discover", lambda event, ctx: {{"promptPaths": [{folder!r}]}})
"""


@pytest.mark.parametrize("then", ["two", None])
def test_another_session_has_only_what_its_extensions_find(tmp_path: Path, then: str | None) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.md").write_text("Text")
    file = tmp_path / "ext.py"
    file.write_text(DISCOVERING.format(folder=str(tmp_path / "one")))
    with AgentProcess([reply("ok")], args=["-e", str(file)]) as agent:

        def prompts() -> list[str]:
            return [item["name"] for item in agent.data("get_commands")["commands"] if item["source"] == "prompt"]

        agent.run("go")  # a prompt waits until the extensions have answered
        assert prompts() == ["one"]
        changed = DISCOVERING.format(folder=str(tmp_path / then)) if then else "def extension(agent):\n    pass\n"
        file.write_text(changed)
        agent.data("new_session")
        assert prompts() == ([then] if then else [])
