"""The way to the server: reuse, time-outs, proxies, broken servers, and who closes the socket."""

import asyncio
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from spindle.llm import http
from spindle.llm.route import find_target
from tests.support.mock_model import MockModel, cut, dropped, failure, gate, raw, reply, silent, stall


async def read_body(response: http.HttpResponse) -> bytes:
    body = b""
    while data := await response.read():
        body += data
    return body


def read_all(url: str, **options) -> bytes:
    async def run() -> bytes:
        async with await http.post(url, {"x-test": "1"}, b"{}", **options) as response:
            return await read_body(response)

    return asyncio.run(run())


def test_a_body_comes_in_whole():
    with MockModel([raw(b"one", b"two")]) as mock:
        assert read_all(mock.openai_url + "/x") == b"onetwo"
        (request,) = mock.requests
    assert request.path == "/v1/x"
    assert request.headers["x-test"] == "1"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"].startswith("spindle/")


def test_a_key_with_the_newline_of_its_file():
    async def run(url: str, key: str) -> None:
        async with await http.post(url, {"authorization": f"Bearer {key}"}, b"{}") as response:
            await read_body(response)

    with MockModel([reply("a")]) as mock:
        asyncio.run(run(mock.openai_url, "abc\r\n"))
        assert mock.requests[0].headers["authorization"] == "Bearer abc"
        with pytest.raises(http.ConnectError, match="Newline"):
            asyncio.run(run(mock.openai_url, "abc\r\nX-Injected: 1"))
        assert len(mock.requests) == 1


def test_connections_are_used_again():
    async def run(url: str) -> None:
        for _ in range(3):
            async with await http.post(url, {}, b"{}") as response:
                await read_body(response)

    with MockModel([reply("a")]) as mock:
        asyncio.run(run(mock.openai_url))
        assert [request.connection for request in mock.requests] == [1, 1, 1]


@pytest.mark.parametrize(("answers", "connections"), [(1, 3), (0, 1)], ids=["when used again", "at once"])
def test_a_server_that_hangs_up(answers: int, connections: int):
    """A connection that was kept and is dead costs nothing but another one; a new one that dies is a failure."""
    seen: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(0)
        while await reader.read(1):
            await reader.readuntil(b"\r\n\r\n{}")
            if seen[-1] == answers:
                break
            seen[-1] += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            for _ in range(3):
                async with await http.post(url, {}, b"{}") as response:
                    assert await read_body(response) == b"ok"

    if answers:
        asyncio.run(run())
    else:
        with pytest.raises(http.ConnectError, match="closed the connection without an answer"):
            asyncio.run(run())
    assert len(seen) == connections


def test_a_request_is_repeated_once_however_many_connections_were_kept():
    """A server that hangs up may have done the work: it must not be asked on each connection in turn."""
    asked = 0

    async def run(mock: MockModel) -> None:
        nonlocal asked
        urls = [mock.openai_url] * 4
        opened = await asyncio.gather(*(http.post(url, {}, b"{}") for url in urls))
        for response in opened:
            async with response:
                await read_body(response)
        with pytest.raises(http.ConnectError, match="closed the connection"):
            await http.post(mock.openai_url, {}, b"{}")
        asked = len(mock.requests) - len(urls)

    with MockModel([reply("a")] * 4 + [dropped()]) as mock:
        asyncio.run(run(mock))
    assert asked == 2


def test_each_event_loop_has_its_own_pool_and_closes_it(caplog):
    with MockModel([reply("a")]) as mock:
        read_all(mock.openai_url)
        read_all(mock.openai_url)
        assert [request.connection for request in mock.requests] == [1, 2]
    assert not http._pools
    assert not caplog.records


def test_a_failure_keeps_status_and_body():
    step = failure(429, {"error": {"message": "slow"}})
    with MockModel([step]) as mock, pytest.raises(http.StatusError) as caught:
        read_all(mock.openai_url)
    assert (caught.value.status, caught.value.body) == (429, '{"error": {"message": "slow"}}')


