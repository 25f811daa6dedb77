"""What whoever runs the server needs: short addresses, failure at start, refusals that help, lines for a log."""

import inspect
import json
import re
import sys
import urllib.error
import urllib.request

import pytest

from spindle.apps.cli.args import REMOTE
from spindle.client import RemoteClient
from spindle.wires.network.access import Access, parse_address
from tests.support import nursery
from tests.support.agent_process import agent_environment
from tests.wires.server.server import ServerProcess


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("8080", ("127.0.0.1", 8080)),
        (":8080", ("127.0.0.1", 8080)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:1", ("::1", 1)),
    ],
)
def test_addresses(given, address):
    assert parse_address(given) == address


@pytest.mark.parametrize("given", ["", "x", "127.0.0.1", "70000", "-1", "1:"])
def test_what_is_no_address(given):
    with pytest.raises(ValueError, match=re.escape(REMOTE)):
        parse_address(given)


def test_there_is_one_default_port():
    assert inspect.signature(RemoteClient).parameters["url"].default == f"ws://{REMOTE}"


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (
            {"Host": "127.0.0.1:1", "Origin": "https://x"},
            "Origin not allowed: https://x; --remote-origin https://x allows it",
        ),
        ({"Host": "bad.example"}, "Host not allowed: bad.example; --remote-origin https://bad.example allows it"),
        ({"Host": "127.0.0.1:1"}, "A valid token is required: Authorization: Bearer TOKEN"),
        ({"Host": "127.0.0.1:1", "Authorization": "Bearer no"}, "the one that came is wrong"),
    ],
)
def test_refusals_name_the_value_and_what_would_allow_it(headers, said):
    refusal = Access("127.0.0.1", 1, "t" * 20).check(headers)
    assert refusal is not None and said in refusal.reason


def test_what_refusals_advise_is_true():
    headers = {"Host": "bad.example", "Origin": "https://bad.example"}
    assert Access("127.0.0.1", 1).check(headers) is not None
    assert Access("127.0.0.1", 1, origins=frozenset(["https://bad.example"])).check(headers) is None


def test_a_stranger_writes_nothing_of_his_own_into_the_log():
    refusal = Access("127.0.0.1", 1).check({"Host": "127.0.0.1:1", "Origin": "\x1b[2J\n\u202e" + "x" * 9000})
    assert refusal is not None and refusal.reason.isprintable() and len(refusal.reason) < 600


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--model", "anthropic/claude-opus-4-5"], "No API key found for anthropic"),
        (["--model", "nowhere/m"], 'Model "nowhere/m" not found'),
        (["--model", "mock/m1", "-e", "missing.py"], "missing.py"),
    ],
)
def test_what_cannot_work_fails_at_start(tmp_path, args, said):
    command = [sys.executable, "-m", "spindle", "--remote", "127.0.0.1:0", *args]
    ended = nursery.run(
        command, cwd=tmp_path, env=agent_environment(tmp_path / "agent"), capture_output=True, text=True, timeout=30
    )
    assert ended.returncode == 2 and said in ended.stderr
    assert "Listening" not in ended.stderr and "Traceback" not in ended.stderr


def test_start_and_stop_are_told_and_trying_the_model_leaves_nothing():
    with ServerProcess() as server:
        assert server.stop() == 0
        server.drained.wait(5)
        assert re.fullmatch(r"Listening on \S+\nStopping: SIGTERM\nStopped after \d+ s\n", server.stderr)
        assert not list(server.agent_dir.rglob("*.jsonl"))


def test_every_line_is_json_if_wanted():
    with ServerProcess(args=["--log-format", "json", "--verbose", "-xt", "read"]) as server:
        request = urllib.request.Request(f"http://{server.address}/", headers={"Origin": "https://x.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        assert b"--remote-origin https://x.example" in refused.value.read()
        with server.chat() as client:
            client.ask("g", "GetCommands")
        assert server.stop() == 0
        server.drained.wait(5)
    lines = [json.loads(line) for line in server.stderr.splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    texts = [line["message"] for line in lines]
    assert texts[0].startswith("Listening on http://") and texts[-1].startswith("Stopped after ")
    assert any("refused" in text and "https://x.example" in text for text in texts)
    assert any(text.startswith("connection 1: ") for text in texts)
