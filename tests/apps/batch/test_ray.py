"""A batch on a real Ray: a cluster of two nodes on this machine, one of which is killed.

`SPINDLE_TEST_RAY` is the Python of an environment with `spindle[ray]` in it (`make test-ray` makes one).
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.mcp.helpers import entry
from tests.support import mock_model
from tests.support.agent_process import write_models
from tests.support.mock_model import MockModel, call, gate, reply

from .conftest import EXTENSION, Tasks, make_repo, state

PYTHON = os.environ.get("SPINDLE_TEST_RAY", "")
ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="SPINDLE_TEST_RAY names no Python with Ray"),
    pytest.mark.timeout(180),
]


class RayTasks(Tasks):
    batch: subprocess.Popen[str] | None = None

    def environment(self) -> dict[str, str]:
        return {**self.place.env, "PYTHONPATH": str(ROOT / "src"), "RAY_USAGE_STATS_ENABLED": "0"}

    def start(self, *arguments: str, address: str = "", **options: Any) -> subprocess.Popen[str]:
        env = self.environment() | ({"RAY_ADDRESS": address} if address else {})
        command = [PYTHON, "-m", "spindle", *self.arguments(*arguments)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.batch = subprocess.Popen(command, cwd=self.place.project, env=env, **pipes)
        return self.batch

    def cluster(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [PYTHON, str(Path(__file__).with_name("ray_cluster.py")), *arguments],
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


@pytest.fixture
def served(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RayTasks, MockModel]]:
    monkeypatch.setattr(mock_model, "WAIT_S", 90.0)  # a busy machine takes long to start Ray
    on_ray = RayTasks(tasks.place)
    with MockModel() as mock:
        write_models(tasks.place.agent, mock.openai_url)
        on_ray.model = "mock/m1"
        yield on_ray, mock
        if on_ray.batch is not None:
            on_ray.batch.kill()
            on_ray.batch.wait()


def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_node_and_a_process_are_lost(served: tuple[RayTasks, MockModel]) -> None:
    tasks, mock = served
    repo = make_repo(tasks.place.project / "repo")
    before = state(repo)
    tasks.write(*({"id": f"t{number}", "prompt": f"p{number}", "repo": "repo"} for number in range(6)))
    mock.script(reply("a", gate("go"), "b"))
    cluster = tasks.cluster()
    try:
        assert cluster.stdin is not None and cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        batch = tasks.start("--on", "ray", "--retries", "0", address=address)
        mock.wait_requests(6)
        # Both nodes are at work: kill one of them, and on the other the process with all its sessions.
        cluster.stdin.write("kill\n")
        cluster.stdin.flush()
        assert cluster.stdout.readline() == "killed\n"
        mock.wait_requests(9)
        for pid in actors(tasks.place.agent):
            os.kill(pid, signal.SIGKILL)
        mock.wait_requests(15)
        mock.release("go")
        out, _ = batch.communicate(timeout=60)
        assert batch.returncode == 0, out
    finally:
        if cluster.stdin is not None:
            cluster.stdin.close()
        cluster.wait(30)
    assert [line["attempt"] for line in tasks.lines()] == [1] * 6, "a lost attempt was none"
    assert set(tasks.statuses().values()) == {"ok"}
    files = sorted(path.name for path in (tasks.runs / "t1").iterdir())
    assert files == ["log", "patch.diff", "result.json", "session.jsonl"]
    assert "clone: " in (tasks.runs / "t1/log").read_text()
    assert state(repo) == before


def test_the_tasks_of_a_lost_worker_run_again_exactly_once(served: tuple[RayTasks, MockModel]) -> None:
    """Commands leave a line when they begin and when they end; half of them lose their node in between."""
    tasks, mock = served
    trail, go = tasks.place.project / "trail", tasks.place.project / "go"
    work = 'id=$(basename "$(dirname "$PWD")")'  # the folder of an attempt has the name of its task
    work += f"; echo begin $id $$ >> {trail}; until [ -e {go} ]; do sleep 0.1; done; echo end $id >> {trail}"
    mock.script(*[reply(call("bash", {"command": work}))] * 6, reply("done"))
    tasks.write(*({"id": f"t{number}", "prompt": "work"} for number in range(4)))
    cluster = tasks.cluster()
    try:
        assert cluster.stdin is not None and cluster.stdout is not None
        batch = tasks.start("--on", "ray", "--retries", "0", address=cluster.stdout.readline().strip())
        until(lambda: len(marks(trail, "begin")) == 4)
        cluster.stdin.write("kill\n")
        cluster.stdin.flush()
        until(lambda: len(marks(trail, "begin")) == 6)
        begun = marks(trail, "begin")
        again = [id for id, _ in begun[4:]]
        lost = [pid for id, pid in begun[:4] if id in again]
        assert len(lost) == 2
        until(lambda: not any(Path("/proc", pid).exists() for pid in lost))  # nothing of the first try goes on
        go.touch()
        out, err = batch.communicate(timeout=60)
        assert batch.returncode == 0, out + err
    finally:
        if cluster.stdin is not None:
            cluster.stdin.close()
        cluster.wait(30)
    ids = ["t0", "t1", "t2", "t3"]
    assert sorted(id for id, _ in marks(trail, "begin")) == sorted(ids + again)
    assert sorted(id for (id,) in marks(trail, "end")) == ids
    lines = [(line["id"], line["status"], line["attempt"]) for line in tasks.lines()]
    assert sorted(lines) == [(id, "ok", 1) for id in ids]
    assert len(mock.requests) == 10


def marks(trail: Path, kind: str) -> list[list[str]]:
    lines = trail.read_text().splitlines() if trail.exists() else []
    return [line.split()[1:] for line in lines if line.startswith(kind)]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def actors(agent_dir: Path) -> list[int]:
    """Return the processes of our actors, known by the directory of this very test in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_actor = b"ray::Node" in (path / "cmdline").read_bytes()
            if is_actor and f"SPINDLE_DIR={agent_dir}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            pass
    assert found
    return found


