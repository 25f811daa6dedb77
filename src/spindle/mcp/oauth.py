"""Logins at HTTP servers: OAuth 2.1 with discovery, PKCE, registration and refresh. Imported for HTTP servers only.

`Login` gives the transport a token and is told when one is refused. Getting a first token takes a person with a
browser, so that happens in `spindle mcp login` alone; everywhere else a token is only renewed. Tokens are kept in
`mcp-auth.json` in the agent directory, which no one else may read, by the server's address and the issuer they are of.
"""

import asyncio
import hashlib
import re
import secrets
import threading
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

import msgspec
from msgspec import Struct, field

from spindle import limits
from spindle.agent_dir import agent_dir
from spindle.config.user_files import BadFile, edit_json, hold_lock, read_object
from spindle.llm import http
from spindle.mcp import LoginNeeded, McpError
from spindle.mcp.connection import MODERN
from spindle.mcp.server_config import OAuthOptions, ServerConfig
from spindle.shapes.codec import DecodeError, decode, encode

_MARGIN: Final = 30.0
"""Seconds before its end that a token counts as over."""
_MAX_ATTEMPTS: Final = 2
_ATTEMPTS_WITHIN: Final = 60.0
"""So many logins in so many seconds; then a refusal is final."""
_MAX_BODY: Final = 1 << 20
T = TypeVar("T")
_METHODS: Final = ("none", "client_secret_basic", "client_secret_post")


class Browser(Protocol):
    """Where a person logs in."""

    redirect_uri: str

    async def visit(self, url: str) -> Mapping[str, str]:
        """Show the page, and return the parameters that come back to `redirect_uri`. Raises `McpError`."""


class Client(Struct, frozen=True):
    """What we are for an authorization server."""

    client_id: str
    client_secret: str | None = None
    method: str = "none"
    """How it is proved to the token endpoint."""
    redirect_uri: str | None = None


class Tokens(Struct, frozen=True):
    access: str
    refresh: str | None = None
    expires_at: float | None = None
    scope: str | None = None


class Record(Struct, frozen=True):
    """All that is kept about one server."""

    issuer: str
    token_endpoint: str
    client: Client
    tokens: Tokens | None = None
    resource: str | None = None

    def __repr__(self) -> str:
        return "Record(…)"


