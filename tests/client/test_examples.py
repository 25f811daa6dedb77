"""The examples run as they stand."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import spindle
from spindle.client import RpcClient
from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply
from tests.wires.server.server import ServerProcess

from .test_client import FAKE

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "client"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("stream.py", "Hello\n"),
        ("one_question.py", "Hello\n"),
        ("host_tool.py", "MiB are free\n"),
        ("dialogs.py", 'the agent says: May I?\n{"confirmed": true}\n'),
    ],
)
def test_client_examples(name: str, shown: str) -> None:
    done = subprocess.run([sys.executable, str(EXAMPLES / name), *FAKE], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(shown)


def test_the_editor_example_on_the_real_agent(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(
        """[
        {"calls": [{"name": "read_buffer", "arguments": {"name": "notes.md"}}]},
        {"calls": [{"name": "replace_in_buffer", "arguments": {"name": "greet.py", "old": "Helo", "new": "Hello"}}]},
        "Fixed."]"""
    )
    agent = [sys.executable, "-m", "spindle", "--mode", "rpc", "--no-session", "--model", f"scripted/{script}"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "editor_buffers.py"), *agent],
        capture_output=True,
        text=True,
        timeout=50,
        env=agent_environment(tmp_path / "agent"),
    )
    assert "[replace_in_buffer]" in done.stdout and 'print("Hello, " + name)' in done.stdout, done.stderr


def python_of(page: str, word: str) -> str:
    """Return the Python code on a page that uses this word."""
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S) if word in code]
    return str(code)


def run_page(code: str, base: Path, mock: MockModel) -> str:
    """Run code from a page as a program, with `spindle` on the path and a scripted model; return what it printed."""
    write_models(base / "agent", mock.openai_url)
    (base / "agent" / "settings.json").write_text('{"defaultProvider": "mock", "defaultModel": "m1"}')
    (base / "page.py").write_text(code)
    command = base / "spindle"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m spindle "$@"\n')
    command.chmod(0o755)
    env = agent_environment(base / "agent")
    env["PATH"] = f"{base}{os.pathsep}{env['PATH']}"
    program = [sys.executable, str(base / "page.py")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=50, env=env, cwd=base)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_client_of_the_readme_lends_its_tool(tmp_path: Path) -> None:
    with MockModel([reply(call("open_files", {})), reply("Two ", "files.")]) as mock:
        assert run_page(python_of("README.md", "RpcClient("), tmp_path, mock) == "Two files."
        assert mock.requests[1].body["messages"][-1]["content"] == "main.py (modified)\nREADME.md"


@pytest.mark.parametrize(
    ("page", "word", "shown"),
    [
        (
            "README.md",
            "async with Agent.create()",
            "AgentSettled(aborted=False, stop_reason='end')\nok\n",
        ),
        ("docs/python.md", 'tools=["read", "grep"], persist', "AgentSettled(aborted=False, stop_reason='end')\nok\n"),
        ("docs/python.md", "spindle.run(", "ok\nok5 tokens\n"),
        ("docs/python.md", "agent = RpcClient(", "okok\n"),
        ("docs/python.md", "SyncRpcClient(", "'total': 15}\n"),
    ],
)
def test_the_code_of_the_pages_runs(page: str, word: str, shown: str, tmp_path: Path) -> None:
    with MockModel([reply("o", "k")]) as mock:
        assert run_page(python_of(page, word), tmp_path, mock).endswith(shown)


@pytest.mark.parametrize("word", ['model="qwen3"', "Model("])
def test_the_code_for_a_model_of_ones_own_runs(word: str, tmp_path: Path) -> None:
    with MockModel([reply("A ", "model.")]) as mock:
        code = python_of("docs/python.md", word).replace("http://127.0.0.1:8000/v1", mock.openai_url)
        assert "A model." in run_page(code, tmp_path, mock)
        assert mock.requests[0].body["model"] == "qwen3"


def test_the_example_of_a_model_of_ones_own(tmp_path: Path) -> None:
    example, env = ROOT / "examples" / "python" / "own_model.py", agent_environment(tmp_path / "agent")
    with MockModel([reply("A ", "model.")]) as mock:
        for words, shown in (([], "Polly wants a cracker. \nok"), ([mock.openai_url, "qwen3"], "A model.\nok")):
            command = [sys.executable, str(example), *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=50, env=env, cwd=tmp_path)
            assert (done.stdout[: len(shown)], done.stderr) == (shown, "")


def test_the_code_for_structured_answers_runs(tmp_path: Path) -> None:
    steps = [
        reply(call("count_bugs", {"label": "crash"})),
        reply(call("final_result", {"title": "Crashes", "open_bugs": 3})),
        reply("You are ", "welcome."),
    ]
    with MockModel(steps) as mock:
        shown = run_page(python_of("docs/python.md", "schema=Report"), tmp_path, mock)
        assert shown == "Crashes 3\nok 1 You are welcome.\n"
        assert mock.requests[1].body["messages"][-1]["content"] == '{"open":3,"closed":12}'


def test_the_page_names_everything_of_the_agent() -> None:
    words = set(re.findall(r"\w+", (ROOT / "docs" / "python.md").read_text()))
    names = {*spindle.__all__, *(name for name in vars(spindle.Agent) if not name.startswith("_"))} - {"__version__"}
    names |= {*inspect.signature(spindle.Agent.create).parameters, *spindle.RunResult.__struct_fields__}
    assert names <= words


def test_the_code_for_a_server_runs(tmp_path: Path) -> None:
    with ServerProcess([reply("Two ", "files.")]) as server:
        code = python_of("docs/python.md", 'RpcClient("ws://').replace("127.0.0.1:3838", server.address)
        assert run_page(code, tmp_path, server.mock) == "Two files.\n2 messages are still there\n"


def test_the_page_names_every_exception_and_option_of_the_client() -> None:
    words = set(re.findall(r"\w+", (ROOT / "docs" / "python.md").read_text()))
    failures = {"CommandFailed", "RequestTimeout", "AgentCrashed", "ClientClosed", "RpcError"}
    failures |= {"ConnectionFailed", "ConnectionLost"}
    options = set(inspect.signature(RpcClient).parameters) - {"command", "cwd", "env"}
    assert failures | options <= words
