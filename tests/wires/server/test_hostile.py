"""People who mean harm, and people who do not know better: foreign pages, port scans, fuzzed frames, long waits."""

import contextlib
import json
import random
import re
import resource
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest
from websockets.exceptions import InvalidMessage, InvalidStatus
from websockets.sync.client import connect

from tests.support import nursery
from tests.support.agent_process import agent_environment
from tests.support.mock_model import gate, reply

from .server import TOKEN, ServerProcess
from .test_http import Http

UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
CHAT_FRAMES = [
    {"request_id": "a", "input": {"Text": "hi"}, "stream": True},
    {"request_id": "b", "input": "GetCommands"},
    {"request_id": "c", "input": {"Interrupt": None}},
    {"request_id": "d", "input": {"Multi": [{"Text": "x"}, {"Image": {"data": "AAAA", "mime_type": "image/png"}}]}},
    {"request_id": "e", "input": {"Instruction": {"command": "config", "parameters": {"max_context_num": 3}}}},
    {"request_id": "f", "input": {"ToolConfirmationResponse": {"name": "bash", "arguments": {}, "approved": True}}},
    {"request_id": "g", "input": {"TurnConfirmationResponse": {"confirmed": True}}, "use_tools": False},
    {"request_id": "h", "input": {"File": {"filename": "f", "content_type": "text/plain", "data": "aGk="}}},
    {"request_id": "i", "input": "Regenerate"},
    {"request_id": "j", "input": "ClearContext", "config": {"max_tokens": 5, "prompt": "p"}},
]
RPC_FRAMES = [
    {"id": "a", "type": "prompt", "message": "hi"},
    {"id": "b", "type": "get_state"},
    {"id": "c", "type": "steer", "message": "x", "images": []},
    {"id": "d", "type": "set_update_mode", "mode": "delta"},
    {"id": "e", "type": "extension_ui_response", "confirmed": True},
    {"id": "f", "type": "host_tool_result", "result": {"content": []}},
    {"id": "g", "type": "set_host_tools", "tools": [{"name": "t", "description": "d", "parameters": {}}]},
    {"id": "h", "type": "get_entries"},
    {"id": "i", "type": "abort"},
    {"id": "j", "type": "navigate_tree", "entryId": "x"},
]
VALUES = [None, True, -1, 0, 1 << 70, 0.5, "", "x" * 300, "\ud800", [], {}, [[[]]], {"a": {"b": []}}]


def mutated(frame, chance):
    """Change a frame in one to three places, in its values or in its bytes."""
    value = json.loads(json.dumps(frame))
    for _ in range(chance.randint(0, 2)):
        target = value
        while isinstance(target, dict) and target and chance.random() < 0.5:
            inner = target[chance.choice(list(target))]
            if not isinstance(inner, dict) or not inner:
                break
            target = inner
        key = chance.choice([*target, "extra", ""])
        if chance.random() < 0.2:
            target.pop(key, None)
        else:
            target[key] = chance.choice(VALUES)
    data = json.dumps(value).encode()
    if chance.random() < 0.3:
        at = chance.randrange(len(data))
        data = data[:at] + chance.choice([b"", b"\xff", b'"', b"{", b"\x00", data]) + data[at + chance.randint(0, 3) :]
    return data


def frames(examples, count):
    """Give the same frames in every run: random bytes, nested brackets, and mutations of good ones."""
    chance = random.Random(8)
    for _ in range(count):
        kind = chance.random()
        if kind < 0.1:
            yield chance.randbytes(chance.randint(0, 300))
        elif kind < 0.12:
            yield chance.choice([b"[", b'{"a":', b'{"Multi":[']) * chance.randint(1, 5000)
        else:
            data = mutated(chance.choice(examples), chance)
            yield data.decode("utf-8", "replace") if chance.random() < 0.7 else data