class ServerMetadata(Struct):
    """What an authorization server says about itself (RFC 8414, OpenID Connect Discovery)."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str = ""
    """Empty: only programs log in there."""
    registration_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


class ResourceMetadata(Struct):
    """What a server says about who may let us in (RFC 9728)."""

    resource: str
    authorization_servers: list[str] = field(default_factory=list)
    scopes_supported: list[str] | None = None


# -- what is kept ----------------------------------------------------------------------------------


def _file() -> Path:
    return agent_dir() / "mcp-auth.json"


def kept(url: str) -> Record | None:
    """Return what is kept for a server."""
    try:
        return msgspec.convert((read_object(_file()) or {}).get(url), Record | None)
    except (BadFile, msgspec.ValidationError):
        return None


def keep(url: str, record: Record | None) -> None:
    """Keep it; None forgets what was kept. Raises `McpError`."""

    def change(value: dict[str, Any]) -> None:
        value.pop(url, None)
        if record is not None:
            value[url] = msgspec.to_builtins(record)

    try:
        edit_json(_file(), change, 0o600)
    except (BadFile, OSError) as error:
        raise McpError(f"the login cannot be kept: {error}") from None


# -- one server --------------------------------------------------------------------------------------


class Login:
    def __init__(self, config: ServerConfig, browser: Browser | None = None) -> None:
        """`config` is resolved. Without a browser no one can log in, and tokens are only renewed."""
        self._url = config.url or ""
        self._name = config.name
        self._given = config.oauth
        self._browser = browser
        self._record: Record | None = None
        self._read = False
        self._attempts: list[float] = []
        """When logins were tried."""
        self._asked: str | None = None
        """The scopes that were asked for last."""
        self._one_at_a_time = asyncio.Lock()

    async def token(self) -> str | None:
        """Return a token that should be valid; None if there is none."""
        if not self._read:
            self._read, self._record = True, await asyncio.to_thread(kept, self._url)
        tokens = self._record.tokens if self._record is not None else None
        if tokens is None:
            return None
        if tokens.expires_at is not None and tokens.expires_at - _MARGIN < time.time():
            async with self._one_at_a_time:
                await self._renew(tokens.access)
            tokens = self._record.tokens if self._record is not None else None
        return None if tokens is None else tokens.access

    async def refused(self, status: int, headers: Mapping[str, str], token: str | None) -> bool:
        """A request was refused. Returns whether there is another token to try. Raises `McpError`."""
        challenge = headers.get("www-authenticate", "")
        more = status == 403
        if more and _parameter(challenge, "error") != "insufficient_scope":
            return False
        async with self._one_at_a_time:
            current = self._record.tokens.access if self._record is not None and self._record.tokens else None
            if current != token:
                return True  # another request was quicker
            if await self._renew(token, refresh=not more):
                return True
            if self._browser is None and (self._given is None or self._given.client_secret is None):
                wanted = f" with the scope {_parameter(challenge, 'scope')}" if more else ""
                raise LoginNeeded(f"it wants a login{wanted}: spindle mcp login {self._name}")
            now = time.monotonic()
            self._attempts = [at for at in self._attempts if now - at < _ATTEMPTS_WITHIN]
            if len(self._attempts) >= _MAX_ATTEMPTS:
                return False
            self._attempts.append(now)
            await self._authorize(challenge, more=more)
            return True

    # -- renewing --------------------------------------------------------------------------------

    async def _renew(self, used: str | None, *, refresh: bool = True) -> bool:
        """Get another token for one that is over; without `refresh`, only one that was got elsewhere.

        Returns whether there is one. Raises `McpError`.
        """
        name = f"mcp-auth-{hashlib.sha256(self._url.encode()).hexdigest()[:16]}"
        try:
            async with hold_lock(_file().with_name(name)):  # many servers take a refresh token only once
                record = self._record = await asyncio.to_thread(kept, self._url)  # another process may have done so
                if record is None or record.tokens is None:
                    return False
                if record.tokens.access != used:
                    return True
                if record.tokens.refresh is None or not refresh:
                    return False
                form = _with_resource(
                    {"grant_type": "refresh_token", "refresh_token": record.tokens.refresh}, record.resource
                )
                try:
                    answer = await _token_request(record.token_endpoint, record.client, form)
                except LoginNeeded:
                    await self._keep(msgspec.structs.replace(record, tokens=None))
                    return False
                await self._keep(msgspec.structs.replace(record, tokens=_tokens(answer, record.tokens)))
                return True
        except (BadFile, OSError) as error:
            raise McpError(f"its login cannot be renewed: {error}") from None

    async def _keep(self, record: Record) -> None:
        self._record = record
        await asyncio.to_thread(keep, self._url, record)

    # -- logging in ------------------------------------------------------------------------------

    async def _authorize(self, challenge: str, *, more: bool) -> None:
        """Let the user log in, or log in as a program that has a secret of its own. Raises `McpError`."""
        resource = await self._resource(_parameter(challenge, "resource_metadata"))
        metadata = await self._server(resource)
        target = None if resource is None else resource.resource
        scope = self._wanted_scope(challenge, resource, metadata, more=more)
        given, grants = self._given, metadata.grant_types_supported
        if given is not None and given.client_id and given.client_secret and _is_for_programs(given, grants):
            method = _method(given.client_secret, metadata.token_endpoint_auth_methods_supported)
            client = Client(given.client_id, given.client_secret, method)
            form = {"grant_type": "client_credentials", **({} if scope is None else {"scope": scope})}
            answer = await _token_request(metadata.token_endpoint, client, _with_resource(form, target))
            await self._keep(Record(metadata.issuer, metadata.token_endpoint, client, _tokens(answer, None), target))
            return
        if (browser := self._browser) is None:
            raise LoginNeeded(f"it wants a login: spindle mcp login {self._name}")
        if not metadata.authorization_endpoint:
            raise McpError('people cannot log in there; a program needs "clientId" and "clientSecret" in "oauth"')
        methods = metadata.code_challenge_methods_supported
        if methods is not None and "S256" not in methods:
            raise McpError("its authorization server does not support PKCE, without which a login is not safe")
        client = await self._client(metadata, browser, scope)
        verifier = secrets.token_urlsafe(64)
        state = secrets.token_urlsafe(32)
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": browser.redirect_uri,
            "state": state,
            "code_challenge": urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        if scope is not None:
            query["scope"] = scope
            if "offline_access" in scope.split():
                query["prompt"] = "consent"
        separator = "&" if urlsplit(metadata.authorization_endpoint).query else "?"
        url = f"{metadata.authorization_endpoint}{separator}{urlencode(_with_resource(query, target))}"
        code = _code(await browser.visit(url), state, metadata)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": browser.redirect_uri,
            "code_verifier": verifier,
        }
        answer = await _token_request(metadata.token_endpoint, client, _with_resource(form, target))
        tokens = _tokens(answer, None)
        if tokens.scope is None:
            tokens = msgspec.structs.replace(tokens, scope=scope)
        await self._keep(Record(metadata.issuer, metadata.token_endpoint, client, tokens, target))

    async def _resource(self, named: str | None) -> ResourceMetadata | None:
        """Ask who may let us in; None: the server does not say, as before 2025-06-18. Raises `McpError`."""
        parts = urlsplit(self._url)
        well_known = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
        places = [named] if named else []
        places += [well_known + parts.path] if parts.path not in ("", "/") else []
        for place in [*places, well_known]:
            found = await _metadata(place, ResourceMetadata)
            if found is None or not found.authorization_servers:
                continue
            if not _covers(found.resource, self._url):
                raise McpError(f"its login is for another resource: {found.resource}")
            return found
        return None

    async def _server(self, resource: ResourceMetadata | None) -> ServerMetadata:
        """Return what the authorization server says about itself. Raises `McpError`."""
        parts = urlsplit(self._url)
        origin = f"{parts.scheme}://{parts.netloc}"
        issuer = origin if resource is None else resource.authorization_servers[0]
        for place in _places(issuer):
            found = await _metadata(place, ServerMetadata)
            if found is None:
                continue
            # Before 2025-06-18 the server was its own authorization server, under any name of its own.
            own = resource is None and f"{found.issuer}/".startswith(f"{origin}/")
            if found.issuer != issuer and not own:
                raise McpError(f"its authorization server says that it is another: {found.issuer} instead of {issuer}")
            for url in (found.authorization_endpoint, found.token_endpoint, found.registration_endpoint):
                if url:
                    _require_safe(url)
            return found
        if resource is not None:
            raise McpError(f"its authorization server {issuer} does not say how to log in")
        return ServerMetadata(origin, f"{origin}/token", f"{origin}/authorize", f"{origin}/register")

    def _wanted_scope(
        self, challenge: str, resource: ResourceMetadata | None, metadata: ServerMetadata, *, more: bool
    ) -> str | None:
        """Return the scopes to ask for; with `more`, besides those that there were."""
        scope = self._given.scope if self._given is not None else None
        scope = scope or _parameter(challenge, "scope")
        if scope is None and resource is not None and resource.scopes_supported:
            scope = " ".join(resource.scopes_supported)
        if scope is not None and "offline_access" in (metadata.scopes_supported or ()):
            scope = " ".join(dict.fromkeys([*scope.split(), "offline_access"]))
        if more:
            granted = self._record.tokens.scope if self._record is not None and self._record.tokens else None
            scope = " ".join(dict.fromkeys(" ".join(filter(None, (self._asked, granted, scope))).split())) or None
        self._asked = scope
        return scope

    async def _client(self, metadata: ServerMetadata, browser: Browser, scope: str | None) -> Client:
        """Return what we are for this authorization server. Raises `McpError`."""
        given, before = self._given, self._record
        supported = metadata.token_endpoint_auth_methods_supported
        if given is not None and given.client_id:
            return Client(given.client_id, given.client_secret, _method(given.client_secret, supported))
        if given is not None and given.client_metadata_url and metadata.client_id_metadata_document_supported:
            return Client(given.client_metadata_url)
        if (
            before is not None
            and before.issuer == metadata.issuer
            and before.client.redirect_uri == browser.redirect_uri
        ):
            return before.client
        if metadata.registration_endpoint is None:
            raise McpError(
                f"its authorization server {metadata.issuer} does not register clients by itself: register one there, "
                'and write its id into "oauth": {"clientId": …} of the server\'s entry'
            )
        wanted = next((method for method in _METHODS if supported is None or method in supported), "none")
        body: dict[str, Any] = {
            "client_name": "Spindle",
            "redirect_uris": [browser.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": wanted,
            "application_type": "native",
        }
        body |= {} if scope is None else {"scope": scope}
        status, answer = await _exchange("POST", metadata.registration_endpoint, encode(body), "application/json")
        if status not in (200, 201) or not isinstance(answer.get("client_id"), str):
            raise McpError(f"its authorization server did not register us: {_complaint(status, answer)}")
        secret = answer.get("client_secret")
        secret = secret if isinstance(secret, str) and secret else None
        method = answer.get("token_endpoint_auth_method") or (wanted if secret is None else _method(secret, supported))
        if method not in _METHODS or (method != "none" and secret is None):
            raise McpError(f"its authorization server wants {method!r}, which is not known here")
        return Client(answer["client_id"], secret, method, browser.redirect_uri)


def _code(back: Mapping[str, str], state: str, metadata: ServerMetadata) -> str:
    """Return the code that the browser brought back. Raises `McpError`."""
    if not secrets.compare_digest(back.get("state", "").encode(), state.encode()):
        raise McpError("the answer of the browser does not belong to this login")
    issuer = back.get("iss")
    if issuer is None and metadata.authorization_response_iss_parameter_supported:
        raise McpError("the answer of the browser does not say which authorization server it is from")
    if issuer is not None and issuer != metadata.issuer:
        raise McpError(f"the answer of the browser is from another authorization server: {issuer}")
    if error := back.get("error"):
        raise McpError(f"the login was refused: {back.get('error_description') or error}")
    if not back.get("code"):
        raise McpError("the answer of the browser has no code")
    return back["code"]


def _is_for_programs(given: OAuthOptions, grants: list[str] | None) -> bool:
    if given.grant_type is not None:
        return given.grant_type == "client_credentials"
    return grants is not None and "client_credentials" in grants and "authorization_code" not in grants


def _method(secret: str | None, supported: list[str] | None) -> str:
    if secret is None:
        return "none"
    return "client_secret_basic" if supported is None or "client_secret_basic" in supported else "client_secret_post"


def _with_resource(form: dict[str, str], resource: str | None) -> dict[str, str]:
    return form if resource is None else {**form, "resource": resource}


def _places(issuer: str) -> list[str]:
    """Return where an authorization server may describe itself."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if not path:
        return [f"{origin}/.well-known/oauth-authorization-server", f"{origin}/.well-known/openid-configuration"]
    return [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    ]


