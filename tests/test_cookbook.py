"""The programs of the cookbook, and those for clients of other programs, run as printed."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, call, failure, reply

DOCS = Path(__file__).parents[1] / "docs"
PROGRAMS = {
    name: block
    for page in ("cookbook.md", "which-document.md", "python-jobs.md")
    for block in re.findall(r"```\w+\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    for name in re.findall(r"\A# (\S+):", block)
}


class Kitchen:
    """A directory with the programs, a model, and a `spindle` on PATH."""

    def __init__(self, path: Path, mock: MockModel) -> None:
        self.path, self.mock = path, mock
        agent, programs = path / "agent", path / "bin"
        programs.mkdir()
        for name, block in PROGRAMS.items():
            (path / name).write_text(block)
        us = dict.fromkeys(("spindle", "pi", "xcsh", "agent-cli"), '-m spindle "$@"')
        for name, run in {**us, "python": '"$@"'}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {run}\n')
            (programs / name).chmod(0o755)
        write_models(agent, mock.openai_url)
        (agent / "settings.json").write_text(json.dumps({"defaultProvider": "mock", "defaultModel": "m1"}))
        self.env = agent_environment(agent, PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")

    def run(self, *argv: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(argv, cwd=self.path, env=self.env, capture_output=True, text=True, timeout=50, **options)


@pytest.fixture
def kitchen(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda *steps: Kitchen(tmp_path, stack.enter_context(MockModel(list(steps))))


def test_all_of_them_are_tried():
    cookbook = {
        "editor.py",
        "bot.py",
        "review.sh",
        "readers.sh",
        "service.py",
        "review.yml",
        ".gitlab-ci.yml",
        "served.sh",
        "watch.py",
    }
    others = {"xcsh_client.py", "remote_client.py", "pi_client.py", "tree.py"}
    jobs = {f"{name}.py" for name in ("ask", "stream", "tools", "typed", "resume", "approve", "subagent", "hooks")}
    assert PROGRAMS.keys() == cookbook | others | jobs | {"limits.py", "without_model.py"}


def test_editor(kitchen):
    done = kitchen(reply("It tells people what this is.")).run("python", "editor.py", "README.md")
    assert (done.returncode, done.stdout) == (0, "It tells people what this is.\n")


def test_a_server_and_its_test(kitchen):
    port = free_port()
    serve = {"command": f"python3 -u -m http.server {port} --bind 127.0.0.1", "background": True}
    ask = {"command": f"curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{port}/served.sh"}
    wait = {"id": "bg1", "wait": 20, "pattern": "Serving HTTP"}
    steps = [reply(call("bash", serve)), reply(call("bash_output", wait)), reply(call("bash", ask)), reply("200")]
    place = kitchen(*steps)
    done = place.run("sh", "served.sh", str(port), "/served.sh")
    assert (done.returncode, done.stdout) == (0, "200\n"), done.stderr
    results = [message["content"] for message in place.mock.requests[-1].body["messages"] if message["role"] == "tool"]
    assert results[-1] == "200"


def test_watch_a_build(kitchen):
    bash = {"command": "sleep 1.5; echo no rule to make it; exit 2", "background": True}
    place = kitchen(reply(call("bash", bash)), reply("It runs."), reply("There is no rule."))
    done = place.run("python", "watch.py", "make -j8")
    assert done.stdout == (
        "bg1: sleep 1.5; echo no rule to make it; exit 2\nbg1 exited with code 2\nThere is no rule.\n"
    ), done.stderr
    assert "no rule to make it" in json.dumps(place.mock.requests[-1].body)


def test_bot(kitchen):
    place = kitchen(reply("A spindle."), reply("Eine Spindel."), reply("Still a spindle."))
    done = place.run("python", "bot.py", input="general: What is this?\ngeneral: And in German?\n")
    assert done.stdout == "general: A spindle.\ngeneral: Eine Spindel.\n", done.stderr
    again = place.run("python", "bot.py", input="general: And now?\n")
    assert again.stdout == "general: Still a spindle.\n"
    assert "What is this?" in json.dumps(place.mock.requests[-1].body)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is what the job looks at")
@pytest.mark.parametrize("severe", [False, True])
def test_ci_job(kitchen, severe):
    review = {"summary": "One line.", "problems": [{"file": "a", "text": "odd", "severe": severe}]}
    refused = reply(call("bash", {"command": "rm -r src"}), finish="toolUse")
    place = kitchen(refused, reply(call("final_result", review), finish="toolUse"))
    for command in ("git init -q", "git add review.sh", "git -c user.name=a -c user.email=b commit -qm one"):
        subprocess.run(command.split(), cwd=place.path, check=True)
    (place.path / "review.sh").write_text(PROGRAMS["review.sh"] + "# changed\n")
    done = place.run("sh", "review.sh", "HEAD")
    assert (done.returncode, done.stdout) == (int(severe), "One line.\na: odd\n"), done.stderr
    assert "# changed" in json.dumps(place.mock.requests[0].body)


def test_three_readers(kitchen):
    found = ["a fault in a.py:1", "no hole", "no test for a.py"]
    asks = [call("task", {"prompt": f"Look for {what}", "agent": "explore"}) for what in ("faults", "holes", "tests")]
    place = kitchen(reply(*asks), *(reply(one) for one in found), reply("1. a.py:1"))
    done = place.run("sh", "readers.sh", "HEAD")
    assert (done.returncode, done.stdout) == (0, "1. a.py:1\n"), done.stderr
    bodies = [request.body for request in place.mock.requests]
    asked = [json.dumps(body["messages"][1]) for body in bodies[1:4]]
    assert all(any(f"Look for {what}" in one for one in asked) for what in ("faults", "holes", "tests"))
    assert all(one in json.dumps(bodies[4]) for one in found)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.skipif(shutil.which("git") is None, reason="git is what the job looks at")
@pytest.mark.parametrize("recipe", ["review.yml", ".gitlab-ci.yml"])
def test_ci_recipes(kitchen, wheel, recipe):
    """The commands of a recipe, in a clone like that of its host. `pip` only unpacks; `make dist` installs."""
    place = kitchen(reply(call("final_result", {"summary": "One line.", "problems": []}), finish="toolUse"))
    (place.path / "bin/pip").write_text(f"""#!/bin/sh
