"""Checks after an edit: the real process, a scripted model, and a checker that complains about every TODO."""

import json
import sys

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

CHECKER = """
import sys, time
lines = open(sys.argv[1]).read().splitlines()
if "SLOW" in lines:
    time.sleep(60)
found = [f"{n}: {line}" for n, line in enumerate(lines, 1) if "TODO" in line]
print("\\n".join(found))
sys.exit(bool(found))
"""


def edited(text, *edits, pattern="*.py", name="a file.py"):
    """Edit a file that has `text`, step by step; return the results."""
    steps = [reply(call("edit", {"path": name, "edits": [{"oldText": old, "newText": new}]})) for old, new in edits]
    with AgentProcess(
        [*steps, reply("done")], settings={"checksAfterEdit": {pattern: f"{sys.executable} ../check.py {{file}}"}}
    ) as agent:
        (agent.base / "check.py").write_text(CHECKER)
        (agent.cwd / name).write_text(text)
        agent.run("go")
        ends = [frame for frame in agent.frames if frame["type"] == "tool_execution_end"]
        assert not any(frame["isError"] for frame in ends), ends
        return ["".join(block["text"] for block in frame["result"]["content"]) for frame in ends]


def test_only_new_findings_are_told():
    first, second, third = edited(
        "TODO old\nx\n", ("x\n", "y\nTODO new\n"), ("TODO old\n", "\n\nTODO old\n"), ("y", "z")
    )
    assert first.endswith("a file.py`:]\n3: TODO new")
    assert "New findings" not in second and "New findings" not in third


def test_at_most_ten_lines():
    (said,) = edited("x\n", ("x\n", "".join(f"TODO {'ab'[n % 2] * n}\n" for n in range(1, 16))))
    assert said.count("TODO") == 10 and said.endswith("… and 5 lines more")


@pytest.mark.parametrize("more", [{"pattern": "*.js"}, {"pattern": "src/*.py"}])
def test_other_files_are_not_checked(more):
    (said,) = edited("x\n", ("x", "TODO"), **more)
    assert "New findings" not in said


def test_a_check_that_takes_too_long_says_nothing():
    (said,) = edited("x\n", ("x", "SLOW\nTODO"))
    assert "New findings" not in said


def test_a_project_counts_only_when_trusted():
    settings = {"checksAfterEdit": {"*.py": "touch ran"}}
    step = reply(call("write", {"path": "a.py", "content": "x"}))
    for args, ran in (([], False), (["--approve"], True)):

        class Project(AgentProcess):
            def configure(self):
                (self.cwd / ".pi").mkdir()
                (self.cwd / ".pi" / "settings.json").write_text(json.dumps(settings))

        with Project([step, reply("done")], args=args) as agent:
            agent.run("go")
            assert (agent.cwd / "ran").exists() is ran
