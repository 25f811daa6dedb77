"""The example of docs/remote.md: two processes behind nginx, a session at one of them, and the death of one."""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests.support.mock_model import reply

from .server import TOKEN, RpcSocket, ServerProcess
from .test_http import Events, Http

CONFIG = Path(__file__).parents[3] / "examples" / "scale" / "nginx.conf"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Proxy:
    """The example with other ports and other files."""

    def __init__(self, tmp_path: Path, one: ServerProcess, two: ServerProcess, port: int) -> None:
        self.port, self.address = port, f"127.0.0.1:{port}"
        text = CONFIG.read_text().replace("/tmp/spindle-nginx", str(tmp_path / "nginx"))
        for ours, theirs in ((3840, port), (3841, one.port), (3842, two.port)):
            assert f"127.0.0.1:{ours}" in text
            text = text.replace(f"127.0.0.1:{ours}", f"127.0.0.1:{theirs}")
        (tmp_path / "nginx.conf").write_text(text)
        self.process = subprocess.Popen(
            [str(NGINX), "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"],
            stderr=subprocess.PIPE,
            text=True,
        )
        while self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
        raise AssertionError(self.process.stderr.read() if self.process.stderr else "")

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(5)
        if self.process.stderr:
            self.process.stderr.close()


@pytest.mark.skipif(NGINX is None, reason="there is no nginx")
def test_two_processes_behind_a_proxy_and_then_one(tmp_path):
    port = free_port()
    options = {
        "base": tmp_path,
        "args": ["--remote-origin", f"http://127.0.0.1:{port}"],
        "env": {"SPINDLE_REMOTE_TOKEN": TOKEN},
    }
    steps = [reply("ok")]
    with (
        ServerProcess(steps, **options) as one,
        ServerProcess(steps, **options) as two,
        Proxy(tmp_path, one, two, port) as proxy,
    ):
        web = Http(proxy, TOKEN)
        ids = [f"customer-{number}" for number in range(8)]
        for id in ids:
            assert web.ask("PUT", f"/v1/sessions/{id}", {})[0] == 200
            assert web.post(f"/v1/sessions/{id}/prompt?wait=true", {"message": f"I am {id}"})[2]["text"] == "ok"
        held = [
            {session["id"] for session in Http(server, TOKEN).get("/v1/sessions")[2]["sessions"]}
            for server in (one, two)
        ]
        assert held[0] and held[1] and not held[0] & held[1] and held[0] | held[1] == set(ids)

        first = min(held[0])
        events = Events(proxy, first, {"Authorization": f"Bearer {TOKEN}"})
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with RpcSocket(
            connect(f"ws://{proxy.address}/rpc?session={first}", proxy=None, additional_headers=headers).__enter__()
        ) as client:
            assert client.ready["sessionId"] == first
            client.call("prompt", message="by socket")
            client.wait("agent_settled")
        events.until("agent_settled")
        events.close()

        status, _, said = Http(two, TOKEN).post(f"/v1/sessions/{first}/get_state")
        assert status == 409 and "in use by process" in said["error"]  # as if it had been sent to the wrong one

        os.kill(one.process.pid, signal.SIGKILL)
        one.process.wait(5)
        for id in ids:
            said = web.post(f"/v1/sessions/{id}/get_messages")[2]["messages"]
            assert f"I am {id}" in str(said[0])
        assert web.post(f"/v1/sessions/{first}/prompt?wait=true", {"message": "go on"})[2]["text"] == "ok"
        # Handed over, without a crash: ended here, and there for the next one who asks.
        assert web.ask("DELETE", f"/v1/sessions/{first}")[0] == 204
        assert "go on" in str(web.post(f"/v1/sessions/{first}/get_messages")[2])
