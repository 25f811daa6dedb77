"""The example of docs/batch.md, line by line: twenty modules, a scripted model, the real mypy."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Tasks, git, make_repo, state

PAGE = (Path(__file__).parents[3] / "docs/batch.md").read_text(encoding="utf-8")
FIRST, SECOND = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[:2]
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
PLAIN = "def scale(values, by={n}):\n    return [value * by for value in values]\n"
TYPED = PLAIN.replace("values, by=", "values: list[int], by: int = ").replace("):\n", ") -> list[int]:\n")
WRONG = TYPED.replace("-> list[int]", "-> list[str]")
BAD = ("m07", "m13")


def shell(tasks: Tasks, script: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{tasks.place.env['PATH']}"
    return tasks.place.program("sh", "-ec", "cd repo\n" + script, env={"PATH": path}, timeout=150)


@pytest.mark.timeout(180)
def test_type_hints_for_twenty_modules(tasks: Tasks) -> None:
    repo = make_repo(tasks.place.project / "repo", readme="x")
    names = [f"m{number:02}" for number in range(1, 21)]
    (repo / "src").mkdir()
    steps = []
    for number, name in enumerate(names, 1):
        (repo / f"src/{name}.py").write_text(PLAIN.format(n=number))
        typed = (WRONG if name in BAD else TYPED).format(n=number)
        write = {"name": "write", "arguments": {"path": f"src/{name}.py", "content": typed}}
        steps += [{"match": f"src/{name}.py", "calls": [write]}, {"match": f"src/{name}.py", "text": "Done."}]
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "modules")
    model = tasks.place.write("script.json", steps)
    tasks.place.write("agent/settings.json", {"defaultProvider": "scripted", "defaultModel": str(model)})

    done = shell(tasks, FIRST)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert re.search(r"^20 tasks: 18 ok, 2 failed; .*results.jsonl\nsome were not done$", done.stdout, re.MULTILINE)
    assert git(repo, "status", "--porcelain") == "?? tasks.jsonl\n", "the results hide themselves"
    lines = [json.loads(line) for line in (repo / "runs/results.jsonl").read_text().splitlines()]
    assert sorted(line["id"] for line in lines if line["status"] == "failed") == list(BAD)
    assert "Incompatible" in (repo / "runs/m07/log").read_text() or "error:" in (repo / "runs/m07/log").read_text()

    if shutil.which("jq") is None:
        pytest.skip("the rest of the example needs jq")
    assert shell(tasks, SECOND).returncode == 0
    for number, name in enumerate(names, 1):
        assert (repo / f"src/{name}.py").read_text() == (PLAIN if name in BAD else TYPED).format(n=number)
    assert state(repo)["worktrees"].count("\n") == 1 + len(BAD), "failed ones are kept"


def test_the_program(tasks: Tasks) -> None:
    tasks.script("It holds things together.")
    model = tasks.model.removeprefix("scripted/")
    tasks.place.write("agent/settings.json", {"defaultProvider": "scripted", "defaultModel": model})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tasks.place.project,
        env=tasks.place.env,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [
        "flow.py ok It holds things together.",
        "limits.py ok It holds things together.",
    ]
