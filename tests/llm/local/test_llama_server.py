"""The child process: how it starts, fails and ends."""

import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spindle.llm.local import LocalModelError
from spindle.llm.local import llama_server as server
from spindle.llm.local.llama_server import WantedModel, lease, stop_all

from .files import gguf


async def failure(wanted: WantedModel) -> str:
    with pytest.raises(LocalModelError) as caught:
        async with lease(wanted):
            pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def small(tmp_path: Path) -> WantedModel:
    """A file that looks sound and holds no model."""
    (tmp_path / "small.gguf").write_bytes(gguf())
    return WantedModel(tmp_path / "small.gguf", "small", 2048)


async def test_without_the_runtime(small: WantedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    assert "pip install" in (said := await failure(small)) and "'xllamacpp>=" in said
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert "no local model runtime for this platform (Linux on x86_64 without glibc)" in await failure(small)
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert "Ollama" in await failure(small)


async def test_too_little_memory(small: WantedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "check_machine", lambda: None)
    monkeypatch.setattr(server, "available_memory", lambda: 1 << 20)
    said = await failure(small)
    assert "Not enough memory for small.gguf" in said and "local.contextSize" in said


def test_memory_and_threads_of_this_machine() -> None:
    free = server.available_memory()
    assert free is None or free > 1 << 20
    assert 1 <= server.default_threads() <= 8


@pytest.mark.parametrize(
    ("error", "log", "code", "said"),
    [
        ("", "", -9, "Not enough memory for m.gguf"),
        ("RuntimeError: x", "E ggml: insufficient memory", 0, "Not enough memory for m.gguf"),
        (
            "RuntimeError: x",
            "E error loading model: /d/m.gguf is odd\nmore",
            0,
            "damaged or incomplete (m.gguf is odd)",
        ),
        (
            "RuntimeError: x",
            "error loading model: unknown model architecture: 'new'",
            0,
            "--upgrade xllamacpp",
        ),
        ("ImportError: bad magic number", "", 0, "--force-reinstall xllamacpp"),
        (
            "ImportError: libgomp.so.1: cannot open shared object file: No such file or directory",
            "",
            0,
            "apt install libgomp1",
        ),
        ("", "", -4, "This processor lacks instructions"),
        ("RuntimeError: x", "", 0, "SPINDLE_LOCAL_DEBUG=1"),
    ],
)
def test_what_a_child_leaves_behind_becomes_advice(error: str, log: str, code: int, said: str) -> None:
    assert said in server._reason(Path("/d/m.gguf"), error, log, code)


RUNTIME = """
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from unittest.mock import Mock

CommonParams = Mock

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        models = {"data": [{"meta": {"n_params": 7, "n_ctx": 512}}]}
        known = {"/v1/models": models, "/props": {"chat_template": "tools"}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(known[self.path]).encode())

class Server:
    def __init__(self, params):
        print("this must not reach the agent")
        server = HTTPServer(("127.0.0.1", 0), Answer)
        self.listening_address = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
"""


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a runtime that takes the place of the real one."""
    monkeypatch.setattr(server, "check_machine", lambda: None)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "xllamacpp.py"


async def test_the_child_says_what_it_has_loaded_and_ends_with_us(small: WantedModel, runtime: Path) -> None:
    runtime.write_text(RUNTIME)
    async with lease(small) as facts:
        assert (facts.parameters, facts.context, facts.tools, facts.thinking) == (7, 512, True, False)
    (running,) = server._servers.values()
    stop_all()
    assert running._process is not None and running._process.returncode == 0


async def test_a_runtime_that_does_not_load(small: WantedModel, runtime: Path) -> None:
    runtime.write_text("raise ImportError('libgomp is missing')")
    assert "does not load here (ImportError: libgomp is missing)" in await failure(small)


async def test_one_server_for_all_who_ask(gguf_path: Path) -> None:
    wanted = WantedModel(gguf_path, "m", 1024)

    async def url() -> str:
        async with lease(wanted) as facts:
            assert facts.url.startswith("http://127.0.0.1:") and len(facts.key) > 20
            return facts.url

    assert len(set(await asyncio.gather(url(), url()))) == 1
    async with lease(wanted) as facts:
        before = facts.url
    (running,) = server._servers.values()
    assert running._process is not None
    running._process.kill()
    running._process.wait()
    async with lease(wanted) as facts:
        assert facts.url != before  # a dead one is replaced
    async with lease(WantedModel(gguf_path, "m", 512)):
        assert [key.context for key in server._servers] == [512]  # an idle one makes room
    stop_all()


async def test_loading_does_not_hold_up_the_loop_and_can_be_given_up(gguf_path: Path) -> None:
    async def load() -> None:
        async with lease(WantedModel(gguf_path, "m", 2048)):
            pass

    waiting = [asyncio.create_task(load()) for _ in range(2)]
    await asyncio.sleep(0)
    (loading,) = server._servers.values()
    waiting[0].cancel()
    await asyncio.sleep(0)
    assert server._servers  # the other one still waits
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not server._servers
    with pytest.raises(LocalModelError, match="given up"):
        await asyncio.wait_for(asyncio.wrap_future(loading.facts), 60)


def agent_program(gguf_path: Path, ending: str) -> subprocess.Popen[bytes]:
    """Start a program that uses a model, prints its child's pid, and then ends in some way."""
    source = f"""
        import asyncio, os, sys
        from pathlib import Path
        from spindle.llm.local import llama_server as server

        async def main():
            async with server.lease(server.WantedModel(Path({str(gguf_path)!r}), "m", 512)) as facts:
                (running,) = server._servers.values()
                os.write(1, b"%d %s\\n" % (running._process.pid, facts.url.encode()))
                {ending}

        asyncio.run(main())
    """
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(source)], stdout=subprocess.PIPE)


