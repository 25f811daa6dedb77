"""Servers behind HTTP, with sessions, streams and logins, on a port of this machine."""

import asyncio
import json
import os
import sys
import time
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import msgspec
import pytest
from aiohttp import web

from spindle.base import trace
from spindle.base.strangers import Patience, StrangerError
from spindle.plugins.mcp import McpError
from spindle.plugins.mcp.authorization import OAuthClient
from spindle.plugins.mcp.oauth import Record, Tokens, keep, kept
from spindle.plugins.mcp.server_config import Servers
from spindle.plugins.mcp.shared_server import Server
from spindle.plugins.mcp.streamable import ServerEvents
from tests.support.agent_process import agent_environment

from .helpers import text_of, until


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 50))


class Site:
    """An MCP server with an authorization server beside it."""

    def __init__(self, *, modern: bool = False, login: bool = False, dpop: bool = False) -> None:
        self.modern = modern
        self.dpop = dpop
        """Tokens are bound to a key, and proofs need a nonce."""
        self.proofs: list[str] = []
        self.login = login
        self.url = ""
        self.sessions: set[str] = set()
        self.valid = {"token-1"}
        self.seen: list[tuple[str, str]] = []
        """Methods and headers of requests."""
        self.forms: list[dict[str, str]] = []
        self.hangups = 0
        self.forgotten = "Session not found"
        """What it says of a session that it does not know."""
        self.broken: Callable[[], web.Response] | None = None
        """Makes the answer to everything."""
        self.used = {"worn out"}
        """Refresh tokens that are not taken (again)."""
        self.busy = False
        """The authorization server is."""
        self.authority = ""
        """The authorization server that it names; itself if empty."""
        self.tokens_at = ""
        """The origin of the token endpoint that it names; its own if empty."""
        self.meta: dict[str, Any] = {}
        """`_meta` of the last call."""
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        """What the server says unasked."""

    @asynccontextmanager
    async def up(self) -> AsyncIterator["Site"]:
        app = web.Application()
        app.router.add_route("*", "/mcp", self.serve)
        app.router.add_route("*", "/mcp/sse", self.serve)
        app.router.add_get("/.well-known/oauth-protected-resource/mcp", self.resource)
        app.router.add_get("/.well-known/oauth-authorization-server", self.metadata)
        app.router.add_post("/register", self.register)
        app.router.add_get("/authorize", self.authorize)
        app.router.add_post("/token", self.token)
        app.router.add_route("*", "/moved", self.moved)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self.down = runner.cleanup
        site = web.TCPSite(runner, "127.0.0.1", int(self.url.rpartition(":")[2].partition("/")[0] or 0))
        await site.start()
        assert site._server is not None
        self.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self.url = f"{self.origin}/mcp"
        try:
            yield self
        finally:
            await runner.cleanup()

    @asynccontextmanager
    async def server(self, **more: Any) -> AsyncIterator[Server]:
        servers = Servers()
        servers.add({"site": {"url": self.url, "timeout": 5, **more}}, "test")
        server = Server(servers.configs["site"], "/", frozenset)
        try:
            yield server
        finally:
            await server.close()

    # -- the MCP server --------------------------------------------------------------------------

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self.broken is not None:
            return self.broken()
        scheme = "DPoP" if self.dpop else "Bearer"
        if self.login and request.headers.get("Authorization", "").removeprefix(f"{scheme} ") not in self.valid:
            challenge = f'{scheme} resource_metadata="{self.origin}/.well-known/oauth-protected-resource/mcp"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        if self.dpop:
            self.proofs.append(request.headers["DPoP"])
            if self.nonce(request) != "once":
                more = {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"', "DPoP-Nonce": "once"}
                return web.Response(status=401, headers=more)
        session = request.headers.get("Mcp-Session-Id")
        if request.method == "DELETE":
            self.sessions.discard(session or "")
            self.seen.append(("DELETE", ""))
            return web.Response()
        if request.method == "GET":
            return await self.unasked(request)
        message = await request.json()
        method, id = message.get("method", ""), message.get("id")
        self.seen.append((method, request.headers.get("Mcp-Method", "")))
        if method == "server/discover":
            if not self.modern:
                return web.Response(status=400, text="Bad Request: no session")
            capabilities = {"tools": {"listChanged": True}}
            return self.answer(
                id, {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "resultType": "complete"}
            )
        if method == "initialize":
            made = f"session-{len(self.seen)}"
            self.sessions.add(made)
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {},
            }
            return self.answer(id, result, {"Mcp-Session-Id": made})
        if not self.modern and session not in self.sessions:
            return self.no_session
        if id is None:
            return web.Response(status=202)
        if method == "subscriptions/listen":
            await asyncio.sleep(0.02)
            return web.Response(content_type="text/event-stream", body=b": that was it\n\n")
        if method == "tools/list":
            names = ["stream", "hang", *(["late"] if self.said.qsize() or self.told else [])]
            return self.answer(id, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]})
        self.meta = message["params"].get("_meta", {})
        if message["params"]["name"] == "hang":
            return await self.hang(request)
        return await self.stream(request, id, message["params"].get("_meta", {}).get("progressToken"))

    told = False
    opens_after = 0.0
    """Seconds until it is ready to say something unasked."""
    short_streams = False
    """What it says unasked ends without a word."""

    @property
    def no_session(self) -> web.Response:
        body = {"jsonrpc": "2.0", "error": {"code": -32000, "message": self.forgotten}, "id": None}
        return web.json_response(body, status=400 if self.forgotten.startswith("Bad Request") else 404)

    def answer(self, id: Any, result: Any, headers: dict[str, str] | None = None) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": id, "result": result}, headers=headers)

    async def stream(self, request: web.Request, id: Any, token: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        progress = {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1},
        }
        result = {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "streamed"}]}}
        await response.write(b": comment\r\n\r\nevent: message\r\ndata: " + json.dumps(progress).encode() + b"\r\n\r\n")
        await response.write(b"data: " + json.dumps(result).encode() + b"\n\n")
        return response

    async def hang(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b": still here\n\n")
                await asyncio.sleep(0.02)
        except ConnectionError:
            self.hangups += 1
        return response

    async def unasked(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(("GET", ""))
        if self.short_streams:
            await asyncio.sleep(0.02)
            return web.Response(content_type="text/event-stream")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await asyncio.sleep(self.opens_after)
        self.seen.append(("stream is open", ""))
        await response.prepare(request)
        message = await self.said.get()
        self.told = True
        await response.write(b"data: " + json.dumps(message).encode() + b"\n\n")
        return response

    async def moved(self, request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": request.query.get("to", "/mcp")})

    # -- the authorization server ----------------------------------------------------------------

    async def resource(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "resource": self.url,
                "authorization_servers": [self.authority or self.origin],
                "scopes_supported": ["a"],
            }
        )

    async def metadata(self, request: web.Request) -> web.Response:
        here = {
            name: f"{(self.tokens_at if path == 'token' else '') or self.origin}/{path}"
            for name, path in (
                ("authorization_endpoint", "authorize"),
                ("token_endpoint", "token"),
                ("registration_endpoint", "register"),
            )
        }
        return web.json_response({"issuer": self.origin, **here, "code_challenge_methods_supported": ["S256"]})

    async def register(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"client_id": "made-up", **body}, status=201)

    async def authorize(self, request: web.Request) -> web.Response:
        back = urlencode({"code": "code-1", "state": request.query["state"]})
        self.forms.append(dict(request.query))
        return web.Response(status=302, headers={"Location": f"{request.query['redirect_uri']}?{back}"})

    async def token(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        self.forms.append(form)
        if self.dpop:
            self.proofs.append(request.headers["DPoP"])
        if form.get("refresh_token") in self.used:
            return web.json_response({"error": "invalid_grant"}, status=400)
        if self.busy:
            return web.Response(status=429, text="slow down")
        if "refresh_token" in form:
            self.used.add(form["refresh_token"])
            await asyncio.sleep(0.1)
        made = f"token-{len(self.forms)}"
        self.valid.add(made)
        kind = "DPoP" if self.dpop else "Bearer"
        lasting = {"refresh_token": f"again-{made}", "expires_in": 3600}
        return web.json_response({"access_token": made, "token_type": kind, **lasting})

    @staticmethod
    def nonce(request: web.Request) -> str | None:
        claims = request.headers["DPoP"].split(".")[1]
        nonce: str | None = json.loads(urlsafe_b64decode(claims + "==")).get("nonce")
        return nonce


@pytest.mark.parametrize("modern", [False, True])
def test_a_call_with_a_stream(modern: bool) -> None:
    async def work() -> None:
        async with Site(modern=modern).up() as site:
            async with site.server() as server:
                progress: list[Any] = []
                assert text_of(await server.call("stream", {}, progress.append)) == "streamed"
                assert progress[0]["progress"] == 1
                assert server.version == ("2026-07-28" if modern else "2025-06-18") and server.pid is None
            named = [header for method, header in site.seen if method == "tools/call"]
            assert named == (["tools/call"] if modern else [""])
            assert (("DELETE", "") in site.seen) is not modern

    run(work())


@pytest.mark.parametrize("modern", [False, True])
def test_a_server_is_told_which_span_a_call_is_for(modern: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "outgoing", lambda: {"traceparent": "00-aa-bb-01"})

    async def work() -> None:
        async with Site(modern=modern).up() as site, site.server() as server:
            await server.call("stream", {}, lambda _: None)
            assert site.meta["traceparent"] == "00-aa-bb-01" and "progressToken" in site.meta

    run(work())


@pytest.mark.parametrize("words", ["Session not found", "Bad Request: No valid session ID provided"])
def test_a_session_that_the_server_has_forgotten_is_begun_again(words: str) -> None:
    async def work() -> None:
        async with Site().up() as site, site.server() as server:
            site.forgotten = words
            await server.call("stream", {})
            site.sessions.clear()
            calls = [server.call("stream", {}) for _ in range(3)]
            assert [text_of(answer) for answer in await asyncio.gather(*calls)] == ["streamed"] * 3
            assert server.state == "ready" and len(site.sessions) == 1
            assert [method for method, _ in site.seen].count("initialize") == 2

    run(work())


@pytest.mark.parametrize("modern", [False, True])
def test_a_server_that_goes_away_and_comes_back(modern: bool) -> None:
    async def work() -> None:
        site = Site(modern=modern)
        async with site.up(), site.server() as server:
            await server.call("stream", {})
            await site.down()
            with pytest.raises(McpError, match='MCP server "site": Cannot reach 127'):
                await server.call("stream", {})
            assert server.state == "stopped" and "Cannot reach" in (server.error or "")
            async with site.up():
                assert text_of(await server.call("stream", {})) == "streamed"
                assert server.state == "ready" and server.error is None

    run(work())


def test_what_a_server_says_unasked() -> None:
    async def work() -> None:
        async with Site().up() as site, site.server() as server:
            await server.call("stream", {})
            site.said.put_nowait({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            await until(lambda: any(tool.name == "late" for tool in server.listing.tools))  # type: ignore[union-attr]

    run(work())


@pytest.mark.parametrize("modern", [False, True])
def test_a_call_that_is_given_up_closes_its_stream(modern: bool) -> None:
    async def work() -> None:
        async with Site(modern=modern).up() as site, site.server(timeout=0.5) as server:
            with pytest.raises(McpError, match=r"no answer to tools/call within 0\.5 s"):
                await server.call("hang", {})
            await until(lambda: site.hangups == 1)
            assert (("notifications/cancelled", "") in site.seen) is not modern

    run(work())


def test_redirects_stay_on_the_server() -> None:
    async def work() -> None:
        async with Site(modern=True).up() as site:
            async with site.server(url=f"{site.origin}/moved") as server:
                assert text_of(await server.call("stream", {})) == "streamed"
            async with site.server(url=f"{site.origin}/moved?to=http://127.0.0.1:1/mcp") as server:
                with pytest.raises(
                    McpError, match=r"it redirects to http://127\.0\.0\.1:1/mcp: use that address instead"
                ):
                    await server.connected()

    run(work())


def test_a_server_that_is_not_there_and_one_that_speaks_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with Site().up() as site:
            async with site.server(url="http://127.0.0.1:1/mcp") as server:
                with pytest.raises(McpError, match=r"Cannot reach 127\.0\.0\.1:1: Connection refused"):
                    await server.connected()
            monkeypatch.setenv("PI_OFFLINE", "1")
            async with site.server(url="http://example.org/mcp") as server:
                with pytest.raises(McpError, match="this run is to stay offline"):
                    await server.connected()
            async with site.server(url=f"{site.origin}/none") as server:
                with pytest.raises(McpError, match="HTTP status 404"):
                    await server.connected()

    run(work())


def test_answers_that_are_none() -> None:
    packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    sse = 'set "type": "sse"'
    key = {"headers": {"Authorization": "Bearer stale"}}
    stranger = {"jsonrpc": "2.0", "id": 77, "result": {}}

    async def work() -> None:
        async with Site().up() as site:
            for answer, more, words in (
                (lambda: web.Response(body=b"not packed", headers=packed), {}, "The server's answer cannot be read"),
                (lambda: web.json_response(stranger), {}, "belongs to another request"),
                (lambda: web.Response(status=401), key, "does not accept the Authorization header of its entry"),
                (lambda: web.Response(status=405), {"type": "http", "url": f"{site.origin}/mcp/sse"}, sse),
            ):
                site.broken = answer
                async with site.server(**more) as server:
                    with pytest.raises(McpError, match=words):
                        await server.connected()
                    assert server.state == "failed"

    run(work())


def test_changes_are_heard_of_though_the_stream_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spindle.base.limits.MCP_RECONNECT", 0.02)
    monkeypatch.setattr("spindle.base.limits.MCP_PROBE", 0.01)  # a stream that lived so long was a good one

    async def work() -> None:
        async with Site(modern=True).up() as site, site.server() as server:
            await server.connected()
            listens = lambda: [method for method, _ in site.seen].count("subscriptions/listen")  # noqa: E731
            await until(lambda: listens() > 10)
            site.told = True  # while nobody listened
            await until(lambda: any(tool.name == "late" for tool in server.listing.tools))  # type: ignore[union-attr]

    run(work())


def test_a_proxy_that_ends_streams_makes_no_one_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spindle.base.limits.MCP_RECONNECT", 0.02)
    monkeypatch.setattr("spindle.base.limits.MCP_PROBE", 0.01)

    async def work() -> None:
        async with Site().up() as site, site.server() as server:
            site.short_streams = True
            await server.connected()
            await until(lambda: site.seen.count(("GET", "")) > 10)
            site.short_streams = False
            site.said.put_nowait({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            await until(lambda: any(tool.name == "late" for tool in server.listing.tools))  # type: ignore[union-attr]

    run(work())


@pytest.mark.parametrize("patience", (60.0, 0.02))
def test_a_tool_is_called_when_its_questions_can_be_heard(patience: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spindle.base.limits.MCP_HEAR", patience)

    async def work() -> None:
        async with Site().up() as site, site.server() as server:
            site.opens_after = 0.3 if patience > 1 else 60
            assert (await server.call("stream", {}))["content"][0]["text"] == "streamed"
            seen = [method for method, _ in site.seen if method in ("stream is open", "tools/call")]
            assert seen == (["stream is open", "tools/call"] if patience > 1 else ["tools/call"])

    run(work())


def test_a_login_is_asked_for_and_tokens_are_renewed(agent: Path) -> None:
    async def work() -> None:
        async with Site(modern=True, login=True).up() as site:
            async with site.server() as server:
                with pytest.raises(McpError, match="it wants a login: spindle mcp login site"):
                    await server.connected()
                assert server.state == "login"
            client = OAuthClient("me", "secret", "client_secret_basic")
            record = Record(
                site.origin, f"{site.origin}/token", client, Tokens("old", "fine", time.time() - 5), site.url
            )
            keep(site.url, record)
            assert (agent / "mcp-auth.json").stat().st_mode & 0o777 == 0o600
            async with site.server() as server:
                assert text_of(await server.call("stream", {})) == "streamed"
            assert site.forms == [{"grant_type": "refresh_token", "refresh_token": "fine", "resource": site.url}]
            renewed = kept(site.url)
            assert renewed is not None and renewed.tokens is not None and renewed.tokens.refresh == "again-token-1"
            site.valid.clear()  # the server has changed its mind
            async with site.server() as server:
                assert text_of(await server.call("stream", {})) == "streamed"
            keep(site.url, Record(site.origin, f"{site.origin}/token", client, Tokens("old", "worn out", 1.0)))
            async with site.server() as server:
                with pytest.raises(McpError, match="it wants a login"):
                    await server.connected()
            assert kept(site.url).tokens is None  # type: ignore[union-attr]

    run(work())


def worn(site: Site, refresh: str, access: str = "old", key: str | None = None) -> Record:
    """Return a login whose token is over."""
    tokens = Tokens(access, refresh, time.time() - 5, bound=key is not None)
    return Record(site.origin, f"{site.origin}/token", OAuthClient("me"), tokens, dpop_key=key)


def test_a_login_in_another_window_is_noticed(agent: Path) -> None:
    async def work() -> None:
        async with Site(modern=True, login=True).up() as site, site.server() as server:
            keep(site.url, Record(site.origin, f"{site.origin}/token", OAuthClient("me"), Tokens("token-1")))
            await server.call("stream", {})
            site.valid.clear()
            with pytest.raises(McpError, match="it wants a login"):
                await server.call("stream", {})
            assert server.state == "login"
            site.valid.add("token-2")
            keep(site.url, Record(site.origin, f"{site.origin}/token", OAuthClient("me"), Tokens("token-2")))
            assert text_of(await server.call("stream", {})) == "streamed"
            assert server.state == "ready" and server.error is None

    run(work())


def test_a_refresh_token_is_used_once_though_several_want_to(agent: Path) -> None:
    async def work() -> None:
        async with Site(modern=True, login=True).up() as site:
            keep(site.url, worn(site, "once"))
            async with site.server() as one, site.server() as two:  # as two processes would: each reads the file
                answers = await asyncio.gather(one.call("stream", {}), two.call("stream", {}))
            assert [text_of(answer) for answer in answers] == ["streamed", "streamed"]
            assert len(site.forms) == 1
            record = kept(site.url)
            assert record is not None and record.tokens is not None
            assert [path.name for path in agent.iterdir() if path.name.endswith(".lock")] == []

    run(work())


def test_a_busy_authorization_server_does_not_cost_the_login(agent: Path) -> None:
    async def work() -> None:
        async with Site(modern=True, login=True).up() as site:
            keep(site.url, worn(site, "fine"))
            site.busy = True
            async with site.server() as server:
                with pytest.raises(McpError, match="no token from its authorization server: HTTP status 429"):
                    await server.connected()
                assert server.state == "failed"
            site.busy = False
            async with site.server() as server:
                assert text_of(await server.call("stream", {})) == "streamed"

    run(work())


BROWSER = """
import sys, urllib.error, urllib.parse, urllib.request
asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(sys.argv[1]).query))
for stray in ("", "?code=stolen&state=%C3%A9", "?error=access_denied"):  # of another program on the machine
    try:
        urllib.request.urlopen(asked["redirect_uri"] + stray)
    except urllib.error.HTTPError as error:
        assert error.code == 404
urllib.request.urlopen(sys.argv[1]).read()
"""


def test_the_command_logs_in_and_out(agent: Path, project: Path, tmp_path: Path) -> None:
    walk = tmp_path / "browser"
    walk.write_text(f"#!{sys.executable}\n{BROWSER}")
    walk.chmod(0o755)
    env = agent_environment(agent, BROWSER=str(walk))

    async def spindle(*words: str) -> str:
        command = [sys.executable, "-m", "spindle", "mcp", *words]
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*command, cwd=project, env=env, stdout=pipe, stderr=pipe)
        out, err = await child.communicate()
        return (out + err).decode()

    async def work() -> None:
        async with Site(login=True).up() as site:
            await spindle("add", "site", site.url)
            assert "site: logged in" in await spindle("login", "site")
            asked, form = site.forms
            assert asked["client_id"] == "made-up" and asked["scope"] == "a" and asked["resource"] == site.url
            assert form["code"] == "code-1" and form["redirect_uri"] == asked["redirect_uri"] and form["code_verifier"]
            assert "site (http): ready, 2 tools" in await spindle("list")
            assert "site: logged out" in await spindle("logout", "site")
            assert json.loads((agent / "mcp-auth.json").read_text()) == {}

    run(work())


JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def test_programs_log_in_by_themselves(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jwt = pytest.importorskip("jwt")
    from spindle.plugins.mcp import signing

    monkeypatch.setenv("MY_KEY", signing.new_key())

    async def forms(site: Site, **oauth: Any) -> list[dict[str, str]]:
        site.forms.clear()
        keep(site.url, None)
        async with site.server(oauth=oauth) as server:
            assert text_of(await server.call("stream", {})) == "streamed"
        return site.forms

    async def work() -> None:
        async with Site(login=True).up() as site:
            (form,) = await forms(site, assertion="!echo of-the-platform")
            assert form == {
                "grant_type": JWT_BEARER,
                "assertion": "of-the-platform",
                "scope": "a",
                "resource": site.url,
            }
            (form,) = await forms(site, clientId="me", privateKey="${MY_KEY}", grantType="client_credentials")
            key = jwt.algorithms.load_pem_private_key(os.environ["MY_KEY"].encode(), None).public_key()
            said = jwt.decode(form["client_assertion"], key, ["ES256"], audience=site.origin)
            assert said["iss"] == said["sub"] == "me" and form["grant_type"] == "client_credentials"
            assert "PRIVATE KEY" not in (agent / "mcp-auth.json").read_text()
            provider = {"tokenEndpoint": f"{site.origin}/token", "clientId": "app", "idToken": "who-i-am"}
            asked, form = await forms(site, clientId="me", clientSecret="s", identityProvider=provider)
            assert asked["subject_token"] == "who-i-am" and asked["audience"] == site.origin
            assert asked["resource"] == site.url and asked["requested_token_type"].endswith(":id-jag")
            assert form["grant_type"] == JWT_BEARER and form["assertion"] == "token-1"
            async with site.server(oauth={"assertion": "!false"}) as server:
                keep(site.url, None)
                with pytest.raises(McpError, match="no value from the shell command: false"):
                    await server.connected()
            async with site.server(
                oauth={"clientId": "me", "privateKey": "x", "grantType": "client_credentials"}
            ) as bad:
                with pytest.raises(McpError, match="not a private key in PEM form"):
                    await bad.connected()

    run(work())


SECRETS: dict[str, dict[str, Any]] = {
    "a secret": {"clientId": "me", "clientSecret": "s", "grantType": "client_credentials"},
    "an assertion": {"assertion": "of-the-platform"},
    "a provider": {"clientId": "me", "identityProvider": {"tokenEndpoint": "", "clientId": "app", "idToken": "who"}},
}


@pytest.mark.parametrize("oauth", SECRETS.values(), ids=SECRETS)
def test_secrets_go_only_where_they_belong(agent: Path, oauth: dict[str, Any]) -> None:
    """A server names the authorization server, but does not decide where the user's secrets go."""

    async def work() -> None:
        async with Site(login=True).up() as site, Site().up() as other:
            if "identityProvider" in oauth:
                oauth["identityProvider"]["tokenEndpoint"] = f"{site.origin}/token"
            site.authority = other.origin
            other.valid = site.valid
            for pinned, said in (({}, "issuer"), ({"issuer": "https://login.example"}, "login.example")):
                async with site.server(oauth={**oauth, **pinned}) as server:
                    with pytest.raises(McpError, match=said):
                        await server.connected()
                assert not other.forms and not site.forms
            async with site.server(oauth={**oauth, "issuer": other.origin}) as server:
                assert text_of(await server.call("stream", {})) == "streamed"
            assert len(other.forms) == 1
            # A login that is kept, from an authorization server that the entry does not name (any more).
            record = kept(site.url)
            assert record is not None and record.tokens is not None
            old = msgspec.structs.replace(record.tokens, access="old", refresh="fine", expires_at=1.0)
            keep(site.url, msgspec.structs.replace(record, tokens=old))
            async with site.server(oauth={**oauth, "issuer": site.origin}) as server:
                with pytest.raises(McpError, match="issuer"):
                    await server.connected()
            assert len(other.forms) == 1
            # Its own origin may describe another place for tokens.
            keep(site.url, None)
            site.authority, site.tokens_at = site.origin, other.origin
            async with site.server(oauth=oauth) as server:
                with pytest.raises(McpError, match="issuer"):
                    await server.connected()
            assert len(other.forms) == 1

    run(work())


def test_a_token_that_is_bound_to_a_key_is_of_no_use_without(agent: Path) -> None:
    jwt = pytest.importorskip("jwt")
    site = Site(login=True, dpop=True)

    def read(proof: str) -> Any:
        return jwt.decode(proof, jwt.PyJWK(jwt.get_unverified_header(proof)["jwk"]).key, ["ES256"])

    async def work() -> None:
        async with site.up(), site.server(oauth={"assertion": "a"}) as server:
            await server.call("stream", {})
            record = kept(site.url)
            assert record is not None and record.tokens is not None and record.tokens.bound and record.dpop_key
            proofs = [read(proof) for proof in site.proofs]
            assert len({proof["jti"] for proof in proofs}) == len(proofs) > 3
            to_server = [proof for proof in proofs if proof["htu"] == site.url]
            assert all(proof["ath"] for proof in to_server)
            assert to_server[0].get("nonce") is None and to_server[-1]["nonce"] == "once"
            keep(site.url, worn(site, "fine", key=record.dpop_key))
        async with site.up(), site.server() as server:  # the same key in another process, and the token is renewed
            await server.call("stream", {})
            assert site.forms[-1]["grant_type"] == "refresh_token" and read(site.proofs[-1])["htu"] == site.url

    run(work())


def test_events_in_pieces() -> None:
    whole = b"\xef\xbb\xbfid: 1\r\nretry: 1500\r\ndata: a\r\ndata: b\r\n\r\n: c\n\nevent: x\ndata:\n\ndata: {}\n\n"
    for size in (1, 2, 3, 7, len(whole)):
        stream = ServerEvents(Patience())
        found = [event for start in range(0, len(whole), size) for event in stream.feed(whole[start : start + size])]
        assert found == [b"a\nb", b"{}"] and stream.last_id == "1" and stream.retry == 1.5
    stream = ServerEvents(Patience())
    with pytest.raises(StrangerError, match="more than 64 MB"):
        for _ in range(70):
            stream.feed(b"x" * (1 << 20))


def test_nothing_secret_is_shown() -> None:
    assert "secret" not in repr(Record("i", "t", OAuthClient("c", "secret"), Tokens("secret")))
    assert os.environ.get("SPINDLE_DIR")
