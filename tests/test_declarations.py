"""A limit, a permission mode and a tool are declared once each, and everything else is made of the declarations.

A copy of the package gets a made-up one of each, as a contributor would add them; then its own processes are asked.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from spindle.shapes.builtin_tools import BUILTIN_TOOLS, TOOLS, default_tools
from spindle.shapes.permission_modes import PERMISSION_MODES, PermissionMode
from spindle.shapes.run_limits import RUN_LIMITS, LimitArguments
from spindle.tools.base import builtin_tools

from .support.agent_process import AgentProcess, agent_environment
from .support.mock_model import call, reply
from .wires.acp.editor_process import EditorProcess

ROOT = Path(__file__).parents[1]
HARBOR = os.environ.get("SPINDLE_TEST_HARBOR", "")
DECLARED = {
    "shapes/run_limits.py": {
        "    max_turns: Annotated[": (
            "    max_tool_calls: Annotated[\n"
            '        int | None, Words("N", "End a run after so many tool calls", "Calls of tools")\n'
            "    ] = None\n"
        ),
        "    max_turns: int | None\n": "    max_tool_calls: int | None\n",
    },
    "agent/run/meter.py": {'            "max_turns": ': '            "max_tool_calls": self.tool_calls,\n'},
    "shapes/permission_modes.py": {
        '"dontAsk"]': '"careful", ',
        '    "dontAsk": ModeWords': '    "careful": ModeWords("Careful", "Everything is looked at twice"),\n',
    },
    "shapes/builtin_tools.py": {'    "ls": ': '    "tree": BuiltinTool("search", "reads", default=True),\n'},
}
"""Lines that are added, each before the text that is its key."""
TREE = """
from spindle.tools.base import Tool, arguments, text_result

async def _execute(call_id, args, ctx):
    return text_result("a tree")

TOOL = Tool("tree", "Show a tree of files.", arguments(path="Folder"), _execute, snippet="Show trees")
"""
LOOK = {"calls": [{"name": "tree", "arguments": {"path": "."}}]}
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with one more limit, mode and tool. Compiled modules are copied as well, and stay valid."""
    root = tmp_path_factory.mktemp("extended")
    for folder in ("src", "scripts", "docs"):
        shutil.copytree(ROOT / folder, root / folder)
    package = root / "src/spindle"
    for name, added in DECLARED.items():
        text = (package / name).read_text()
        for place, lines in added.items():
            assert text.count(place) == 1, (name, place)
            text = text.replace(place, lines + place)
        (package / name).write_text(text)
    (package / "tools/tree.py").write_text(TREE)
    return root


@pytest.fixture
def env(extended: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(extended / "src")}