@pytest.mark.parametrize("ending", ["pass", "os._exit(0)", "os.kill(os.getpid(), 9)", "raise KeyboardInterrupt"])
def test_nothing_is_left_when_the_agent_ends(gguf_path: Path, ending: str) -> None:
    program = agent_program(gguf_path, ending)
    output, _ = program.communicate(timeout=200)
    assert output.count(b"\n") == 1  # nothing but what we printed is on stdout
    pid, url = output.split()
    gone = wait_until(lambda: not is_running(int(pid)) and not is_listening(int(url.rpartition(b":")[2])))
    if not gone:
        os.kill(int(pid), signal.SIGKILL)
    assert gone, "the child outlived the agent"


def wait_until(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_running(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")  # a dead one may wait for whoever is its parent now


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_nothing_of_this_is_loaded_unless_needed(tmp_path: Path) -> None:
    """RPC mode starts, answers and ends without touching local models."""
    watch = (
        "import os, sys\n"
        "sys.addaudithook(lambda event, what: event == 'import' and os.write(2, f'{what[0]}\\n'.encode()))\n"
        "from spindle.apps.cli import main\n"
        "sys.exit(main())"
    )
    env: dict[str, Any] = {**os.environ, "SPINDLE_DIR": str(tmp_path)}
    env = {name: value for name, value in env.items() if not name.endswith("_API_KEY")}
    (tmp_path / "script.json").write_text('["hi"]')
    done = subprocess.run(
        [sys.executable, "-c", watch, "--mode", "rpc", "--no-session", "--model", f"scripted/{tmp_path}/script.json"],
        input=b'{"id":1,"type":"get_state"}\n',
        capture_output=True,
        env=env,
        cwd=tmp_path,
        timeout=200,
    )
    assert b'"command":"get_state","success":true' in done.stdout
    imported = done.stderr.decode().splitlines()
    assert "spindle.wires.stdio" in imported
    assert not [name for name in imported if name.startswith(("spindle.llm.local", "xllamacpp"))]
