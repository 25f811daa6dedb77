"""The evaluation: every task is honest, and a figure in its table comes from a run that happened."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from evals import harbor_tasks, polyglot
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


# -- tasks of Harbor -----------------------------------------------------------------------------

NAMESPACES = subprocess.run(["unshare", "--mount", "--map-root-user", "true"], capture_output=True).returncode == 0
needs_namespaces = pytest.mark.skipif(not NAMESPACES, reason="no namespaces for a machine of its own")
SERVE = "cd site && python3 -c 'import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=PORT)'"
VERIFY = """import pathlib, urllib.request
said = urllib.request.urlopen("http://127.0.0.1:PORT/index.html").read()
pathlib.Path("/logs/verifier/reward.txt").write_text(str(int(said == pathlib.Path("/tests/wanted").read_bytes())))
"""


@pytest.fixture
def served(tmp_path):
    """A Harbor task whose tests talk to a server that the agent has to start, and the command that starts it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    files = {
        "task.toml": 'version = "1.0"\n[verifier]\ntimeout_sec = 60\n',
        "instruction.md": f"Serve the folder site on port {port}.",
        "environment/Dockerfile": 'FROM python:3.12\nENV GREETING="hello you"\nWORKDIR /app\n# its page\n'
        "COPY pages/ ./site/\nRUN printf '%s' \\\n  \"$GREETING\" >> site/index.html\n",
        "environment/pages/index.html": "page: ",
        "solution/solve.sh": f"({SERVE}) &\n".replace("PORT", port),
        "tests/test.sh": "for try in 1 2 3 4 5 6 7 8 9; do python3 /tests/test.py && break; sleep 0.3; done\n",
        "tests/test.py": VERIFY.replace("PORT", port),
        "tests/wanted": "page: hello you",
    }
    for name, text in files.items():
        path = tmp_path / "served" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "served", SERVE.replace("PORT", port)


@needs_namespaces
def test_a_harbor_task_fails_without_its_reference_solution_and_passes_with_it(served, tmp_path):
    (task,) = harbor_tasks.load(served[0])
    with task.open(tmp_path / "trial" / "workspace") as place:
        assert place.judge().reason.startswith("the tests left no reward")
        place.apply_reference()
        assert place.judge().reason == ""
    assert not Path("/app").exists()


@needs_namespaces
def test_the_tests_of_a_harbor_task_talk_to_a_server_of_the_agent(served, tmp_path):
    task, command = served
    serve = reply(call("bash", {"command": command, "background": True}))
    steps = [reply(call("bash", {"command": "pwd; echo $GREETING; ls / /tests"})), serve, reply("It is up.")]
    with MockModel(steps) as model:
        done = evaluate(model, tmp_path / "out", "--harbor", str(task), "--trials", "1")
        seen = model.requests[1].body["messages"][-1]["content"]
    assert "| spindle | 1 (1) |" in done.stdout, done.stdout + done.stderr
    assert "/app\nhello you\n" in str(seen) and "wanted" not in str(seen)


@needs_namespaces
def test_a_harbor_task_that_needs_an_image_is_left_out(served, tmp_path):
    with (served[0] / "environment" / "Dockerfile").open("a") as file:
        file.write("RUN touch /usr/installed\n")
    with MockModel([reply("")]) as model:
        done = evaluate(model, tmp_path / "out", "--harbor", str(served[0]), "--trials", "1")
    assert "Left out: served: its image cannot be made here: RUN touch /usr/installed" in done.stderr
    assert done.returncode == 0 and not model.requests