def test_a_long_error_body_is_cut():
    step = failure(500, b"x" * (http.MAX_ERROR_BODY_BYTES + 5))
    with MockModel([step]) as mock, pytest.raises(http.StatusError) as caught:
        read_all(mock.openai_url)
    assert len(caught.value.body) == http.MAX_ERROR_BODY_BYTES


@pytest.mark.parametrize("status", [307, 308])
def test_a_server_may_send_a_request_on_to_another_of_its_paths(status):
    with MockModel([failure(status, b"", {"location": "/v1/there"}), reply("hello")]) as mock:
        assert b"hello" in read_all(mock.openai_url)
        first, second = mock.requests
        assert (first.path, second.path) == ("/v1", "/v1/there")
        assert first.body == second.body and first.headers["x-test"] == second.headers["x-test"]


def test_a_circle_of_redirects_ends():
    with MockModel([failure(307, b"", {"location": "/v1/there"})] * 20) as mock:
        with pytest.raises(http.StatusError, match="307"):
            read_all(mock.openai_url)
        assert len(mock.requests) == 11


@pytest.mark.parametrize(
    ("status", "target"), [(302, "/v1/there"), (307, "http://127.0.0.1:1/"), (308, "ftp://localhost"), (308, "//[x")]
)
def test_a_request_and_its_key_go_nowhere_else(status, target):
    with MockModel([failure(status, b"", {"location": target})]) as mock:
        with pytest.raises(http.StatusError) as caught:
            read_all(mock.openai_url)
        assert len(mock.requests) == 1
    assert caught.value.status == status
    assert f"redirects to {target}: use that address" in caught.value.body


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\x00\x01 rubbish\r\n\r\n", "Bad status line"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n", "Got more than 8190 bytes"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "Invalid character in chunk size"),
    ],
)
def test_what_is_no_http_is_called_so(answer, said):
    async def run() -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        where = "127.0.0.1:{1}".format(*server.sockets[0].getsockname())
        async with server:
            with pytest.raises(http.ConnectError) as caught:
                async with await http.post(f"http://user:secret@{where}/v1?key=secret", {}, b"{}"):
                    pass
        text = str(caught.value)
        assert text.startswith(f"{where} did not answer in sound HTTP: {said}")
        return text

    text = asyncio.run(run())
    assert "\n" not in text and "secret" not in text


def test_nothing_is_retried_when_the_server_hangs_up():
    with MockModel([reply(cut(), finish="stop")]) as mock:
        assert b"finish" in read_all(mock.openai_url)  # what came before the cut
        assert len(mock.requests) == 1


def test_a_dead_server_is_named():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(http.ConnectError, match=f"127.0.0.1:{port}.*refused"):
            read_all(f"http://user:secret@127.0.0.1:{port}/v1")


@pytest.mark.parametrize("url", ["", "nonsense", "http://", "http://[::1", "ftp://example.test/x"])
def test_a_bad_address_is_a_connect_error(url):
    with pytest.raises(http.ConnectError):
        read_all(url)


def test_a_server_that_drops_the_connection():
    with MockModel([dropped()]) as mock:
        with pytest.raises(http.ConnectError, match="closed the connection without an answer"):
            read_all(mock.openai_url)
        assert len(mock.requests) == 1


def test_a_body_packed_in_a_broken_way():
    step = raw(b"no gzip")
    step.headers["content-encoding"] = "gzip"
    with MockModel([step]) as mock, pytest.raises(http.UnreadableError, match=r"cannot be read: .*gzip"):
        read_all(mock.openai_url)
    refused = failure(500, b"no gzip", {"content-encoding": "gzip"})
    with MockModel([refused]) as mock, pytest.raises(http.StatusError) as caught:
        read_all(mock.openai_url)
    assert caught.value.status == 500


def test_a_server_that_accepts_and_says_nothing():
    with MockModel([silent()]) as mock:
        with pytest.raises(http.IdleTimeoutError, match=r"no data for 0\.05 s"):
            read_all(mock.openai_url, idle_timeout=0.05)
        mock.wait_hangups(1)


