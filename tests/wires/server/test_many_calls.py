"""One answer with a thousand calls does not hold up the other clients of a server."""

import json
import subprocess
import sys

from tests.support.mock_model import call, reply

from .server import ServerProcess

ASKS = """
import json, os, sys, time
from websockets.sync.client import connect

waits = []
with connect(sys.argv[1], proxy=None, max_size=None) as socket:
    print("ready", flush=True)
    while not os.path.exists(sys.argv[2]):
        began = time.monotonic()
        socket.send('{"id": "s", "type": "get_state"}')
        while json.loads(socket.recv(timeout=60)).get("id") != "s":
            pass
        waits.append(time.monotonic() - began)
        time.sleep(0.005)
print(json.dumps(waits))
"""


def waits_of_another(command: tuple[str, dict[str, str]], count: int) -> list[float]:
    """Return how long a client waits for its state, again and again, while another one's answer has so many calls."""
    steps = [reply("", *[call(*command, id=f"c{number}") for number in range(count)]), reply("done")]
    with ServerProcess(steps) as server:
        (server.cwd / "a.txt").write_text("x")
        over = server.base / "over"
        # A process of its own: here, the frames of the first client and the model keep the interpreter busy.
        ask = [sys.executable, "-c", ASKS, f"ws://{server.address}/rpc", str(over)]
        with subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) as other, server.rpc() as first:
            assert other.stdout is not None and other.stdout.readline() == "ready\n"
            assert first.call("prompt", message="go")["success"]
            results = 0
            while "agent_settled" not in (frame := str(first.socket.recv(timeout=60)))[:100]:
                results += '"tool_execution_end"' in frame[:100]
            over.touch()
            waits: list[float] = json.loads(other.stdout.readline())
    assert results == count
    return waits


def test_the_state_of_another_client_is_told_while_a_thousand_calls_run():
    waits = waits_of_another(("bash", {"command": "true"}), 1000)
    assert len(waits) >= 10 and max(waits) < 2.5, (len(waits), max(waits))