@pytest.mark.parametrize("path, examples", [("/", CHAT_FRAMES), ("/rpc", RPC_FRAMES)])
def test_a_thousand_bad_frames_harm_nobody(path, examples):
    with ServerProcess(
        [reply("fine")], args=["--remote-option", "frames_per_second=100000", "--log-level", "error"]
    ) as server:
        with server.chat() as other, connect(f"ws://{server.address}{path}", proxy=None, max_queue=None) as fuzzed:
            answers = 0

            def count():
                nonlocal answers
                for message in fuzzed:
                    frame = json.loads(message)
                    assert frame.keys() == {"request_id", "response", "error", "token_usage"} or "type" in frame
                    answers += 1
                    if b"the-end" in message.encode():
                        return

            reading = threading.Thread(target=count, daemon=True)
            reading.start()
            for number, frame in enumerate(frames(examples, 1000)):
                fuzzed.send(frame)
                if number % 100 == 0:
                    assert json.loads(other.ask(f"o{number}", "GetCommands")["response"]["Text"])["count"] == 7
            fuzzed.send('{"request_id":"the-end","id":"the-end","type":"get_state","input":"GetCommands"}')
            reading.join(20)
            assert not reading.is_alive() and answers > 500
            assert other.ask("z", {"Text": "still there?"})["response"] == {"Text": "fine"}
        assert "Traceback" not in server.stderr


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET //[ HTTP/1.1\r\nHost: {host}\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: {host}\r\nOrigin: a\r\nOrigin: b\r\n{upgrade}\r\n",
        b"GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer \xff\xfe\r\n{upgrade}\r\n",
        b"GET /?session=%ff%fe HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n",
        b"GET /?session=" + b"%E4%BC%9A" * 100 + b" HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n",
        b"GET /rpc?since=" + b"9" * 5000 + b" HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n",
        b"GET /rpc?since=%C2%B2&dialect=%00 HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n",
        b"GET / HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n\xff\xff\xff\xff\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n\x81\x05hello",
        b"GET / HTTP/1.1\r\nHost: {host}\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
def test_whatever_comes_to_the_port_is_survived_in_silence(shared_server, data):
    server = shared_server
    data = data.replace(b"{host}", server.address.encode()).replace(b"{upgrade}", UPGRADE.encode())
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        try:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(65536):
                pass
        except ConnectionError:
            pass
    with server.chat() as client:
        assert client.ask("g", "GetCommands")["error"] is None
    others = [line for line in server.stderr.splitlines()[2:] if not re.search(" INFO | WARNING refused: ", line)]
    assert not others


@pytest.fixture(scope="module")
def shared_server():
    with ServerProcess([reply("x")]) as server:
        yield server


# -- the page of somebody else --------------------------------------------------------------------------


def test_a_page_of_another_origin_cannot_connect(shared_server):
    server = shared_server
    for hostile in (
        f"http://127.0.0.1:{server.port + 1}",
        "null",
        "file://",
        f"http://{server.address}.evil.example",
        f"http://evil@{server.address}",
    ):
        for path in ("/", "/ws", "/rpc"):
            with pytest.raises(InvalidStatus) as refused:
                connect(f"ws://{server.address}{path}", proxy=None, additional_headers={"Origin": hostile})
            assert refused.value.response.status_code == 403
    for own in (f"http://{server.address}", f"http://localhost:{server.port}"):
        address = own.removeprefix("http://")
        with connect(f"ws://{address}/", proxy=None, additional_headers={"Origin": own}):
            pass


def test_a_page_on_the_list_may_connect():
    with ServerProcess([reply("x")], args=["--remote-origin", "https://my.site"]) as server:
        with server.chat(additional_headers={"Origin": "https://my.site"}) as client:
            assert client.ask("a", {"Text": "hi"})["response"] == {"Text": "x"}
        with pytest.raises(InvalidStatus):
            server.chat(additional_headers={"Origin": "https://my.site.evil.example"})


