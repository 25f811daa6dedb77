"""Other people's clients drive us as they drive pi or oh-my-pi. Nothing in them is changed.

They run when they are installed: `SPINDLE_TEST_CLIENTS` names a Python interpreter with the PyPI clients,
`SPINDLE_TEST_PI` the directory of the npm package `@earendil-works/pi-coding-agent` (0.74.2), `SPINDLE_TEST_PI_15` a
`node_modules` with that of 1.5.0 and the packages of its types, `SPINDLE_TEST_OMP` that of `@oh-my-pi/pi-coding-agent`
(18.3.4) in a `node_modules` that also holds `bun`. `.ci/run` sets them.
`SPINDLE_TEST_XCSH` names the `src` directory of `xcsh_rpc`, which is not published anywhere to install it from.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, call, failure, reply

pytestmark = pytest.mark.timeout(180)  # interpreters of others start slowly on a machine with other work

CLIENTS = Path(__file__).parent / "clients"
PYTHON = os.environ.get("SPINDLE_TEST_CLIENTS")
PI = os.environ.get("SPINDLE_TEST_PI")
PI_15 = os.environ.get("SPINDLE_TEST_PI_15")
MODULES = os.environ.get("SPINDLE_TEST_NODE_MODULES")
OMP = os.environ.get("SPINDLE_TEST_OMP")
XCSH = os.environ.get("SPINDLE_TEST_XCSH")
needs_clients = pytest.mark.skipif(not PYTHON, reason="SPINDLE_TEST_CLIENTS is not set")
needs_pi = pytest.mark.skipif(
    not PI or not shutil.which("node"), reason="SPINDLE_TEST_PI is not set or node is missing"
)
needs_pi_15 = pytest.mark.skipif(
    not (PI_15 and MODULES and shutil.which("node")), reason="SPINDLE_TEST_PI_15 is not set or node is missing"
)
needs_omp = pytest.mark.skipif(not OMP, reason="SPINDLE_TEST_OMP is not set")
needs_xcsh = pytest.mark.skipif(not XCSH, reason="SPINDLE_TEST_XCSH is not set")

WITH_A_TOOL = [
    reply("Let me look. ", call("bash", {"command": "echo tool output"})),
    reply("first ", "answer"),
    reply("second"),
    reply("more"),
]
WITH_HOST_TOOLS = [
    reply(*(call("lend", {"n": n}, id=f"c{n}") for n in (1, 2, "many"))),
    reply("first"),
    reply("second"),
    reply(call("lend", {"n": 3}, id="c3")),
    reply("third"),
]


@pytest.fixture
def world(tmp_path, request):
    """An agent directory with a scripted model, a working directory, and a program called `pi` that is us."""
    with MockModel(list(getattr(request, "param", WITH_A_TOOL))) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        (tmp_path / "work").mkdir()
        program = tmp_path / "pi"
        program.write_text(f"#!{sys.executable}\nfrom spindle.apps.cli import main\nraise SystemExit(main())\n")
        program.chmod(0o755)
        shim = tmp_path / "shim.mjs"
        shim.write_text(
            'import { spawn } from "node:child_process";\n'
            f"const child = spawn({json.dumps(str(program))}, process.argv.slice(2), {{ stdio: 'inherit' }});\n"
            'child.on("exit", (code) => process.exit(code ?? 1));\n'
            'process.on("SIGTERM", () => child.kill());\n'
        )
        env = agent_environment(tmp_path / "agent", PI=str(program), SHIM=str(shim), WORK=str(tmp_path / "work"))
        yield env


def drive(command: list[str], env: dict[str, str]) -> dict:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@needs_clients
def test_pi_agent_python_sdk(world):
    seen = drive([str(PYTHON), str(CLIENTS / "pi_agent_sdk.py")], world)
    assert seen["first"].endswith("first answer") and seen["second"] == "second"
    assert seen["version"] == "1.5.0" and seen["bash"] == "from bash\n" and seen["fork"] == "again"
    assert seen["models"] == 2 and "high" in seen["levels"] and seen["entries"] and seen["tree"]
    assert seen["cleared"] == []


@needs_clients
def test_pi_py_sdk(world):
    seen = drive([str(PYTHON), str(CLIENTS / "pi_py.py")], world)
    assert seen["deltas"] == "Let me look. first answer" and seen["last"] == "second"
    assert seen["messages"] == ["user", "assistant", "toolResult", "assistant", "user", "assistant"]
    assert "tool output\n" in seen["texts"] and seen["bash"] == "from bash\n" and seen["stats"] == 3


@needs_clients
def test_picable(world):
    seen = drive([str(PYTHON), str(CLIENTS / "picable_client.py")], world)
    assert seen["last"] == "second" and seen["fork"] == "again" and seen["bash"] == "from bash\n"
    assert "agent_settled" not in seen["kinds"] and "tool_execution_end" in seen["kinds"]


@needs_pi
def test_pis_own_client(world):
    seen = drive(["node", str(CLIENTS / "pi_rpc_client.mjs")], {**world, "PI_PACKAGE": str(PI)})
    assert seen["last"] == "second" and seen["fork"] == "again" and seen["cycled"] == "m2" and seen["cloned"] is False
    assert seen["messages"] == ["user", "assistant", "toolResult", "assistant", "user", "assistant"]
    assert {"agent_start", "tool_execution_end", "agent_end"} <= set(seen["events"])


@needs_pi_15
@pytest.mark.parametrize("dialect", ["spindle", "pi-1.5"])
def test_every_method_of_the_client_of_pi_15(world, tmp_path, dialect):
    """In its dialect every frame is what its types say, with no key more."""
    place = Path(world["SPINDLE_DIR"])
    (place / "prompts").mkdir()
    (place / "prompts" / "fix.md").write_text("fix it")
    (place / "settings.json").write_text(json.dumps({"compaction": {"keepRecentTokens": 1}}))
    frames = tmp_path / "frames"
    recorder = tmp_path / "recorder.mjs"
    recorder.write_text(
        'import { spawn } from "node:child_process";\nimport { appendFileSync } from "node:fs";\n'
        'const child = spawn(process.env.PI, process.argv.slice(2), { stdio: ["inherit", "pipe", "inherit"] });\n'
        f'child.stdout.on("data", (data) => {{ appendFileSync({json.dumps(str(frames))}, data);'
        " process.stdout.write(data); });\n"
        'child.on("exit", (code) => process.exit(code ?? 1));\nprocess.on("SIGTERM", () => child.kill());\n'
    )
    package = f"{PI_15}/@earendil-works/pi-coding-agent"
    env = {**world, "SPINDLE_DIALECT": dialect, "SHIM": str(recorder), "PI_PACKAGE": package}
    seen = drive(["node", str(CLIENTS / "pi_15_rpc_client.mjs")], env)
    assert (seen["text"], seen["last"], seen["bash"]) == ("Let me look. first answer", "second", "from bash\n")
    assert seen["messages"] == ["user", "assistant", "toolResult", "assistant", "user", "assistant"]
    assert (seen["entries"], seen["since"], seen["tree"], seen["stats"]) == (6, 0, True, 3)
    assert (seen["models"], seen["set"], seen["cycled"], seen["level"]) == (["m1", "m2"], "m2", "m1", "high")
    assert (seen["wrong"], seen["cloned"], seen["fresh"]) == (
        "Model not found: mock/nobody",
        "accepted",
        [False, False],
    )
    assert (seen["queue"], seen["disposition"]) == ({"steering": [], "followUp": []}, "started")
    assert seen["forks"] >= 4 and seen["fork"] == "use a tool" and "summary" in seen["compacted"]
    assert {"agent_settled", "queue_update", "compaction_end", "bash_execution_update"} <= set(seen["told"])
    if dialect == "pi-1.5":
        assert seen["keys"] == ["assistantMessageEvent", "type", "usage"] and "interruptMode" not in seen["state"]
        assert not typed(tmp_path, [json.loads(line) for line in frames.read_text().splitlines()])


def typed(place: Path, frames: list[dict]) -> str:
    """Let the TypeScript compiler compare frames with pi's types, and return what it says."""
    kinds = {json.dumps(kind(frame), sort_keys=True): frame for frame in frames}
    where = "./node_modules/@earendil-works/pi-coding-agent/dist/modes"
    lines = [
        f'import type {{ JsonAgentSessionEvent }} from "{where}/json-event.js";',
        f'import type {{ RpcResponse, RpcExtensionUIRequest }} from "{where}/rpc/rpc-types.js";',
        "type Frame = JsonAgentSessionEvent | RpcResponse | RpcExtensionUIRequest;",
        # That the types are read at all: this one is wrong.
        '// @ts-expect-error\nexport const wrong: Frame = { type: "agent_start", more: 1 };',
        *(f"export const f{n}: Frame = {json.dumps(frame)};" for n, frame in enumerate(kinds.values())),
    ]
    (place / "node_modules").symlink_to(str(PI_15))
    (place / "frames.ts").write_text("\n".join(lines))
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--preserveSymlinks"]
    tsc = [str(Path(str(MODULES)) / "typescript" / "bin" / "tsc"), *options, "frames.ts"]
    return subprocess.run(["node", *tsc], cwd=place, capture_output=True, text=True, timeout=100).stdout


