"""The smallest clients people write, after the examples of the protocol's documents: no library, no ids, no options."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, dropped, failure, gate, reply

PYTHON = """
import json, subprocess

agent = subprocess.Popen(
    ["pi", "--mode", "rpc", "--no-session"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
for question in ("Hello!", "And again!"):
    agent.stdin.write(json.dumps({"type": "prompt", "message": question}) + "\\n")
    agent.stdin.flush()
    for line in agent.stdout:
        event = json.loads(line)
        if event["type"] == "message_update" and event["assistantMessageEvent"]["type"] == "text_delta":
            print(event["assistantMessageEvent"]["delta"], end="", flush=True)
        if event["type"] == "agent_end":
            print()
            break
"""

NODE = """
const { spawn } = require("child_process");
const agent = spawn("pi", ["--mode", "rpc", "--no-session"]);
const send = (command) => agent.stdin.write(JSON.stringify(command) + "\\n");

require("readline").createInterface({ input: agent.stdout }).on("line", (line) => {
  const event = JSON.parse(line);
  if (event.type === "message_update" && event.assistantMessageEvent.type === "text_delta") {
    process.stdout.write(event.assistantMessageEvent.delta);
  }
  if (event.type === "agent_end") {
    console.log(event.messages.at(-1).stopReason);
    agent.stdin.end();
  }
});
agent.on("exit", (code) => console.log("exit", code));
send({ type: "prompt", message: "Hello" });
process.on("SIGINT", () => send({ type: "abort" }));
"""


class World:
    """A model, an agent directory that names it as the default, and programs called `pi` and `xcsh` that are us."""

    def __init__(self, root: Path, mock: MockModel) -> None:
        agent_dir, programs = root / "agent", root / "bin"
        write_models(agent_dir, mock.openai_url)
        settings = {"retry": {"baseDelayMs": 20}, "compaction": {"keepRecentTokens": 10, "reserveTokens": 100}}
        settings |= {"defaultProvider": "mock", "defaultModel": "m1"}
        (agent_dir / "settings.json").write_text(json.dumps(settings))
        programs.mkdir()
        program = programs / "pi"
        program.write_text(f"#!{sys.executable}\nfrom spindle.apps.cli import main\nraise SystemExit(main())\n")
        program.chmod(0o755)
        (programs / "xcsh").symlink_to(program)
        self.mock = mock
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        self.options: dict[str, Any] = {"env": agent_environment(agent_dir, PATH=path), "cwd": root, "text": True}


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    with MockModel(request.param) as mock:
        yield World(tmp_path, mock)


LONG = "Good day " * 100
OVERFLOW = failure(400, "prompt is too long: 213462 tokens > 200000 maximum")


@pytest.mark.parametrize(
    ("world", "first"),
    [
        ([reply("Good ", "day"), reply("Once more")], "Good day"),
        ([failure(529, "Overloaded"), failure(429), reply("Good ", "day"), dropped(), reply("Once more")], "Good day"),
        ([reply(LONG), OVERFLOW, reply("summary"), reply("Once more")], LONG),
    ],
    indirect=["world"],
    ids=["well", "overloaded", "overflow"],
)
@pytest.mark.parametrize("name", ["pi", "xcsh", "xcsh --dialect xcsh", "pi --dialect pi-0.74"])
def test_in_python(world: World, name: str, first: str) -> None:
    """A run that is tried again is one run: the clients stop at its end."""
    program = PYTHON.replace('"pi"', ", ".join(map(json.dumps, name.split())))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, **world.options)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{first}\nOnce more\n", "")


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
@pytest.mark.parametrize("world", [[failure(529, "Overloaded"), reply("Good", " day")]], indirect=True)
def test_in_node_after_an_error(world: World) -> None:
    done = subprocess.run(["node", "-e", NODE], capture_output=True, timeout=60, **world.options)
    assert done.stdout == "Good daystop\nexit 0\n"


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
@pytest.mark.parametrize("world", [[reply("Good", gate("never"), " day")]], indirect=True)
def test_in_node_with_ctrl_c(world: World) -> None:
    with subprocess.Popen(["node", "-e", NODE], stdout=subprocess.PIPE, **world.options) as client:
        assert client.stdout is not None
        assert client.stdout.read(4) == "Good"
        client.send_signal(signal.SIGINT)
        assert client.stdout.read() == "aborted\nexit 0\n"


ON_A_TERMINAL = """
import json, signal, subprocess
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
agent = subprocess.Popen(["pi", "--mode", "rpc", "--no-session"], **pipes)

def send(**frame):
    print(json.dumps(frame), file=agent.stdin, flush=True)

signal.signal(signal.SIGINT, lambda *_: send(type="abort"))
send(type="prompt", message="Hello!")
for line in agent.stdout:
    event = json.loads(line)
    if event["type"] == "message_update" and event["assistantMessageEvent"]["type"] == "text_delta":
        print(event["assistantMessageEvent"]["delta"], flush=True)
    if event["type"] == "agent_end":
        print(event["messages"][-1]["stopReason"], flush=True)
        break
agent.stdin.close()
print("exit", agent.wait())
"""


@pytest.mark.parametrize("world", [[reply("Good", gate("never"), " day")]], indirect=True)
def test_ctrl_c_on_a_terminal_goes_to_the_client(world: World) -> None:
    """The terminal sends the signal to both. The client decides what it means."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(world.options["cwd"])
        os.execve(sys.executable, [sys.executable, "-c", ON_A_TERMINAL], world.options["env"])
    seen = b""
    while b"exit 0" not in seen:
        try:
            piece = os.read(terminal, 1024)
        except OSError:  # how Linux tells the end of a terminal
            break
        seen += piece
        if piece.startswith(b"Good"):
            os.write(terminal, b"\x03")
    os.waitpid(child, 0)
    os.close(terminal)
    assert seen.replace(b"^C", b"").split() == [b"Good", b"aborted", b"exit", b"0"]
