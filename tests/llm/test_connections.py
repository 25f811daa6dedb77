"""Connections in trouble: cut, stopped and flooded at every point; TLS, tunnels, redirects and time limits."""

import asyncio
import gc
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from spindle.base import limits
from spindle.llm import connection, http

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nX-A: b\r\n\r\nhello world"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nX-T: 1\r\n\r\n"
AFTER_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + LENGTH


class Server:
    """Calls `serve` for each connection; knows how many there were, and which have ended."""

    def __init__(self, serve: Serve) -> None:
        self.connections = self.requests = 0
        self.ended = asyncio.Event()
        """Set when no connection is open."""
        self._open = 0
        self._serve = serve

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open += 1
        self.ended.clear()
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        writer.close()
        self._open -= 1
        if not self._open:
            self.ended.set()


@asynccontextmanager
async def serving(
    serve: Serve, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, limit: int = 1 << 16
) -> AsyncIterator[tuple[str, Server]]:
    """Serve on a port of loopback; gives the URL."""
    server = Server(serve)
    listening = await asyncio.start_server(server.handle, host, 0, ssl=tls, limit=limit)
    port = listening.sockets[0].getsockname()[1]
    name = "localhost" if tls else f"[{host}]" if ":" in host else host
    try:
        yield f"{'https' if tls else 'http'}://{name}:{port}", server
    finally:
        listening.close()


async def asked(reader: asyncio.StreamReader) -> bytes:
    """Read one request, whose body is `{}`."""
    return await reader.readuntil(b"\r\n\r\n{}")


async def answer(url: str, **options) -> tuple[bytes, bool]:
    async with await http.post(url, {}, b"{}", **options) as response:
        body = b""
        while data := await response.read():
            body += data
        return body, response.whole


def run(work: Awaitable[None]) -> None:
    """Run a test; nothing may be left behind: no task, no exception that nobody has seen."""
    told: list[dict] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        async with asyncio.timeout(40):  # a busy machine
            await work
        gc.collect()

    asyncio.run(watched())
    assert told == []


# -- servers that hang up -------------------------------------------------------------------------


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("whole", [LENGTH, CHUNKED, AFTER_CONTINUE], ids=["length", "chunked", "continue"])
def test_a_server_that_hangs_up_at_every_byte(whole: bytes, reset: bool):
    """A cut answer is never whole, and is never asked for a second time once its first byte was there."""
    head = whole.rindex(b"\r\n\r\nhello") + 4 if b"\r\n\r\nhello" in whole else whole.index(b"\r\n\r\n") + 4
    at = 0
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await asked(reader)
        writer.write(LENGTH)  # the second request uses the connection again
        await asked(reader)
        requests += 1
        writer.write(whole[:at])
        await writer.drain()
        if reset:
            seen = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, seen)
            writer.transport.abort()

    async def work() -> None:
        nonlocal at, requests
        for at in range(1, len(whole)):
            requests = 0
            async with serving(serve) as (url, server):
                assert await answer(url) == (b"hello world", True)
                try:
                    body, is_whole = await answer(url)
                except http.ConnectError as error:
                    assert at < head or reset, (at, error)
                else:
                    assert at >= head, at
                    assert b"hello world".startswith(body)
                    assert not is_whole, at
                assert (requests, server.connections) == (1, 1), at

    run(work())


def test_the_answer_to_a_request_that_is_not_read_to_its_end():
    """A server may refuse a large request before it was sent."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large")
        await reader.read()

    async def work() -> None:
        async with serving(serve) as (url, server):
            with pytest.raises(http.StatusError) as caught:
                async with await http.post(url, {}, bytes(40_000_000)):
                    pass
            assert (caught.value.status, caught.value.body) == (413, "too large")
            await server.ended.wait()  # the connection cannot be used again: the rest of the request would come first

    run(work())


# -- stopping ---------------------------------------------------------------------------------------


def test_cancelling_at_every_point(certificate: Path, monkeypatch: pytest.MonkeyPatch):
    """Through a tunnel and TLS, cancelled after each step of the event loop: every socket is closed."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(connection, "_context", None)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await asked(reader)
            for index in range(len(CHUNKED)):
                writer.write(CHUNKED[index : index + 1])
                await asyncio.sleep(0)

    async def work() -> None:
        tls = server_context(certificate)
        async with serving(serve, tls=tls) as (url, server), serving(tunnel([])) as (proxy, hop):
            assert await answer(url, proxy=proxy) == (b"hello world", True)  # the context is made
            connection_kept = http._pools[asyncio.get_running_loop()][0]
            for used in (False, True):
                steps, done = 0, False
                while not done:
                    if not used:
                        connection_kept.close()
                    else:
                        await answer(url, proxy=proxy)
                    task = asyncio.create_task(answer(url, proxy=proxy))
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    done = task.done()
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        assert await task == (b"hello world", True)
                    steps += 1
                assert steps > 20
            connection_kept.close()
            await server.ended.wait()
            await hop.ended.wait()

    run(work())