test "$1 $#" = "install 2" || exit 9
exec "{sys.executable}" -m zipfile -e "$2" "{place.path}/site"
""")
    (place.path / "bin/pip").chmod(0o755)
    (place.path / "bin/spindle").write_text(f"""#!/bin/sh
PYTHONPATH="{place.path}/site" exec "{sys.executable}" -c '
import sys, spindle; from spindle.apps.cli import main
assert spindle.__file__.startswith("{place.path}/site"), spindle.__file__
sys.exit(main())' "$@"
""")
    (place.path / "ci").mkdir()
    shutil.copy(wheel, place.path / "ci")
    (place.path / "review.sh").rename(place.path / "ci/review.sh")
    git = ["git", "-c", "user.name=a", "-c", "user.email=b"]
    for words in (["init", "-q"], ["add", "ci"], ["commit", "-qm", "one"], ["branch", "-f", "main"]):
        subprocess.run([*git, *words], cwd=place.path, check=True)
    subprocess.run([*git, "update-ref", "refs/remotes/origin/main", "HEAD"], cwd=place.path, check=True)
    (place.path / "ci/review.sh").write_text(PROGRAMS["review.sh"] + "# changed\n")
    commands = yaml.safe_load(PROGRAMS[recipe])
    if recipe == "review.yml":
        steps = [step["run"] for step in commands["jobs"]["review"]["steps"] if "run" in step]
    else:
        steps = commands["review"]["script"]
    base = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=place.path, text=True).strip()
    place.env |= {"GITHUB_BASE_REF": "main", "CI_MERGE_REQUEST_DIFF_BASE_SHA": base}
    for step in steps:
        done = place.run("bash", "-e", "-c", step)
        assert done.returncode == 0, done.stderr
    assert done.stdout == "One line.\n"
    assert "# changed" in json.dumps(place.mock.requests[0].body)


@contextmanager
def serving(command: list[Any], place: Kitchen, port: int) -> Iterator[None]:
    server = subprocess.Popen(command, cwd=place.path, env=place.env, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < end and server.poll() is None
                time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_web_service(kitchen):
    place, port = kitchen(reply("Hello ")), free_port()
    with serving([place.path / "bin" / "python", "service.py", str(port)], place, port):
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/ask", json.dumps({"text": "Say hello"}).encode())
        text = urllib.request.urlopen(asked, timeout=30).read().decode()
    assert 'data: {"text": "Hello "}' in text and text.endswith("event: end\ndata: {}\n\n")


# -- clients of other programs ---------------------------------------------------------------------


def test_pi(kitchen):
    done = kitchen(failure(529, "Overloaded"), reply("Good ", "day")).run("python", "pi_client.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Good day\n", "")


def test_xcsh(kitchen):
    place = kitchen(reply(call("clock", {})), reply("It is noon."))
    done = place.run("python", "xcsh_client.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "It is noon.\n", "")
    assert "12:00" in json.dumps(place.mock.requests[-1].body)


def test_agent_cli(kitchen):
    place, port = kitchen(reply("你", "好")), free_port()
    with serving([place.path / "bin" / "agent-cli", "--remote", f"127.0.0.1:{port}"], place, port):
        done = place.run("python", "remote_client.py", f"ws://127.0.0.1:{port}", "你好")
    assert (done.returncode, done.stdout, done.stderr) == (0, "你好\n", "")


def test_session_format(kitchen):
    done = kitchen().run("python", "tree.py")
    assert done.stdout == "['user', 'branchSummary', 'user']\n2 ways from the first message\n", done.stderr


# -- ten jobs in Python ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "steps", "printed"),
    [
        ("ask.py", [reply("A spindle.")], "A spindle.\n"),
        (
            "stream.py",
            [reply("I look. ", call("bash", {"command": "ls"})), reply("Two.")],
            "I look. [bash]\nTwo.\n2 model",
        ),
        ("tools.py", [reply(call("order_status", {"number": "17"})), reply("It is sent.")], "It is sent.\n"),
        ("typed.py", [reply(call("final_result", {"summary": "Good.", "faults": 2}))], "2 Good.\n"),
        ("approve.py", [reply(call("bash", {"command": "rm x"})), reply("No.")], "denied ['No commands here.']\n"),
        (
            "subagent.py",
            [reply(call("task", {"agent": "reader", "prompt": "Read it"})), reply("It says hi."), reply("Hi.")],
            "Hi.\n",
        ),
        ("hooks.py", [reply(call("read", {"path": ".env"})), reply("I may not.")], "denied I may not.\n"),
        ("without_model.py", [], "Written. ['a.txt'] hello\n"),
    ],
)
def test_jobs_in_python(kitchen, program, steps, printed):
    place = kitchen(*steps)
    done = place.run("python", program)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(printed), done
    wanted = {"tools.py": "sent", "hooks.py": "Secrets are not read.", "subagent.py": "It says hi."}
    if program in wanted:
        messages = place.mock.requests[-1].body["messages"]
        assert wanted[program] in [str(item["content"]) for item in messages if item["role"] == "tool"][-1]


def test_limits_in_python(kitchen):
    done = kitchen(reply(call("read", {"path": "x"}))).run("python", "limits.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"no answer: max_cost cannot be kept|Stopped by a limit: max_turns 1", done.stdout), done.stdout


def test_a_conversation_that_another_process_goes_on_with(kitchen):
    place = kitchen(reply("Hello Anna."), reply("Anna."))
    first = place.run("python", "resume.py", "I am Anna.").stdout.split()
    assert first[:2] == ["Hello", "Anna."]
    again = place.run("python", "resume.py", "Who am I?", first[-1])
    assert again.stdout.split() == ["Anna.", first[-1]], again
    assert "I am Anna." in json.dumps(place.mock.requests[-1].body)
    assert place.run("python", "resume.py", "hi", first[-1][:-1] + "x").stdout.startswith("No session found matching")
