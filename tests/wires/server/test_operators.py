"""What whoever runs the server needs: short addresses, failure at start, refusals that help, lines for a log."""

import inspect
import json
import re
import sys
import urllib.error
import urllib.request

import pytest

from spindle.apps.cli.subcommands import REMOTE
from spindle.client import RemoteClient
from spindle.wires.network.access import Access, parse_address
from tests.support import nursery
from tests.support.agent_process import agent_environment
from tests.support.mock_model import call, failure, reply
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
        ({"Host": "bad.example"}, "Host not allowed: bad.example; --remote-origin http://bad.example allows it"),
        (
            {"Host": "bad.example", "X-Forwarded-Proto": "https"},
            "Host not allowed: bad.example; --remote-origin https://bad.example allows it",
        ),
        ({"Host": "127.0.0.1:1"}, "A valid token is required: Authorization: Bearer TOKEN"),
        ({"Host": "127.0.0.1:1", "Authorization": "Bearer no"}, "the one that came is wrong"),
    ],
)
def test_refusals_name_the_value_and_what_would_allow_it(headers, said):
    refusal = Access("127.0.0.1", 1, "t" * 20).check(headers)
    assert refusal is not None and said in refusal.reason


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"Host": "localhost:9999"}, True),  # a port that is forwarded from another machine
        ({"Host": "127.0.0.1:9999", "Origin": "http://127.0.0.1:9999"}, True),
        ({"Host": "[::1]:9999"}, True),
        ({"Host": "localhost:9999", "Origin": "http://localhost:1234"}, False),
        ({"Host": "localhost:9999", "Origin": "https://evil.example"}, False),
        ({"Host": "localhost.evil.example:9999"}, False),
        ({"Host": "localhost:x"}, False),
    ],
)
def test_a_loopback_host_may_have_any_port(headers, allowed):
    assert (Access("127.0.0.1", 3838).check(headers) is None) == allowed


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
        assert re.fullmatch(
            r"Listening on \S+\n[^\n]+ this code: \S+\nStopping: SIGTERM\nStopped after \d+ s\n", server.stderr
        )
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
    [refused] = [line for line in lines if line.get("kind") == "refusal"]
    assert (refused["level"], refused["status"], refused["reason"]) == ("warning", 403, "origin")
    assert "https://x.example" in refused["why"]
    [connection] = [line for line in lines if line.get("kind") == "connection"]
    assert (connection["wire"], connection["path"], connection["frames_in"]) == ("chat", "/", 1)


def ended(server: ServerProcess) -> list[str]:
    """Stop the server; return the lines of its log without times."""
    assert server.stop() == 0
    server.drained.wait(5)
    lines = [line for line in server.stderr.splitlines() if re.match(r"\d{4}-", line)]
    return [re.sub(r"^\S+ \S+ |after \S+ s", "", line) for line in lines]


def test_runs_errors_and_connections_are_logged_without_what_was_said():
    steps = [failure(503, "a secret reason"), reply("a secret answer"), failure(400, "a secret reason")]
    with ServerProcess(steps) as server:
        with server.rpc() as client:
            for _ in range(2):
                client.call("prompt", message="a secret question")
                client.wait("agent_settled")
            session = client.ready["sessionId"]
        lines = ended(server)
    of = rf"session={session} wire=websocket model=mock/m1"
    failed = rf"WARNING chat failed : {of} stop_reason=error input_tokens=0 .*"
    assert len(lines) == 5
    assert re.fullmatch(rf"{failed} status=503 error=StatusError", lines[0])
    assert re.fullmatch(
        rf"INFO run ended : {of} stop_reason=end turns=2 .* input_tokens=8 output_tokens=5 .*", lines[1]
    )
    assert re.fullmatch(rf"{failed} status=400 error=StatusError", lines[2])
    assert re.fullmatch(rf"WARNING run failed : {of} stop_reason=error .* error=StatusError", lines[3])
    assert re.fullmatch(
        r"INFO connection ended : wire=websocket number=1 path=/rpc .* frames_in=2 frames_out=\d+", lines[4]
    )
    assert "secret" not in server.stderr