def kind(value: object) -> object:
    """Return the names of all keys, and the values of those that say which type it is."""
    if isinstance(value, dict):
        return {k: v if k in ("type", "command", "role", "method") else kind(v) for k, v in value.items()}
    return (
        sorted({json.dumps(kind(v), sort_keys=True) for v in value})
        if isinstance(value, list)
        else type(value).__name__
    )


def check_host_tools(seen: dict) -> None:
    (one, two, many) = seen["results"]
    assert one == ["c1", False, "lent 1"] and two == ["c2", True, "out of paper"]
    assert many[:2] == ["cmany", True] and "n" in many[2]  # refused before the host was asked
    assert "tool_execution_update" in seen["events"] and seen["mode"] == "immediate"
    assert seen["last"] == "second" and seen["after"] == "third" and seen["bash"] == "from bash\n"
    answered = ["user", "assistant", *["toolResult"] * 3, "assistant", "user", "assistant"]
    aborted = ["user", "assistant", "toolResult", "assistant"]
    assert [role for role in seen["messages"] if role != "custom"] == [*answered, *aborted, "user", "assistant"]
    assert seen["branch"] == "again" and seen["tools"] == []


WITH_MORE = [*WITH_HOST_TOOLS, reply("quiet"), reply("x" * 1_500_000), failure(400, "no such thing")]