@pytest.fixture
def run(env: dict[str, str], tmp_path: Path) -> Run:
    """Run Python there; the model of the script `look.json` calls `tree` twice."""
    (tmp_path / "look.json").write_text(json.dumps([LOOK, LOOK, "Done."]))

    def run(*arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        environment = agent_environment(tmp_path / "agent", **env)
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return done

    return run


# -- the two forms that type checkers need ----------------------------------------------------------


def test_keyword_arguments_are_the_declared_limits() -> None:
    assert get_type_hints(LimitArguments) == {limit.name: limit.type | None for limit in RUN_LIMITS}


def test_the_type_of_a_mode_has_the_declared_modes() -> None:
    assert get_args(PermissionMode) == tuple(PERMISSION_MODES)


def test_the_tools_are_the_declared_tools() -> None:
    assert [tool.name for tool in builtin_tools().values()] == list(BUILTIN_TOOLS)
    assert set(default_tools("print")) <= set(TOOLS)


# -- the made-up ones -------------------------------------------------------------------------------


def test_the_command_line_has_them(run: Run) -> None:
    text = run("-m", "spindle", "--help").stdout
    assert "--max-tool-calls N" in text and "End a run after so many tool calls" in text
    assert "careful, dontAsk" in text
    look = ("-m", "spindle", "-p", "--no-session", "--model", "scripted/look.json", "--output", "json", "go")
    assert json.loads(run(*look, "--max-tool-calls", "1", code=4).stdout)["stopReason"] == "maxToolCalls"
    done = json.loads(run(*look, "--permission-mode", "careful").stdout)
    assert (done["text"], done["toolCalls"], done["denials"]) == ("Done.", 2, [])
    assert "--max-tool-calls must be a whole number above 0" in run(*look, "--max-tool-calls", "x", code=2).stderr
    assert "careful" in run(*look, "--permission-mode", "x", code=2).stderr


def test_the_wire_has_them(env: dict[str, str], run: Run) -> None:
    fields = json.loads(run("-m", "spindle", "schema").stdout)["$defs"]["PromptCommand"]["properties"]
    assert "maxToolCalls" in fields
    code = "import json; from spindle.wires.http.openapi import openapi; print(json.dumps(openapi()))"
    over_http = json.loads(run("-c", code).stdout)["components"]["schemas"]["prompt"]["properties"]
    assert over_http.keys() == fields.keys() - {"id", "type", "sessionId"}
    steps = [reply(call("tree", {"path": "."})), reply(call("tree", {"path": "."}))]
    with AgentProcess(steps, env=env) as agent:
        agent.call("set_permissions", mode="careful")
        assert agent.call("get_state")["data"]["permissionMode"] == "careful"
        agent.call("prompt", message="go", maxToolCalls=1)
        assert agent.wait("agent_settled")["stopReason"] == "maxToolCalls"
        offered = [tool["function"]["name"] for tool in agent.mock.requests[0].body["tools"]]
        assert offered == ["read", "bash", "edit", "write", "tree"]
        assert "- tree: Show trees" in str(agent.mock.requests[0].body["messages"][0])


def test_permissions_know_the_tool(env: dict[str, str]) -> None:
    def decided(path: str) -> str:
        answer = agent.call("get_permissions", tool="tree", arguments={"path": path})
        return str(answer["data"]["decision"]["behavior"])

    with AgentProcess([], env=env) as agent:
        for mode in ("default", "plan"):
            agent.call("set_permissions", mode=mode)
            assert decided("src") == "allow"
        agent.call("set_permissions", mode="default", deny=["Read(secret/**)"], allow=["Read(//usr/share/**)"])
        assert [decided(path) for path in ("/etc", "secret/a", "/usr/share/doc")] == ["ask", "deny", "allow"]


def test_editors_have_them(env: dict[str, str]) -> None:
    steps = [reply(call("tree", {"path": "src"}))]
    with EditorProcess(steps, env=env, args=["--max-tool-calls", "1"]) as editor:
        made = editor.ok("session/new", cwd=str(editor.cwd), mcpServers=[])
        careful = {"name": "Careful", "description": "Everything is looked at twice"}
        assert {"id": "careful", **careful} in made["modes"]["availableModes"]
        assert {"value": "careful", **careful} in made["configOptions"][0]["options"]
        session = made["sessionId"]
        editor.ok("session/set_mode", sessionId=session, modeId="careful")
        assert editor.stop_reason(editor.say(session, "go")) == "max_turn_requests"
        (begun,) = [update for update in editor.updates(session) if update["sessionUpdate"] == "tool_call"]
        assert (begun["name"], begun["kind"]) == ("tree", "search")


PROGRAM = """
import asyncio, json, sys
from typing import get_args, get_type_hints
from spindle import Agent
from spindle.client import RpcClient
from spindle.inprocess import CreateOptions

async def main():
    command = [sys.executable, "-m", "spindle", "--mode", "rpc", "--no-session", "--model", "scripted/look.json"]
    options = dict(model="scripted/look.json", persist=False)
    found = {"options": "max_tool_calls" in get_type_hints(CreateOptions)}
    async with await Agent.create(**options, max_tool_calls=1) as agent:
        found["agent"] = (await agent.run("go")).stop_reason
    async with await Agent.create(**options) as agent:
        found["run"] = (await agent.run("go", max_tool_calls=1)).stop_reason
    async with RpcClient(command) as client:
        found["client"] = (await client.run("go", max_tool_calls=1).result()).stop_reason
        await client.set_permissions(mode="careful")
        found["mode"] = (await client.get_permissions())["mode"]
    print(json.dumps(found))

asyncio.run(main())
"""


def test_programs_have_them(run: Run) -> None:
    found = json.loads(run("-c", PROGRAM).stdout)
    assert found.pop("options") is True
    assert found == {**dict.fromkeys(("agent", "run", "client"), "maxToolCalls"), "mode": "careful"}


def test_a_batch_has_them(run: Run, tmp_path: Path) -> None:
    tasks = [{"id": "own", "prompt": "go", "tools": ["tree"], "max_tool_calls": 1}, {"id": "plan", "prompt": "go"}]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    (tmp_path / "look.json").write_text(json.dumps([LOOK]))
    batch = ("-m", "spindle", "batch", "tasks.jsonl", "-o", "out", "--model", f"scripted/{tmp_path}/look.json")
    told = [json.loads(line) for line in run(*batch, "--max-tool-calls", "2", "--json", code=1).stdout.splitlines()]
    assert {line["id"] for line in told if "waits for its turn" in (line.get("note") or "")} == {"plan"}
    lines = map(json.loads, (tmp_path / "out/results.jsonl").read_text().splitlines())
    ended = {line["id"]: (line["status"], line["stopReason"], line["toolCalls"]) for line in lines}
    assert ended == {"own": ("budget", "maxToolCalls", 1), "plan": ("budget", "maxToolCalls", 2)}


@pytest.mark.skipif(not HARBOR, reason="SPINDLE_TEST_HARBOR names no Python with Harbor")
def test_harbor_has_the_limit(env: dict[str, str]) -> None:
    code = "from spindle.harbor import SpindleOptions; print(SpindleOptions(max_tool_calls=3).max_tool_calls)"
    done = subprocess.run([HARBOR, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_the_manual_and_the_pages_are_made_of_them(extended: Path, run: Run) -> None:
    manual = str(extended / "scripts/manual.py")
    stale = {line.split()[0] for line in run(manual, "--check", code=1).stdout.splitlines()}
    run(manual)
    scripts = {f"src/spindle/web/{name}.js" for name in ("shared/tool-kinds", "chat/permission-words")}
    assert stale == {"docs/cli.md", "docs/permissions.md", "docs/protocol.md", *scripts}
    command_line = (extended / "docs/cli.md").read_text()
    assert "| `--max-tool-calls` | `N` | End a run after so many tool calls |" in command_line
    assert "| `--max-tool-calls` | `maxToolCalls` | `max_tool_calls` | Calls of tools |" in command_line
    assert "| `tree` | Show trees | yes | yes | `Read` |" in command_line
    assert "| *`maxToolCalls`* | integer or null |" in (extended / "docs/protocol.md").read_text()
    assert "| `careful` | Everything is looked at twice |" in (extended / "docs/permissions.md").read_text()
    assert "  tree: 'search',\n" in (extended / "src/spindle/web/shared/tool-kinds.js").read_text()