def _covers(resource: str, url: str) -> bool:
    """Say whether a resource is the server, or a place above it."""
    wide, narrow = urlsplit(resource), urlsplit(url)
    if (wide.scheme, wide.netloc.lower()) != (narrow.scheme, narrow.netloc.lower()):
        return False
    return f"{narrow.path.rstrip('/')}/".startswith(f"{wide.path.rstrip('/')}/")


def _parameter(challenge: str, name: str) -> str | None:
    """Return a parameter of a `WWW-Authenticate` header."""
    match = re.search(rf'(?:^|[\s,]){name}=(?:"([^"]*)"|([^\s,]+))', challenge)
    return (match[1] or match[2]) if match else None


def _require_safe(url: str) -> None:
    """Raises `McpError` for an address where tokens could be read on the way."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise McpError(f"not an address: {url}") from None
    host = parts.hostname or ""
    if parts.scheme != "https" and not (parts.scheme == "http" and host in ("localhost", "127.0.0.1", "::1")):
        raise McpError(f"not a safe address for a login: {url}")


# -- requests ----------------------------------------------------------------------------------------


async def _metadata(url: str, kind: type[T]) -> T | None:
    """Return a description, or None if there is none."""
    _require_safe(url)
    status, answer = await _exchange("GET", url, None, None)
    if status != 200:
        return None
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError:
        return None


async def _token_request(url: str, client: Client, form: dict[str, str]) -> dict[str, Any]:
    """Raises `LoginNeeded` if what we have is not valid any more, else `McpError`."""
    headers = {}
    if client.method == "client_secret_basic" and client.client_secret is not None:
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    else:
        form = {**form, "client_id": client.client_id}
        if client.method == "client_secret_post" and client.client_secret is not None:
            form["client_secret"] = client.client_secret
    _require_safe(url)
    status, answer = await _exchange(
        "POST", url, urlencode(form).encode(), "application/x-www-form-urlencoded", headers
    )
    if status == 200 and isinstance(answer.get("access_token"), str):
        return answer
    text = f"no token from its authorization server: {_complaint(status, answer)}"
    # Some say no with 200. Anything else (a server that is busy, a page of a proxy) says nothing about what we have.
    refused = status in (400, 401) or (status == 200 and "error" in answer)
    raise LoginNeeded(text) if refused else McpError(text)


def _tokens(answer: dict[str, Any], before: Tokens | None) -> Tokens:
    lasting, refresh, scope = answer.get("expires_in"), answer.get("refresh_token"), answer.get("scope")
    number = isinstance(lasting, int | float) and not isinstance(lasting, bool)
    return Tokens(
        answer["access_token"],
        refresh if isinstance(refresh, str) else before.refresh if before is not None else None,
        time.time() + lasting if number else None,  # type: ignore[operator]
        scope if isinstance(scope, str) else before.scope if before is not None else None,
    )


def _complaint(status: int, answer: dict[str, Any]) -> str:
    words = [str(answer[key])[:300] for key in ("error", "error_description") if answer.get(key)]
    return ": ".join(words) or f"HTTP status {status}"


async def _exchange(
    method: str, url: str, body: bytes | None, kind: str | None, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object of an answer, empty if it is none. Raises `McpError`."""
    sent = {"accept": "application/json", "mcp-protocol-version": MODERN, **(headers or {})}
    if kind is not None:
        sent["content-type"] = kind
    try:
        async with asyncio.timeout(limits.CONNECT), http.request(method, url, sent, body) as response:
            data = b""
            while len(data) < _MAX_BODY and (more := await response.read()):
                data += more
            status = response.status
    except TimeoutError:
        raise McpError(f"no answer from {url} within {limits.CONNECT:g} s") from None
    except (http.ConnectError, http.IdleTimeoutError, http.UnreadableError) as error:
        raise McpError(str(error)) from None
    try:
        answer = decode(data)
    except DecodeError:
        answer = {}
    return status, answer if isinstance(answer, dict) else {}