def test_a_server_that_falls_silent():
    with MockModel([reply("a", stall())]) as mock:
        with pytest.raises(http.IdleTimeoutError):
            read_all(mock.openai_url, idle_timeout=0.05)
        mock.wait_hangups(1)


def test_leaving_early_closes_the_socket():
    async def run(url: str) -> None:
        async with await http.post(url, {}, b"{}") as response:
            await response.read()

    with MockModel([reply("a", gate("never"))]) as mock:
        asyncio.run(run(mock.openai_url))
        mock.wait_hangups(1)


@pytest.mark.parametrize("step", [silent(), reply("a", gate("never"))], ids=["before the headers", "in the body"])
def test_cancelling_closes_the_socket(step):
    async def run(mock: MockModel) -> None:
        async def read() -> None:
            async with await http.post(mock.openai_url, {}, b"{}") as response:
                await read_body(response)

        task = asyncio.create_task(read())
        await asyncio.to_thread(mock.wait_requests, 1)
        if not step.silent:
            await asyncio.to_thread(mock.wait_gate, "never")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(mock.wait_hangups, 1)  # while the loop and the pool still live

    with MockModel([step]) as mock:
        asyncio.run(run(mock))


@contextmanager
def recording_proxy(answer: bytes):
    """A proxy that answers every request itself and tells what it was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", asked
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"


@pytest.fixture
def no_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


def test_the_proxy_of_the_environment_is_used(no_proxies):
    with recording_proxy(OK) as (address, asked):
        no_proxies.setenv("HTTP_PROXY", f"http://me:pw@{address}")
        assert read_all("http://model.test/v1/x") == b"hi"
    assert asked[0].startswith(b"POST http://model.test/v1/x HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6cHc=\r\n" in asked[0]


def test_an_explicit_proxy_needs_no_scheme_and_wins(no_proxies):
    with recording_proxy(OK) as (address, asked):
        no_proxies.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        assert read_all("http://model.test/v1/x", proxy=address) == b"hi"
    assert len(asked) == 1


def test_https_goes_through_a_tunnel_and_a_refusal_is_explained(no_proxies):
    with recording_proxy(b"HTTP/1.1 407 Log in first\r\ncontent-length: 0\r\n\r\n") as (address, asked):
        no_proxies.setenv("HTTPS_PROXY", f"http://me:hush@{address}")
        with pytest.raises(http.ConnectError) as caught:
            read_all("https://model.test/v1/x")
    assert asked[0].startswith(b"CONNECT model.test:443 HTTP/1.1\r\n")
    refused = "The proxy refused to connect to model.test:443: 407 Log in first. It wants another login"
    assert str(caught.value) == refused and caught.value.is_final  # not tried again


@pytest.mark.parametrize(
    ("url", "no_proxy", "is_direct"),
    [
        ("http://127.0.0.1/", "", True),  # of this machine
        ("http://10.1.2.3/", "10.1.2.3", True),
        ("http://10.1.2.3:8000/", "10.1.2.3:8000", True),
        ("http://10.1.2.3:8000/", "10.1.2.3:80", False),
        ("http://10.1.2.3/", "one.test, 10.0.0.0/8", True),
        ("http://11.1.2.3/", "10.0.0.0/8,nonsense/9", False),
        ("http://[fd00::2]/", "10.0.0.0/8,fd00::/8", True),
        ("http://ten.test/", "10.0.0.0/8", False),
        ("https://a.model.test/", ".model.test", True),
        ("https://a.model.test/", "model.test", True),
        ("https://amodel.test/", "model.test", False),
        ("https://model.test/", "*", True),
    ],
)
def test_what_needs_no_proxy(no_proxies, url, no_proxy, is_direct):
    no_proxies.setenv("ALL_PROXY", "http://proxy.test:3128")
    no_proxies.setenv("NO_PROXY", no_proxy)
    assert (find_target(url, None).route.proxy is None) is is_direct


def test_importing_the_client_waits_for_the_first_request():
    code = "import sys, spindle.llm.http, spindle.llm.stream; print('aiohttp' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