# -- back pressure, and floods ----------------------------------------------------------------------


def test_a_reader_that_is_slow_holds_the_server_back():
    size, sent = 64 << 20, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await asked(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(bytes(65536))
            await writer.drain()
            sent += 65536

    async def work() -> None:
        async with serving(serve) as (url, _), await http.post(url, {}, b"{}") as response:
            before = -1
            while before != sent:  # until the server cannot send any more
                before = sent
                await asyncio.sleep(0.2)
            assert sent < size / 2
            got = 0
            while data := await response.read():
                assert len(data) < 1 << 20
                got += len(data)
            assert (got, response.whole) == (size, True)

    run(work())


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param([b"HTTP/1.1 200 OK\r\n", *[b"X-%d: %s\r\n" % (i, b"a" * 8000) for i in range(127)]], id="headers"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n"] * 20_000, id="interim"),
        pytest.param([b"HTTP/1.1 200 OK\r\nX: ", *[b"a" * 8000] * 100], id="a header"),
        pytest.param([b"HTTP/1.1 200 ", *[b"a" * 8000] * 100], id="reason"),
        pytest.param([CHUNKED[:47], b"5;", *[b"a" * 8000] * 100], id="extension"),
        pytest.param([CHUNKED[:47], b"0\r\n", *[b"X: %s\r\n" % (b"a" * 8000)] * 100], id="trailers"),
    ],
)
def test_bytes_without_a_body_have_a_limit(flood: list[bytes]):
    """Each comes in pieces; the server then waits, and so must not the client."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        for piece in flood:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async def work() -> None:
        async with serving(serve) as (url, server):
            async with asyncio.timeout(20):
                try:
                    assert (await answer(url))[1] is False
                except http.ConnectError as error:
                    assert "did not answer in sound HTTP" in str(error)
            await server.ended.wait()

    run(work())


# -- time limits --------------------------------------------------------------------------------------


def test_a_server_that_accepts_no_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "CONNECT", 0.3)
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for one in (first, second):  # they fill the queue
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        with pytest.raises(http.ConnectError, match=r"did not accept the connection within 0\.3 s"):
            asyncio.run(answer(f"http://127.0.0.1:{full.getsockname()[1]}"))


@pytest.mark.parametrize(
    "sends", [b"", b"HTTP/1.1 200", LENGTH[:-3], CHUNKED[:60]], ids=["nothing", "head", "body", "chunk"]
)
def test_silence_has_a_limit_at_each_point(sends: bytes):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(sends)
        await reader.read()

    async def work() -> None:
        async with serving(serve) as (url, server):
            with pytest.raises(http.IdleTimeoutError, match=r"no data for 0\.2 s"):
                await answer(url, idle_timeout=0.2)
            await server.ended.wait()

    run(work())


def test_a_head_that_comes_byte_by_byte_has_the_time_of_one_silence():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def work() -> None:
        async with serving(serve) as (url, server):
            with pytest.raises(http.IdleTimeoutError):
                await answer(url, idle_timeout=0.3)
            await server.ended.wait()

    run(work())


def test_interim_responses_are_signs_of_life():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        for _ in range(12):
            await asyncio.sleep(0.1)
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await writer.drain()
        writer.write(LENGTH)

    async def work() -> None:
        async with serving(serve) as (url, _):
            assert await answer(url, idle_timeout=0.8) == (b"hello world", True)

    run(work())


def test_the_time_limit_of_a_request_is_none_of_the_next_on_its_connection():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for pause in (0, 0.4, 0.4, 5):
            await asked(reader)
            await asyncio.sleep(pause)
            writer.write(LENGTH)

    async def main() -> None:
        async with serving(serve) as (url, server):
            for limit in (0.2, None, 60):
                assert await answer(url, idle_timeout=limit) == (b"hello world", True)
            with pytest.raises(http.IdleTimeoutError):
                await answer(url, idle_timeout=0.2)
            assert server.connections == 1

    run(main())


def test_a_server_that_takes_a_large_request_slowly_is_not_silent():
    size = 40_000_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        left = size
        while left:
            left -= len(await reader.readexactly(min(left, 2_000_000)))
            await asyncio.sleep(0.06)
        writer.write(LENGTH)

    async def work() -> None:
        async with serving(serve, limit=1 << 21) as (url, _), await http.post(url, {}, bytes(size), 0.8) as response:
            assert await response.read() == b"hello world"

    run(work())


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 Fine\r\n\r\n"], ids=["proxy", "TLS"])
def test_a_tunnel_that_does_not_open_has_a_limit(says: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "CONNECT", 0.3)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(says)
        await reader.read()

    async def work() -> None:
        async with serving(serve) as (proxy, server):
            with pytest.raises(http.ConnectError, match=r"did not accept the connection within 0\.3 s"):
                await answer("https://model.test/", proxy=proxy)
            await server.ended.wait()

    run(work())


def test_an_unused_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "KEEP_ALIVE", 0.1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(LENGTH)
        await reader.read()

    async def work() -> None:
        async with serving(serve) as (url, server):
            await answer(url)
            await server.ended.wait()

    run(work())


# -- addresses, redirects ---------------------------------------------------------------------------


async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await asked(reader)
        writer.write(LENGTH)


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="there is no IPv6")
def test_ipv6():
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await asked(reader))
        writer.write(LENGTH)

    async def work() -> None:
        async with serving(serve, host="::1") as (url, _):
            assert await answer(url) == (b"hello world", True)
            assert f"Host: {url[7:]}\r\n".encode() in heard[0]

    run(work())


def test_a_name_with_two_addresses_that_both_refuse(monkeypatch: pytest.MonkeyPatch):
    """One reason is told, in the system's words."""

    async def work() -> None:
        async def both(*details, **more):
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1)),
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 1)),
            ]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
        with pytest.raises(http.ConnectError) as caught:
            await answer("http://twice.test:1/")
        assert str(caught.value) == "Cannot reach twice.test:1: Connection refused"

    asyncio.run(work())


