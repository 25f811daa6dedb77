"""The evaluation: every task is honest, and a figure in its table comes from a run that happened."""

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp
import pytest
from evals import compare, harbor_tasks, kept, polyglot
from evals.harnesses import classes
from evals.meter import Meter, Sampling, read_answer
from evals.report import interval
from evals.stopwatch import Stopwatch
from evals.tasks import FOLDER, load, load_easy
from evals.trial import Trial

from tests.support.mock_model import MockModel, call, failure, reply, stall

ROOT = FOLDER.parent.parent
SPINDLE = f"spindle={Path(sys.executable).with_name('spindle')}"
FIX = "sed -i 's|/ len(values)|/ len(values) if values else 0.0|' stats.py"


@pytest.mark.parametrize("task", [*load(), *load_easy()], ids=lambda task: task.name)
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


def test_there_are_forty_easy_tasks():
    tasks = load_easy()
    assert len(tasks) == 40 and {task.kind for task in tasks} == {"easy"}
    assert all(sum(text.count("\n") for text in task.files.values()) < 20 for task in tasks)


def evaluate(model, out, *words):
    command = [
        sys.executable,
        "-m",
        "evals",
        "--url",
        model.openai_url,
        "--model",
        "m1",
        "--out",
        str(out),
        "--harness",
        SPINDLE,
        *words,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def test_trials_are_counted_kept_and_not_run_again(tmp_path):
    steps = [
        reply("ok"),
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
        assert len(model.requests) == asked == 5
    assert done.returncode == again.returncode == 0, done.stderr
    assert "| spindle | 1 (2) | 9%–91% | 1/1 0/1 | 2 (2–2) | 250 (250–250) | 25 (25–25) |" in done.stdout
    assert "| spindle | untouched 1 |" in done.stdout and "edit missed 1" in done.stdout
    assert done.stdout == again.stdout
    assert all(request.body["model"] == "m1" for request in model.requests)
    assert all(request.body["temperature"] == 0.2 for request in model.requests[1:])
    assert [request.body["seed"] for request in model.requests[1:]] == [1, 1, 2, 2]
    first = tmp_path / "spindle" / "repair-average" / "1"
    assert json.loads((first / "result.json").read_text())["passed"] is True
    assert "if values else" in (first / "workspace" / "stats.py").read_text()
    assert len((first / "answers.jsonl").read_text().splitlines()) == 2
    assert list((first / "home" / "sessions").rglob("*.jsonl"))


def test_what_cannot_work_is_told_before_anything_begins(tmp_path):
    words = ["--easy", "--out", tmp_path, "--model", "m"]
    gone = run_evals("--base-url", "http://127.0.0.1:9/v1", "--harness", "gone:pi=/nonexistent/pi", *words)
    assert gone.returncode == 2 and "gone:pi=/nonexistent/pi is not there: /nonexistent/pi" in gone.stderr
    bare = run_evals("--base-url", "127.0.0.1:9/v1", "--harness", SPINDLE, *words)
    assert bare.returncode == 2 and "as http://127.0.0.1:11434/v1, not 127.0.0.1:9/v1" in bare.stderr
    with MockModel([]) as model, ollama(model, "m") as url:
        elsewhere = run_evals("--base-url", url.removesuffix("/v1"), "--harness", SPINDLE, *words)
    assert elsewhere.returncode == 1 and "Most addresses end with /v1" in elsewhere.stderr, elsewhere.stderr


def test_a_call_that_never_ends_is_ended(tmp_path):
    with MockModel([reply("ok"), reply(call("bash", {"command": "sleep 600"}))]) as model:
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


# -- the model's server, kept trials, reports ----------------------------------------------------


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass


@contextlib.contextmanager
def serving(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def ollama(model, *names):
    """A server that passes requests for its models on, and answers like Ollama for others."""

    class Handler(QuietHandler):
        def answer(self, status, body, kind="application/json"):
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if not self.path.startswith("/v1/"):
                self.answer(404, b"404 page not found", "text/plain")
                return
            listed = {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}
            self.answer(200, json.dumps(listed).encode())

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            name = json.loads(body)["model"]
            if not self.path.startswith("/v1/"):
                self.answer(404, b"404 page not found", "text/plain")
                return
            if name not in names:
                error = {"message": f'model "{name}" not found, try pulling it first', "type": "api_error"}
                self.answer(404, json.dumps({"error": error}).encode())
                return
            request = urllib.request.Request(f"{model.openai_url}/chat/completions", body, dict(self.headers))
            with urllib.request.urlopen(request) as done:
                self.answer(200, done.read(), done.headers["content-type"])

    with serving(Handler) as url:
        yield url


def run_evals(*words, module="evals", env=None):
    command = [sys.executable, "-m", module, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, env=env)


@contextlib.contextmanager
def answering(status, body):
    """A server that says the same to every request."""

    class Handler(QuietHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as url:
        yield url


EASY_FIX = reply(call("bash", {"command": "mv draft.txt final.txt"}))


def test_a_server_like_ollamas_is_asked_for_its_model(tmp_path):
    words = ["--harness", SPINDLE, "--easy", "--only", "rename-file", "--trials", "1", "--out", tmp_path]
    with MockModel([reply("ok"), EASY_FIX, reply("Done.")]) as model, ollama(model, "qwen2.5-coder:7b", "x") as url:
        unnamed = run_evals("--base-url", url, *words)
        other = run_evals("--base-url", url, "--model", "qwen", *words)
        assert not model.requests and not list(tmp_path.rglob("result.json"))
        done = run_evals("--base-url", url, "--model", "qwen2.5-coder:7b", *words)
        assert {request.body["model"] for request in model.requests} == {"qwen2.5-coder:7b"}
    assert (unnamed.returncode, unnamed.stderr) == (
        1,
        "Error: Name a model with --model. It has: qwen2.5-coder:7b, x\n",
    )
    assert other.returncode == 1 and "has no model 'qwen' (HTTP 404)" in other.stderr, other.stderr
    assert "It has: qwen2.5-coder:7b, x" in other.stderr and "Traceback" not in other.stderr
    assert done.returncode == 0 and "| spindle | 1 (1) |" in done.stdout, done.stderr


def test_the_only_model_of_a_server_needs_no_name(tmp_path):
    words = ["--harness", SPINDLE, "--easy", "--only", "rename-file", "--trials", "1", "--out", tmp_path]
    with MockModel([reply("ok"), EASY_FIX, reply("Done.")]) as model, ollama(model, "only") as url:
        done = run_evals("--base-url", url, *words)
    assert "| spindle | 1 (1) |" in done.stdout, done.stderr


def test_a_server_that_is_not_there_is_told_before_anything_begins(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        done = run_evals("--base-url", url, "--model", "m", "--harness", SPINDLE, "--easy", "--out", tmp_path)
    assert done.returncode == 1 and f"The server at {url} cannot be asked" in done.stderr
    assert "Traceback" not in done.stderr and not done.stdout


def test_a_server_that_takes_no_tools_or_is_none_is_told_before_anything_begins(tmp_path):
    words = ["--easy", "--only", "rename-file", "--trials", "1", "--harness", SPINDLE, "--model", "m"]
    for status, body, said in (
        (400, b'{"error": {"message": "m does not support tools"}}', "takes no tools for 'm': {\"error\""),
        (200, b"<html>Welcome</html>", "There is no API like OpenAI's at http"),
    ):
        with answering(status, body) as url:
            done = run_evals("--base-url", url, "--out", tmp_path, *words)
        assert done.returncode == 1 and said in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and not list(tmp_path.rglob("result.json"))


ASK_ONCE = """#!PYTHON
import json, os, urllib.request
url = json.load(open(os.environ["PI_CODING_AGENT_DIR"] + "/models.json"))["providers"]["eval"]["baseUrl"]
urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", b'{"messages": []}'))
"""


def test_a_server_that_fails_later_makes_no_result(tmp_path):
    program = tmp_path / "asks"
    program.write_text(ASK_ONCE.replace("PYTHON", sys.executable))
    program.chmod(0o755)
    words = ["--easy", "--only", "rename-file", "--trials", "1", "--model", "m", "--harness", f"one:pi={program}"]
    for step in (failure(500, "the runner has ended"), failure(200, b"data: {}\n\n")):
        with MockModel([reply("ok"), step]) as model:
            done = run_evals(*words, "--base-url", model.openai_url, "--out", tmp_path / "out")
        assert "| one | crashed 1 |" in done.stdout and done.returncode == 1, done.stdout
        assert "1 x exit code " in done.stderr


def test_a_stopped_evaluation_reports_what_it_has(tmp_path):
    with MockModel([reply("ok"), EASY_FIX, reply("Done."), reply(stall())]) as model:
        words = ["--easy", "--only", "rename-file", "--trials", "9", "--base-url", model.openai_url, "--model", "m"]
        command = [sys.executable, "-m", "evals", *words, "--out", str(tmp_path), "--harness", SPINDLE]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None and running.stdout.readline().endswith("passed\n")
            running.terminate()
            said, errors = running.communicate(timeout=60)
    assert running.returncode == 130 and "| spindle | 1 (1) |" in said, said
    assert not errors and "rename-file, 1" in (tmp_path / "report.md").read_text()


def test_harnesses_have_names_and_settings_of_their_own(tmp_path):
    words = ["--easy", "--only", "rename-file", "--trials", "1", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"]
    twice = run_evals(*words, "--harness", SPINDLE, "--harness", SPINDLE)
    assert twice.returncode == 2 and "two harnesses are called spindle" in twice.stderr
    away = run_evals(*words, "--harness", f"../x:{SPINDLE}")
    assert away.returncode == 2 and "cannot be the name of a folder" in away.stderr
    wrong = run_evals(*words, "--harness", SPINDLE, "--settings", "spindle:{")
    assert wrong.returncode == 2 and "--settings spindle:{: " in wrong.stderr
    with MockModel([reply("ok"), reply(call("write", {"path": "draft.txt", "content": ""})), reply("Done.")]) as model:
        evaluate(model, tmp_path, *words[:5], "--settings", 'spindle:{"readBeforeWrite": true}')
        assert "draft.txt was not written: it exists" in str(model.requests[2].body["messages"])
    kept_one = json.loads((tmp_path / "spindle/rename-file/1/result.json").read_text())
    assert kept_one["conditions"]["settings"] == {"readBeforeWrite": True}


def test_a_harness_that_has_gone_leaves_the_model_free(tmp_path):
    words = ["--easy", "--only", "rename-file", "--trials", "1", "--seconds", "1"]
    with MockModel([reply("ok"), reply(stall())]) as model:
        begin = time.monotonic()
        done = evaluate(model, tmp_path, *words)
        assert time.monotonic() - begin < 30
    assert "| spindle | time 1 |" in done.stdout, done.stdout


def test_the_key_comes_from_a_variable(tmp_path):
    words = ["--harness", SPINDLE, "--easy", "--only", "rename-file", "--trials", "1", "--out", tmp_path]
    with MockModel([reply("ok"), EASY_FIX, reply("Done.")]) as model:
        words += ["--base-url", model.openai_url, "--model", "m", "--key-env", "EVAL_TEST_KEY"]
        missing = run_evals(*words)
        assert missing.returncode == 2 and "EVAL_TEST_KEY (--key-env) is not set" in missing.stderr
        run_evals(*words, env=os.environ | {"EVAL_TEST_KEY": "s3cret"})
        assert {request.headers["authorization"] for request in model.requests} == {"Bearer s3cret"}
    found = [path for path in tmp_path.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
    assert found == [], "the key is nowhere"


def test_a_trial_under_other_conditions_is_moved_and_a_crashed_one_is_tried_again(tmp_path):
    one = ["--easy", "--only", "rename-file", "--trials", "1"]
    with MockModel([reply("ok"), EASY_FIX, reply("Done."), reply("ok"), reply("I cannot.")]) as model:
        assert "| spindle | 1 (1) |" in evaluate(model, tmp_path, *one).stdout
        warmer = evaluate(model, tmp_path, *one, "--temperature", "0.7")
    assert "spindle/rename-file/1: kept with another temperature; moved to earlier/" in warmer.stdout
    assert "| spindle | 0 (1) |" in warmer.stdout
    (moved,) = (tmp_path / "earlier").rglob("result.json")
    assert json.loads(moved.read_text())["passed"] is True
    gone = ["--only", "rename-file", "--easy", "--trials", "1", "--out", tmp_path / "crash", "--model", "m"]
    with MockModel([reply("ok"), reply("ok"), EASY_FIX, reply("Done.")]) as model:
        crashed = run_evals("--base-url", model.openai_url, "--harness", "one:spindle=false", *gone)
        assert "| one | crashed 1 |" in crashed.stdout and crashed.returncode == 1
        assert "1 of 1 trials crashed: the same command tries them again." in crashed.stderr
        again = run_evals("--base-url", model.openai_url, "--harness", f"one:{SPINDLE}", *gone)
        assert "| one | 1 (1) |" in again.stdout, again.stdout


def test_two_states_of_a_checkout_are_two_versions(tmp_path):
    package = tmp_path / "src"
    package.mkdir()
    said = []
    for name, word in (("spindle", "0.2.0"), ("python", package)):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {word}\n")
        (tmp_path / name).chmod(0o755)
    for text in ("a = 1", "a = 2", "a = 1"):
        (package / "a.py").write_text(text)
        said.append(kept.version.__wrapped__((str(tmp_path / "spindle"),)))
    assert said[0] == said[2] != said[1] and said[0].startswith("0.2.0 ")


def test_trials_at_a_time_and_the_report(tmp_path):
    steps = [
        reply("I will not <b>.", match="(?i)rename"),
        reply("ok", match="Say ok"),
    ]
    with MockModel([*steps, reply("Copied.")]) as model:
        done = evaluate(model, tmp_path, "--easy", "--only", "rename-file,copy-file", "--trials", "2", "--jobs", "3")
    assert done.returncode == 0, done.stderr
    page, plain = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    links = re.findall(r'href="([^"]+)"', page)
    assert len(links) == 4 and set(links) <= set(re.findall(r"\(([^)]+)\)", plain))
    assert all((tmp_path / link).is_file() for link in links)
    assert "## untouched (4)" in plain and "temperature 0.2" in plain and "model m1" in plain
    told = (tmp_path / "spindle/rename-file/1/transcript.html").read_text()
    assert "Rename the file draft.txt to final.txt." in told and "I will not &lt;b&gt;." in told
    assert not list(tmp_path.glob("running*"))


def test_the_limit_of_model_calls_holds_for_every_harness(tmp_path):
    async def ask():
        one = Meter(model.openai_url, "k", Sampling(), tmp_path / "answers.jsonl", "m1", 1)
        said = []
        async with one as meter, aiohttp.ClientSession() as session:
            for _ in range(2):
                body = {"model": "evaluated", "messages": [{"role": "user", "content": "go"}]}
                async with session.post(f"{meter.url}/chat/completions", json=body) as answer:
                    said.append((answer.status, await answer.text()))
        return said, meter.usage

    with MockModel([reply("yes")]) as model:
        said, usage = asyncio.run(ask())
        assert len(model.requests) == 1
    assert [status for status, _ in said] == [200, 400] and "limit of 1 model calls" in said[1][1]
    assert (usage.calls, usage.refused) == (1, 1)


def row(task, number, passed, **more):
    return Trial("new", task, number, passed, **more)


def test_two_runs_are_compared_pair_by_pair(tmp_path):
    for name, good in (("new", 12), ("old", 4)):
        for task in range(20):
            folder = tmp_path / name / f"t{task}" / "1"
            folder.mkdir(parents=True)
            trial = Trial(name, f"t{task}", 1, task < good, calls=2, conditions={"temperature": 0.2, "program": name})
            (folder / "result.json").write_text(json.dumps(vars(trial)))
    said = run_evals(tmp_path / "new", tmp_path / "old", module="evals.compare")
    assert "| passed | 12 (60%) | 4 (20%) | +40.0 points |" in said.stdout, said.stderr
    assert "Only new passed: 8; only old passed: 0 (exact test over the tasks: p = 0.01)." in said.stdout
    assert "The interval leaves out 0." in said.stdout and "differ in more" not in said.stdout
    same = run_evals(tmp_path / "new", tmp_path / "new", module="evals.compare")
    assert "| +0.0 points | -12.6 to +12.6 |" in same.stdout and "cannot be told" in same.stdout
    assert f"Only {tmp_path / 'new'} passed: 0" in same.stdout, "runs with the same harness go by their folders"
    nothing = run_evals(tmp_path / "new", tmp_path / "nowhere", module="evals.compare")
    assert nothing.returncode == 2 and "no trial of the same task" in nothing.stderr


def test_a_trial_that_crashed_is_in_no_pair():
    crashed = row("a", 1, False, reason="crashed")
    assert compare.pairs_of([row("a", 1, True), row("b", 1, True)], [crashed, row("b", 1, False)])[0][0].task == "b"
    with pytest.raises(compare.NothingToCompare):
        compare.pairs_of([row("a", 1, True)], [crashed])


def test_trials_of_one_task_do_not_make_the_interval_shorter():
    alike = [(row("a", n, True), row("a", n, False)) for n in range(50)]
    other = [(row("b", n, False), row("b", n, False)) for n in range(50)]
    pairs = [*alike, *other]
    mean, low, high = compare.interval(pairs, lambda trial: float(trial.passed))
    assert (mean, low, high) == (0.5, 0.0, 1.0)
    mean, low, high = compare.share_interval(pairs)
    assert mean == 0.5 and low < 0 and high == 1.0
    assert compare.chance_of(pairs) == 1.0, "one task that differs says nothing"


def test_with_one_trial_for_each_task_the_test_is_mcnemars():
    split = [(row(f"t{n}", 1, n < 8), row(f"t{n}", 1, n >= 8)) for n in range(9)]
    assert compare.chance_of(split) == pytest.approx(2 * (1 + 9) / 2**9)


def test_an_answer_of_the_responses_api_is_read():
    response = {"status": "completed", "usage": {"input_tokens": 7, "output_tokens": 3}, "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
        {"type": "function_call", "name": "shell"}]}  # fmt: skip
    event = json.dumps({"type": "response.completed", "response": response})
    assert read_answer(f"event: response.completed\ndata: {event}\n\n".encode()) == (
        "Hi",
        ["shell"],
        {"input_tokens": 7, "output_tokens": 3},
        "completed",
    )


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
    look = reply(call("bash", {"command": "pwd; echo $GREETING; ls / /tests"}))
    steps = [reply("ok"), look, serve, reply("It is up.")]
    with MockModel(steps) as model:
        done = evaluate(model, tmp_path / "out", "--harbor", str(task), "--trials", "1")
        seen = next(one["content"] for one in model.requests[2].body["messages"] if one["role"] == "tool")
    assert "| spindle | 1 (1) |" in done.stdout, done.stdout + done.stderr
    assert "/app\nhello you\n" in str(seen) and "wanted" not in str(seen)


@needs_namespaces
def test_a_harbor_task_that_needs_an_image_is_left_out(served, tmp_path):
    with (served[0] / "environment" / "Dockerfile").open("a") as file:
        file.write("RUN touch /usr/installed\n")
    with MockModel([reply("")]) as model:
        done = evaluate(model, tmp_path / "out", "--harbor", str(served[0]), "--trials", "1")
    assert "Left out: served: its image cannot be made here: RUN touch /usr/installed" in done.stderr
    assert done.returncode == 0 and len(model.requests) <= 1, "at most the check"