def test_only_pages_on_the_list_read_answers_over_http(tmp_path):
    """A browser asks ahead without a token; the request itself needs one, and an answer names the page."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    args = ["--remote-origin", "https://my.site", "--remote-token-file", str(tmp_path / "token")]
    with ServerProcess([reply("x")], args=args) as server:
        web = Http(server)

        def ask(method, origin, path="/v1/sessions", **headers):
            status, told, _ = web.ask(method, path, None, Origin=origin, **headers)
            return status, told.get("Access-Control-Allow-Origin")

        ahead = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        mine = "https://my.site"
        assert ask("OPTIONS", mine, **ahead) == (204, mine)
        assert ask("GET", mine) == (401, mine)
        assert ask("GET", mine, Authorization=f"Bearer {TOKEN}") == (200, mine)
        for other in ("https://other.site", "null", "https://my.site.evil.example"):
            for method in ("OPTIONS", "GET"):
                assert ask(method, other, **ahead, Authorization=f"Bearer {TOKEN}") == (403, None)
        own = f"http://{server.address}"
        assert ask("OPTIONS", own, Authorization=f"Bearer {TOKEN}") == (405, None)
        assert ask("OPTIONS", mine, "/metrics", Authorization=f"Bearer {TOKEN}")[0] == 405


# -- secrets --------------------------------------------------------------------------------------------


def test_neither_token_nor_words_are_logged(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    args = ["--remote-token-file", str(file), "--verbose"]
    with ServerProcess([reply("a secret answer")], args=args) as server:
        with pytest.raises(InvalidStatus):
            server.chat(additional_headers={"Authorization": f"Bearer {TOKEN}x"})
        with pytest.raises(InvalidStatus):
            server.chat(subprotocols=["spindle", "spindle.token.bm90IHRoZSB0b2tlbg"])
        with server.chat(additional_headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            client.ask("a", {"Text": "a secret question"})
            client.write("{a secret mistake")
            client.read()
        assert server.stop() == 0
        server.drained.wait(5)
    assert server.stderr.count("WARNING refused: ") == 2 and "connection ended" in server.stderr
    assert TOKEN not in server.stderr and "secret" not in server.stderr


def test_a_token_file_that_others_can_read_is_told(tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    with ServerProcess(args=["--remote-token-file", str(file)]) as server:
        assert "chmod 600" in server.stderr and TOKEN not in server.stderr


@pytest.mark.parametrize(
    "args, said",
    [
        (["--remote", "0.0.0.0:0"], "without a token"),
        (["--remote", "127.0.0.1:0", "--remote-cert", "x"], "go together"),
        (["--remote", "127.0.0.1:0", "--remote-cert", "x", "--remote-key", "y"], "Cannot listen"),
        (["--remote", "127.0.0.1:0", "--remote-token-file", "nowhere"], "token file"),
        (["--remote", "127.0.0.1:0", "--remote-option", "x=1"], "Unknown remote option"),
        (["--remote", "127.0.0.1:0", "--continue"], "--continue does not go with a server"),
        (["--remote", "nonsense"], "127.0.0.1:3838"),
    ],
)
def test_a_server_that_would_be_wrong_does_not_start(tmp_path, args, said):
    ended = nursery.run(
        [*nursery.SPINDLE, *args],
        cwd=tmp_path,
        env=agent_environment(tmp_path / "agent"),
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert ended.returncode != 0 and said in ended.stderr and "Traceback" not in ended.stderr


# -- TLS ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost "
        f"-addext subjectAltName=IP:127.0.0.1,DNS:localhost -keyout {key} -out {cert}".split(),
        check=True,
        capture_output=True,
    )
    trusting = ssl.create_default_context(cafile=str(cert))
    with ServerProcess([reply("safe")], args=["--remote-cert", str(cert), "--remote-key", str(key)]) as server:
        assert "https://" in server.stderr
        with connect(f"wss://{server.address}/", ssl=trusting, proxy=None) as client:
            client.send(json.dumps({"request_id": "a", "input": {"Text": "hi"}}))
            assert json.loads(client.recv())["response"] == {"Text": "safe"}
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(f"wss://{server.address}/", proxy=None)
        # Somebody who speaks plainly gets nothing, and disturbs nobody.
        with pytest.raises((InvalidMessage, OSError)):
            connect(f"ws://{server.address}/", proxy=None, open_timeout=2)
        assert not [line for line in server.stderr.splitlines()[2:] if " INFO " not in line]


# -- many -----------------------------------------------------------------------------------------------


def test_two_hundred_connections():
    def memory(server):
        with open(f"/proc/{server.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

    with ServerProcess([reply("x", gate("go"), "y")]) as server, server.chat() as first:
        first.send("warm", {"Text": "up"})
        server.mock.release("go")
        first.read()
        before = memory(server)
        clients = [server.chat() for _ in range(200)]
        for number, client in enumerate(clients):
            client.send(f"r{number}", {"Text": "hi"})
        for number, client in enumerate(clients):
            frame = client.read()
            assert frame["request_id"] == f"r{number}" and frame["response"] == {"Text": "xy"}
        each = (memory(server) - before) / len(clients)
        assert each < 1, f"{each:.2f} MiB for a connection and its agent"
        for client in clients:
            client.socket.close()
        assert first.ask("g", "GetCommands")["error"] is None


_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.mark.parametrize("begun", [b"", _REQUEST, _REQUEST + b"\r\n"], ids=["nothing", "half", "kept alive"])
def test_more_connections_without_a_request_than_there_may_be_keep_nobody_out(begun):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ServerProcess() as server, contextlib.ExitStack() as half_open:
        for _ in range(1300):
            one = half_open.enter_context(socket.socket())
            one.settimeout(5)
            one.connect(("127.0.0.1", server.port))
            with contextlib.suppress(OSError):  # it had to make room already
                one.sendall(begun)
                if begun.endswith(b"\r\n\r\n"):
                    assert b" 200 " in one.recv(1000)
        for _ in range(5):
            begin = time.monotonic()
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=10) as answer:
                assert answer.status == 200
            assert time.monotonic() - begin < 2


# -- clients that ask and do not read ---------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/rpc"])
def test_pings_whose_answers_are_not_read_end_the_connection(path):
    ping = b"\x89\xfd\x00\x00\x00\x00" + b"p" * 125
    with ServerProcess() as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {server.address}\r\n{UPGRADE}\r\n".encode())
        assert b" 101 " in raw.recv(1000)
        sent = 0
        with pytest.raises(ConnectionError):
            while sent < 100 << 20:
                sent += raw.send(ping * 500)
        with server.chat() as other:
            assert other.ask("g", "GetCommands")["error"] is None


def test_pings_are_answered_however_many_if_they_are_read(shared_server):
    ping, pong = b"\x89\xfd\x00\x00\x00\x00" + b"p" * 125, b"\x8a\x7d" + b"p" * 125
    with socket.create_connection(("127.0.0.1", shared_server.port), timeout=10) as raw:
        raw.sendall(f"GET / HTTP/1.1\r\nHost: {shared_server.address}\r\n{UPGRADE}\r\n".encode())
        assert b" 101 " in raw.recv(1000)
        with raw.makefile("rb") as answers:
            for _ in range(100):
                raw.sendall(ping * 200)
                assert answers.read(len(pong) * 200) == pong * 200


@pytest.mark.parametrize(
    "path", ["/page/" + "x" * 300, "/page/" + "x/" * 2000, "/page/%00", "/page/..", "/" + "y" * 5000]
)
def test_no_path_is_too_long(shared_server, path):
    with socket.create_connection(("127.0.0.1", shared_server.port), timeout=10) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {shared_server.address}\r\n\r\n".encode())
        assert b" 404 " in raw.recv(1000)