def test_downloads_follow_redirects():
    def serve_at(places: dict[bytes, bytes]) -> Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
                if (to := places.get(path)) is None:
                    writer.write(LENGTH)
                else:
                    writer.write(b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % to)

        return serve

    async def work() -> None:
        async with serving(serve_at({b"/a": b"b?x=%2F", b"/loop": b"/loop"})) as (url, server):
            async with serving(serve_at({b"/": url.encode() + b"/a"})) as (first, _):
                assert await http.download(first, max_bytes=100, timeout=5) == b"hello world"
            assert server.connections == 1
            with pytest.raises(http.ConnectError, match="more than 10 redirects"):
                await http.download(f"{url}/loop", max_bytes=100, timeout=5)
            with pytest.raises(http.UnreadableError, match="larger than"):
                await http.download(url, max_bytes=5, timeout=5)

    run(work())


# -- TLS, tunnels -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of a private authority (its own), and the key beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    file = tmp_path_factory.mktemp("tls") / "cert.pem"
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost -keyout {file.with_suffix('.key')} -out {file}".split(),
        check=True,
        capture_output=True,
        timeout=60,
    )
    return file


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


def tunnel(heard: list[bytes], login: str = "") -> Serve:
    """A proxy that opens tunnels, for those who say `login`."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        heard.append(request)
        if f"Proxy-Authorization: {login}\r\n".encode() not in request and login:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 5\r\n\r\nlogin")
            return
        host, _, port = request.split()[1].decode().rpartition(":")
        there = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.0 200 Connection established\r\nProxy-agent: test\r\n\r\n")
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    return serve


@pytest.fixture
def trusting(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the private authority, as users do it."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(connection, "_context", None)


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("proxy_tls", [False, True], ids=["http proxy", "https proxy"])
def test_tls_through_a_tunnel_with_a_login(certificate: Path, proxy_tls: bool):
    heard: list[bytes] = []

    async def work() -> None:
        context = server_context(certificate)
        async with (
            serving(hello, tls=context) as (url, server),
            serving(tunnel(heard, "Basic bWU6cCBv"), tls=context if proxy_tls else None) as (proxy, hop),
        ):
            scheme, _, address = proxy.partition("://")
            login = f"{scheme}://me:p%20o@{address}"
            assert await answer(url, proxy=login) == (b"hello world", True)
            assert await answer(url, proxy=login) == (b"hello world", True)
            assert (server.connections, hop.connections) == (1, 1)  # the tunnel is used again
            assert await answer(url) == (b"hello world", True)  # another way to the same server
            assert server.connections == 2
            with pytest.raises(http.ConnectError, match="407 Proxy Authentication Required"):
                await answer(url, proxy=f"{scheme}://me:wrong@{address}")
        assert heard[0].startswith(b"CONNECT localhost:")

    run(work())


def test_a_certificate_of_an_unknown_authority_is_not_accepted(certificate: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "_context", None)

    async def work() -> None:
        async with serving(hello, tls=server_context(certificate)) as (url, _):
            with pytest.raises(http.ConnectError, match=r"The certificate of localhost:.* was not accepted") as caught:
                await answer(url)
            assert caught.value.is_final

    asyncio.run(work())


@pytest.mark.usefixtures("trusting")
def test_a_certificate_for_another_name_is_not_accepted(certificate: Path):
    async def work() -> None:
        async with serving(hello, tls=server_context(certificate)) as (url, _):
            with pytest.raises(http.ConnectError, match=r"was not accepted: .*127\.0\.0\.1"):
                await answer(url.replace("localhost", "127.0.0.1"))

    asyncio.run(work())


def test_a_proxy_of_another_kind_is_refused_in_words():
    with pytest.raises(http.ConnectError, match=r"'socks5.*http:// or https://") as caught:
        asyncio.run(answer("https://model.test/", proxy="socks5://me:hush@127.0.0.1:1080"))
    assert caught.value.is_final
    assert "hush" not in str(caught.value)
