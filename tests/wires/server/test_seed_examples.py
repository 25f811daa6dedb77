"""The clients of the protocol's own document, as their authors wrote them, with the word `stream` in its place.

Of the quick start two slips are mended that no Python would take: a default before a required parameter, and `false`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mock_model import Step, dropped, failure, reply

from .server import ServerProcess

NODE_MODULES = os.environ.get("SPINDLE_TEST_NODE_MODULES")

PYTHON_QUICK_START = """
import asyncio
import websockets
import json

async def send_request(uri, request_data):
    async with websockets.connect(uri) as websocket:
        request_json = json.dumps(request_data)
        await websocket.send(request_json)
        response_data = await websocket.recv()
        return json.loads(response_data)

request = {
    "request_id": "test_001",
    "input": {
        "Text": "hi"
    },
    "stream": False,
    "use_tools": True
}
response = asyncio.run(send_request('ws://127.0.0.1:8080', request))
print(response)
"""

PYTHON_CLIENT = """
import asyncio
import websockets
import json

class AgentCLIClient:
    def __init__(self, uri='ws://127.0.0.1:8080'):
        self.uri = uri
        self.websocket = None

    async def connect(self):
        self.websocket = await websockets.connect(self.uri)

    async def send_request(self, request_data):
        if not self.websocket:
            await self.connect()

        request_json = json.dumps(request_data)
        await self.websocket.send(request_json)
        response_data = await self.websocket.recv()
        return json.loads(response_data)

    async def close(self):
        if self.websocket:
            await self.websocket.close()
            self.websocket = None

async def main():
    client = AgentCLIClient('ws://127.0.0.1:8080')
    try:
        response = await client.send_request({
            "request_id": "test_001",
            "input": {"Text": "hi"},
            "stream": False,
            "use_tools": True
        })
        print(response)
    finally:
        await client.close()

asyncio.run(main())
"""

JAVASCRIPT_CLIENT = """
const WebSocket = require('ws');

class AgentCLIClient {
    constructor(uri = 'ws://127.0.0.1:8080') {
        this.uri = uri;
        this.ws = null;
    }

    connect() {
        return new Promise((resolve, reject) => {
            this.ws = new WebSocket(this.uri);

            this.ws.on('open', () => {
                resolve();
            });

            this.ws.on('error', (err) => {
                reject(err);
            });
        });
    }

    sendRequest(requestData) {
        return new Promise((resolve, reject) => {
            if (!this.ws || this.ws.readyState !== WebSocket.OPEN) {
                reject(new Error('Not connected'));
                return;
            }

            const requestJson = JSON.stringify(requestData);
            this.ws.send(requestJson);

            this.ws.once('message', (data) => {
                try {
                    const response = JSON.parse(data.toString());
                    resolve(response);
                } catch (err) {
                    reject(err);
                }
            });

            this.ws.once('error', (err) => {
                reject(err);
            });
        });
    }

    close() {
        if (this.ws) {
            this.ws.close();
            this.ws = null;
        }
    }
}

async function main() {
    const client = new AgentCLIClient('ws://127.0.0.1:8080');
    try {
        await client.connect();
        const response = await client.sendRequest({
            request_id: 'test_001',
            input: { Text: 'Hello' },
            stream: false,
            use_tools: true
        });
        console.log(response);
    } catch (err) {
        console.error('Error:', err);
    } finally {
        client.close();
    }
}

main();
"""

PYTHON_COMMANDS = """
response_text = response["response"]["Text"]
commands_data = json.loads(response_text)
commands = commands_data["commands"]
count = commands_data["count"]

for cmd in commands:
    print(cmd['name'], cmd['description'])
print(count)
"""


def run(server: ServerProcess, command: list[str], program: str, **env: str) -> str:
    """Run a program against a server on another port than the document's; return what it prints."""
    done = subprocess.run(
        [*command, program.replace("127.0.0.1:8080", server.address)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("program", [PYTHON_QUICK_START, PYTHON_CLIENT])
@pytest.mark.parametrize(
    ("switch", "steps"),
    [('"stream"', [reply("Hello!")]), ('""', [failure(529, "Overloaded"), dropped(), reply("Hello!")])],
    ids=["well", "overloaded"],
)
def test_python(program: str, switch: str, steps: list[Step]) -> None:
    with ServerProcess(steps) as server:
        shown = run(server, [sys.executable, "-c"], program.replace('"stream"', switch))
    assert "'request_id': 'test_001', 'response': {'Text': 'Hello!'}, 'error': None" in shown
    assert "'total_tokens': 15" in shown


def test_python_lists_commands() -> None:
    program = PYTHON_QUICK_START.replace('{\n        "Text": "hi"\n    }', '"GetCommands"') + PYTHON_COMMANDS
    with ServerProcess() as server:
        shown = run(server, [sys.executable, "-c"], program)
    assert "help 显示帮助信息\n" in shown and shown.endswith("\n7\n")


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
@pytest.mark.skipif(
    NODE_MODULES is None or not Path(NODE_MODULES, "ws").is_dir(),
    reason="SPINDLE_TEST_NODE_MODULES does not name a node_modules directory with the package ws",
)
def test_javascript() -> None:
    with ServerProcess([reply("Hello!")]) as server:
        shown = run(server, ["node", "-e"], JAVASCRIPT_CLIENT, NODE_PATH=str(NODE_MODULES))
    assert "request_id: 'test_001'" in shown and "response: { Text: 'Hello!' }" in shown and "error: null" in shown