def test_limits_and_denials_have_a_line_each():
    steps = [reply(call("bash", {"command": "echo a secret"})), reply(call("ls", {})), reply("never")]
    args = ["--permission-mode", "dontAsk", "--max-turns", "2", "--log-level", "info"]
    with ServerProcess(steps, args=args) as server:
        with server.rpc() as client:
            client.call("prompt", message="a secret question")
            assert client.wait("agent_settled")["stopReason"] == "maxTurns"
        lines = ended(server)
    assert re.fullmatch(r"INFO denied: session=\S+ wire=websocket tool=bash call=\S+ by=mode", lines[0])
    assert re.fullmatch(r"WARNING limit reached: session=\S+ wire=websocket limit=maxTurns", lines[1])
    assert re.fullmatch(r"INFO run ended : .* stop_reason=maxTurns turns=2 tool_calls=\d denials=1 .*", lines[2])
    assert "secret" not in server.stderr


def test_only_the_level_that_was_asked_for_is_logged():
    with ServerProcess([failure(400, "no"), reply("ok")], args=["--log-level", "warning"]) as server:
        with server.rpc() as client:
            for _ in range(2):
                client.call("prompt", message="hi")
                client.wait("agent_settled")
        assert [line.split(" ")[:3] for line in ended(server)] == [
            ["WARNING", "chat", "failed"],
            ["WARNING", "run", "failed"],
        ]


def test_what_was_said_is_logged_if_wanted():
    steps = [reply(call("bash", {"command": "echo from a tool"})), reply("an\nanswer"), failure(400, "a reason")]
    args = ["--log-content", "--log-format", "json", "--log-level", "debug"]
    with ServerProcess(steps, args=args) as server:
        with server.rpc() as client:
            for _ in range(2):
                client.call("prompt", message="a question")
                client.wait("agent_settled")
        assert server.stop() == 0
        server.drained.wait(5)
    told = [line for line in map(json.loads, server.stderr.splitlines()) if "kind" in line]
    runs = [line for line in told if line["kind"] == "run"]
    assert [(run["prompt"], run["answer"]) for run in runs] == [("a question", r"'an\nanswer'"), ("a question", "")]
    [tool] = [line for line in told if line["kind"] == "tool"]
    assert json.loads(tool["arguments"]) == {"command": "echo from a tool"} and "from a tool" in tool["result"]
    assert "a reason" in next(line["error_text"] for line in told if line.get("error") and line["kind"] == "chat")


def test_a_log_in_json_has_the_fields_of_what_happened():
    odd = "call\n\x1b[2J" + "x" * 1000
    steps = [reply(call("bash", {"command": "echo a secret; false"}, id=odd)), reply("ok")]
    with ServerProcess(steps, args=["--log-format", "json", "--verbose"]) as server:
        with server.rpc() as client:
            client.call("prompt", message="go")
            client.wait("agent_settled")
            session = client.ready["sessionId"]
        assert server.stop() == 0
        server.drained.wait(5)
    told = [line for line in map(json.loads, server.stderr.splitlines()) if "kind" in line]
    assert [(line["kind"], line["level"]) for line in told] == [
        ("chat", "debug"),
        ("tool", "debug"),
        ("chat", "debug"),
        ("run", "info"),
        ("connection", "info"),
    ]
    told.pop()
    assert {line["session"] for line in told} == {session} and {line["wire"] for line in told} == {"websocket"}
    run = told[-1]
    assert {line["parent"] for line in told[:-1]} == {run["span"]}
    assert run["tool_calls"] == 1 and "cost" not in run and run["seconds"] >= told[0]["seconds"] > 0
    assert (told[1]["tool"], told[1]["error"]) == ("bash", "ToolError")
    assert "call" in told[1]["message"] and told[1]["message"].isprintable() and len(told[1]["message"]) < 500
    assert "secret" not in server.stderr
