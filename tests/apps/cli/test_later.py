"""Modules that are loaded when they are asked for: whoever uses them sees no difference."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, call, reply

HEAD = """
import sys
from spindle.apps.cli.later import load_others_later
load_others_later()
import asyncio
def is_loaded(name):
    found = vars(sys.modules[name]).get("__getattr__") if name in sys.modules else None
    return name in sys.modules and getattr(found, "__module__", "") != "spindle.apps.cli.later"
assert not any(map(is_loaded, ("ssl", "asyncio.sslproto")))
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", HEAD + code], check=True, timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_prompt_and_a_tool_load_no_tls(tmp_path: Path):
    """Of a process of its own: one that is forked from another has the modules of that."""
    with MockModel([reply(call("bash", {"command": "true"})), reply("done")]) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "spindle", "--mode", "rpc", "--no-session", "--model", "mock/m1"]
        environment = agent_environment(tmp_path / "agent")
        with subprocess.Popen(command, env=environment, cwd=tmp_path, stdin=pipe, stdout=pipe) as agent:
            assert agent.stdin is not None and agent.stdout is not None
            agent.stdin.write(b'{"type": "prompt", "message": "go"}\n')
            agent.stdin.flush()
            assert any(b'"agent_settled"' in line for line in agent.stdout)
            assert "libssl" not in Path(f"/proc/{agent.pid}/maps").read_text()
            agent.stdin.close()


def test_tls_without_an_import_of_ours():
    """A program that only says `ssl=True`."""
    run("""
async def main():
    server = await asyncio.start_server(lambda r, w: w.write(b"no TLS\\n"), "127.0.0.1", 0)
    try:
        await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1], ssl=True)
    except Exception as error:
        import ssl
        assert isinstance(error, ssl.SSLError), repr(error)
    else:
        raise AssertionError
    assert is_loaded("ssl") and is_loaded("asyncio.sslproto")
asyncio.run(main())
""")


def test_threads_that_load_it_at_once_get_the_same():
    run("""
import ssl
from threading import Barrier
from concurrent.futures import ThreadPoolExecutor
ready = Barrier(8)
def take(number):
    ready.wait()
    return type(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
with ThreadPoolExecutor(8) as pool:
    kinds = set(pool.map(take, range(8)))
assert kinds == {ssl.SSLContext}, kinds
""")


def test_stand_ins_are_for_those_who_ask_for_nothing_else():
    run("""
from functools import partial
async def later(): ...
def plain(): ...
class Has:
    async def method(self): ...
for one in (later, plain, partial(partial(later)), Has().method, Has.method, print, 5):
    assert asyncio.iscoroutinefunction(one) is (one not in (plain, print, 5)), one
assert "later" in repr(partial(later)) and not is_loaded("inspect")
import inspect, platform
assert inspect.iscoroutinefunction(later) and str(inspect.signature(plain)) == "()" and is_loaded("inspect")
import uuid
assert not is_loaded("platform") and platform.system() == sys.platform.capitalize() and is_loaded("platform")
import ssl
assert ssl.SSLSocket.__module__ == "ssl"
try:
    ssl.nonsense
except AttributeError as error:
    assert str(error) == "module 'ssl' has no attribute 'nonsense'"
""")


def test_names_that_are_taken_at_an_import_are_right_when_they_are_used():
    run("""
import linecache, msgspec, pathlib, subprocess
assert not any(map(is_loaded, ("msgspec.inspect", "msgspec._json_schema", "subprocess", "tokenize", "urllib.parse")))
assert (subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL) == (
    asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT, asyncio.subprocess.DEVNULL
)
assert pathlib.Path("/a b").as_uri() == "file:///a%20b" and is_loaded("urllib.parse")
assert msgspec.json.schema(int) == {"type": "integer"} and msgspec.json.schema_components([int])[0]
assert isinstance(msgspec.inspect.type_info(int), msgspec.inspect.IntType)
assert str(pathlib.PureWindowsPath("C:/a/../b")) == "C:\\\\a\\\\..\\\\b"
assert '\"\"\"' in linecache.getline(asyncio.__file__, 1) and is_loaded("tokenize")
async def main():
    process = await asyncio.create_subprocess_exec("true", stdin=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0
asyncio.run(main())
""")