def test_through_a_client(served: tuple[RayTasks, MockModel]) -> None:
    tasks, mock = served
    mock.script(reply("fine"))
    tasks.write({"id": "a", "prompt": "p"}, {"id": "b", "prompt": "p", "cwd": ".."})
    number = str(port())
    cluster = tasks.cluster(number)
    try:
        assert cluster.stdout is not None and cluster.stdin is not None
        cluster.stdout.readline()
        batch = tasks.start("--on", f"ray://127.0.0.1:{number}", "--retries", "0")
        out, err = batch.communicate(timeout=90)
    finally:
        cluster.stdin.close()
        cluster.wait(30)
    assert batch.returncode == 1, out + err
    lines = {line["id"]: line for line in tasks.lines()}
    assert lines["a"]["status"] == "ok", out + err
    assert "no git repository" in lines["b"]["error"]


def test_a_cluster_of_its_own_and_an_interrupt(served: tuple[RayTasks, MockModel]) -> None:
    tasks, mock = served
    mock.script(reply("a", gate("never")))
    tasks.write({"id": "a", "prompt": "p"}, {"id": "b", "prompt": "p"})
    tasks.place.write("project/painter.py", EXTENSION)
    tasks.place.write("project/servers.json", {"mcpServers": {"fake": entry("--plain")}})
    plugins = ["-e", "painter.py", "--colour=red", "--mcp-config", "servers.json", "--mcp-config", "gone.json"]
    batch = tasks.start("--on", "ray", "--json", *plugins)
    mock.wait_requests(2)
    for request in mock.requests:
        names = {tool["function"]["name"] for tool in request.body["tools"]}
        assert {"paint_red", "tool_search"} <= names, "extensions with their options, and MCP servers, as anywhere"
    batch.send_signal(signal.SIGINT)
    assert batch.stdout is not None
    next(line for line in batch.stdout if '"notice"' in line)
    batch.send_signal(signal.SIGINT)
    out, err = batch.communicate(timeout=60)
    assert batch.returncode == 130, out + err
    assert err.count("gone.json: no such file") == 1, err
    assert {line["status"] for line in tasks.lines()} == {"cancelled"}
    assert json.loads(out.splitlines()[-1])["counts"] == {"cancelled": 2}