# -- a browser on this machine -----------------------------------------------------------------------


class LoopbackBrowser:
    """Opens the page in the user's browser and waits for it to come back to a port of this machine."""

    def __init__(self, show: Callable[[str], None], port: int | None = None) -> None:
        """`show(url)` tells the user where to go."""
        self._show = show
        self._port = port or 0
        self._back: asyncio.Future[dict[str, str]]
        self._state = ""
        """What the page has to bring back: any program of this machine can knock at the port."""
        self._server: asyncio.Server
        self.redirect_uri = ""

    async def __aenter__(self) -> "LoopbackBrowser":
        self._back = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        except OSError as error:
            raise McpError(f"cannot wait for the browser on port {self._port}: {error.strerror}") from None
        self.redirect_uri = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/callback"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def visit(self, url: str) -> Mapping[str, str]:
        self._back = asyncio.get_running_loop().create_future()
        self._state = dict(parse_qsl(urlsplit(url).query)).get("state", "")
        threading.Thread(target=self._show, args=(url,), daemon=True).start()  # some browsers take over the terminal
        try:
            async with asyncio.timeout(limits.MCP_LOGIN):
                return await self._back
        except TimeoutError:
            raise McpError(f"no login within {limits.MCP_LOGIN:g} s") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(limits.CONNECT):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
            words = line.decode("latin-1").split()
            target = urlsplit(urljoin(self.redirect_uri, words[1])) if len(words) == 3 else urlsplit("")
            back = dict(parse_qsl(target.query))
            found = target.path == "/callback" and back.get("state") == self._state
            text = "Not found"
            if found:
                text = "The login was refused" if "error" in back else "Your login goes on where you began it"
                text += "; this page can be closed."
            head = f"HTTP/1.1 {'200 OK' if found else '404 Not Found'}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            writer.write(f"{head}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())
            await writer.drain()
            if found and not self._back.done():
                self._back.set_result(back)
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            writer.close()
