"""The evaluation: every task is honest, and a figure in its table comes from a run that happened."""

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from evals import polyglot
from evals.harnesses import classes
from evals.report import interval
from evals.stopwatch import Stopwatch
from evals.tasks import FOLDER, load

from tests.support.mock_model import MockModel, call, reply

ROOT = FOLDER.parent.parent
SPINDLE = f"spindle={Path(sys.executable).with_name('spindle')}"
FIX = "sed -i 's|/ len(values)|/ len(values) if values else 0.0|' stats.py"


@pytest.mark.parametrize("task", load(), ids=lambda task: task.name)
def test_a_task_fails_without_its_reference_solution_and_passes_with_it(task, tmp_path):
    task.prepare(tmp_path)
    assert not task.judge(tmp_path).passed
    task.apply_reference(tmp_path)
    assert task.judge(tmp_path).reason == ""


def test_there_are_forty_tasks_of_every_kind_and_twelve_small_ones():
    tasks = load()
    kinds = {"repair", "feature", "refactor", "search", "shell", "git", "data", "suite", "long", "unicode", "pair"}
    assert len(tasks) == 40 and {task.kind for task in tasks} == kinds
    assert sum(task.small for task in tasks) == 12


def evaluate(model, out, *words):
    command = [
        sys.executable,
        "-m",
        "evals",
        "--url",
        model.openai_url,
        "--out",
        str(out),
        "--harness",
        SPINDLE,
        *words,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def test_trials_are_counted_kept_and_not_run_again(tmp_path):
    steps = [
        reply(call("bash", {"command": FIX}), usage=(100, 20, 0)),
        reply("Done.", usage=(150, 5, 0)),
        reply(
            call("edit", {"path": "stats.py", "edits": [{"oldText": "nowhere", "newText": "x"}]}), usage=(100, 20, 0)
        ),
        reply("It cannot be done.", usage=(150, 5, 0)),
        reply(""),
    ]
    with MockModel(steps) as model:
        done = evaluate(model, tmp_path, "--only", "repair-average", "--trials", "2")
        asked = len(model.requests)
        again = evaluate(model, tmp_path, "--only", "repair-average", "--trials", "2")
        assert len(model.requests) == asked == 4
    assert done.returncode == again.returncode == 0, done.stderr
    assert "| spindle | 1 (2) | 9%–91% | 1/1 0/1 | 2 (2–2) | 250 (250–250) | 25 (25–25) |" in done.stdout
    assert "| spindle | untouched 1 |" in done.stdout and "edit missed 1" in done.stdout
    assert done.stdout == again.stdout
    assert all(request.body["temperature"] == 0.2 for request in model.requests)
    assert [request.body["seed"] for request in model.requests] == [1, 1, 2, 2]
    first = tmp_path / "spindle" / "repair-average" / "1"
    assert json.loads((first / "result.json").read_text())["passed"] is True
    assert "if values else" in (first / "workspace" / "stats.py").read_text()
    assert len((first / "answers.jsonl").read_text().splitlines()) == 2
    assert list((first / "home" / "sessions").rglob("*.jsonl"))


def test_a_harness_that_cannot_be_started_is_told_as_that(tmp_path):
    with MockModel([reply("")]) as model:
        done = evaluate(
            model, tmp_path, "--harness", "gone:pi=/nonexistent/pi", "--only", "feature-slugify", "--trials", "1"
        )
    assert "/nonexistent/pi: No such file or directory" in done.stdout
    assert "| gone | crashed 1 |" in done.stdout


def test_a_call_that_never_ends_is_ended(tmp_path):
    with MockModel([reply(call("bash", {"command": "sleep 600"}))]) as model:
        done = evaluate(model, tmp_path, "--only", "feature-slugify", "--trials", "1", "--seconds", "3")
    assert "| spindle | time 1 |" in done.stdout, done.stdout


def test_an_exercise_of_the_polyglot_benchmark(tmp_path):
    place = tmp_path / "python" / "exercises" / "practice" / "twice"
    files = {
        ".meta/config.json": json.dumps(
            {"files": {"solution": ["twice.py"], "test": ["twice_test.py"], "example": [".meta/example.py"]}}
        ),
        ".meta/example.py": "def twice(n):\n    return 2 * n\n",
        ".docs/instructions.md": "# Twice\nDouble a number.",
        "twice.py": "def twice(n):\n    pass\n",
        "twice_test.py": "import unittest\nfrom twice import twice\n\n\nclass Test(unittest.TestCase):\n"
        "    def test(self):\n        self.assertEqual(twice(2), 4)\n",
    }
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    (task,) = polyglot.load(tmp_path)
    assert "Double a number" in task.prompt and "twice.py" in task.prompt
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    task.prepare(workspace)
    assert [path.name for path in workspace.iterdir()] == ["twice.py"]
    assert not task.judge(workspace).passed
    task.apply_reference(workspace)
    assert task.judge(workspace).passed


def test_kinds_of_failed_calls():
    texts = [
        "Tool grop not found",
        "Validation failed for tool",
        "ENOENT: no such file",
        "x\n\nCommand exited with code 1",
        "?",
    ]
    assert dict(classes(iter(texts))) == dict.fromkeys(
        ("unknown tool", "bad arguments", "no such file", "command failed", "other"), 1
    )


def test_interval():
    assert interval(0, 0) == (0.0, 1.0)
    low, high = interval(5, 10)
    assert 0.23 < low < 0.24 and 0.76 < high < 0.77


@pytest.mark.parametrize(
    ("program", "answering", "over"),
    [("input()", True, False), ("input()", False, True), ("while True: pass", True, True)],
    ids=["a paused server", "the harness at work", "a busy server"],
)
def test_answers_count_by_the_cpu_time_of_the_models_server(program, answering, over):
    async def spend():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(Stopwatch(server.pid).run(lambda: answering, 0.3), 10 if over else 1)
            return True

    with subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE) as server:
        assert bool(asyncio.run(spend())) is over
        server.kill()