@needs_omp
@pytest.mark.parametrize("world", [WITH_MORE], indirect=True, ids=[""])
def test_oh_my_pis_own_client(world):
    skill = Path(world["SPINDLE_DIR"]) / "prompts" / "fix.md"
    skill.parent.mkdir()
    skill.write_text("fix it")
    bun = Path(str(OMP)).parents[1] / ".bin"
    env = {**world, "OMP_PACKAGE": str(OMP), "PATH": f"{bun}{os.pathsep}{world['PATH']}"}
    seen = drive([str(bun / "bun"), str(CLIENTS / "omp_rpc_client.ts")], env)
    check_host_tools(seen)
    done, stopped = [True, "completed", True], [True, "aborted", True]
    assert (seen["statuses"], seen["settled"]) == ([done, done, stopped, done], 4)
    fast, opened, limit = seen["refused"]
    assert "set_fast_mode (a command of oh-my-pi" in fast and "sessionDir" in opened and "limit" in limit
    assert seen["page"] == [3, len(seen["messages"]), "string"] and ["fix", "file"] in seen["commands"]
    assert (seen["filter"], seen["filtered"]) == (["agent_end"], ["agent_end"])
    assert seen["long"] == 1_500_000  # in chunks
    failed = seen["failed"]
    assert (failed["status"], failed["error"]["retryable"], failed["error"]["model"]) == ("error", False, "m1")
    assert failed["error"]["httpStatus"] == 400
    assert seen["prompt"] == 1  # a list of parts
    assert seen["level"] in ("progress", None) and seen["subagents"] == 0
    assert ["openrouter", False] in seen["logins"]
    assert "Unknown subagent" in seen["unknown"] and "There is no provider nobody" in seen["login"]


WITH_A_TASK = [
    reply(call("task", {"prompt": "Look", "agent": "explore"})),
    reply("looked", match="^Look$"),
    reply("done"),
]


@needs_omp
@pytest.mark.parametrize("world", [WITH_A_TASK], indirect=True, ids=[""])
def test_oh_my_pis_own_client_follows_subagents(world):
    place = Path(world["SPINDLE_DIR"])
    (place / "settings.json").write_text(json.dumps({"compaction": {"keepRecentTokens": 1}}))
    (place / "prompts").mkdir()
    (place / "prompts" / "fix.md").write_text("fix it")
    bun = Path(str(OMP)).parents[1] / ".bin"
    env = {**world, "OMP_PACKAGE": str(OMP), "PATH": f"{bun}{os.pathsep}{world['PATH']}"}
    seen = drive([str(bun / "bun"), str(CLIENTS / "omp_subagents.ts")], env)
    assert (seen["level"], seen["statuses"]) == ("events", ["started", "completed"])
    assert seen["read"] == [["user", "assistant"], 0, False] and seen["agent"] == ["explore", "bundled"]
    assert seen["progress"] == 1 and {"message_update", "agent_end"} <= set(seen["events"])
    assert (seen["commands"], seen["cycled"], seen["handoff"]) == (1, "medium", {})
    assert seen["compact"] == ["Already compacted", "refused"] and seen["page"] and seen["stats"] == 1
    assert (seen["set"], seen["fresh"], seen["last"]) == (["m2", "m1"], False, "done")


@needs_xcsh
@pytest.mark.parametrize("world", [WITH_HOST_TOOLS], indirect=True, ids=[""])
def test_xcsh_rpc(world):
    seen = drive([sys.executable, str(CLIENTS / "xcsh_client.py")], {**world, "PYTHONPATH": str(XCSH)})
    check_host_tools(seen)
    assert seen["texts"] == [None, "first"] and seen["kept"]
    assert seen["todos"] == [["task-1", "look", "pending"], ["task-2", "act", "pending"]]
