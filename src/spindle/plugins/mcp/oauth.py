"""Logins at HTTP servers: OAuth 2.1 with discovery, PKCE, registration and refresh. Imported for HTTP servers only.

`ServerLogin` gives the transport a token and is told when one is refused. Getting a first token takes a person with a
browser, so it happens in `spindle mcp login` alone, unless the entry has the credentials of a program; everywhere else
a token is only renewed. Requests to authorization servers are in `authorization`. Tokens are kept in `mcp-auth.json` in
the agent directory, which only the user may read, by the server's address and the issuer.
"""

import asyncio
import hashlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from msgspec import Struct

from spindle.base import limits
from spindle.base.agent_dir import agent_dir
from spindle.base.user_files import BadFile, edit_json, hold_lock, read_object
from spindle.models.sign_in import Proof, serve_page
from spindle.plugins.mcp import LoginNeeded, McpError
from spindle.plugins.mcp.authorization import (
    KEY_METHOD,
    METHODS,
    OAuthClient,
    ResourceMetadata,
    ServerMetadata,
    Signer,
    origin_of,
    register,
    resource_metadata,
    secret_method,
    server_metadata,
    token_request,
)
from spindle.plugins.mcp.server_config import OAuthOptions, ServerConfig, resolve_oauth

_MARGIN: Final = 30.0
"""A token counts as expired this many seconds before its end."""
_MAX_ATTEMPTS: Final = 2
_ATTEMPTS_WITHIN: Final = 60.0
"""After `_MAX_ATTEMPTS` logins in this many seconds a refusal is final."""
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Browser(Protocol):
    """Where a person logs in."""

    redirect_uri: str

    async def visit(self, url: str) -> Mapping[str, str]:
        """Show the page, and return the parameters that come back to `redirect_uri`. Raises `McpError`."""


class Tokens(Struct, frozen=True):
    access: str
    refresh: str | None = None
    expires_at: float | None = None
    scope: str | None = None
    bound: bool = False
    """Every request has to prove that it is ours (DPoP)."""


class Record(Struct, frozen=True):
    """Everything kept about one server."""

    issuer: str
    token_endpoint: str
    client: OAuthClient
    tokens: Tokens | None = None
    resource: str | None = None
    dpop_key: str | None = None
    """Key that tokens are bound to, if they are bound."""

    def __repr__(self) -> str:
        return "Record(…)"


# -- kept records ----------------------------------------------------------------------------------


def _file() -> Path:
    return agent_dir() / "mcp-auth.json"


def kept(url: str) -> Record | None:
    """Return the record of a server."""
    try:
        return msgspec.convert((read_object(_file()) or {}).get(url), Record | None)
    except (BadFile, msgspec.ValidationError):
        return None


def keep(url: str, record: Record | None) -> None:
    """Keep the record of a server; None deletes it. Raises `McpError`."""

    def change(value: dict[str, Any]) -> None:
        value.pop(url, None)
        if record is not None:
            value[url] = msgspec.to_builtins(record)

    try:
        edit_json(_file(), change, 0o600)
    except (BadFile, OSError) as error:
        raise McpError(f"the login cannot be kept: {error}") from None


# -- one server --------------------------------------------------------------------------------------


class ServerLogin:
    def __init__(self, config: ServerConfig, browser: Browser | None = None) -> None:
        """`config` is resolved. Without a browser no person can log in, and tokens are only renewed."""
        self._url = config.url or ""
        self._name = config.name
        self._config = config
        self._given = config.oauth or OAuthOptions()
        """Resolved for every request for a token: some values are valid for minutes only."""
        self._browser = browser
        self._record: Record | None = None
        self._read = False
        self._attempts: list[float] = []
        """Times of login attempts."""
        self._asked: str | None = None
        """The scopes that were asked for last."""
        self._nonce: str | None = None
        """The nonce that the server wants in proofs."""
        self._one_at_a_time = asyncio.Lock()

    async def authorization(self, method: str, url: str) -> dict[str, str]:
        """Return the headers for a request, with a token that should be valid; none without a token."""
        if not self._read:
            self._read, self._record = True, await asyncio.to_thread(kept, self._url)
        tokens = self._record.tokens if self._record is not None else None
        if tokens is None:
            return {}
        if tokens.expires_at is not None and tokens.expires_at - _MARGIN < time.time():
            async with self._one_at_a_time:
                await self._renew(tokens.access)
            tokens = self._record.tokens if self._record is not None else None
        if tokens is None or self._record is None:
            return {}
        if self._record.dpop_key is None or not tokens.bound:
            return {"authorization": f"Bearer {tokens.access}"}
        from spindle.plugins.mcp.signing import proof

        shown = proof(self._record.dpop_key, method, url, tokens.access, self._nonce)
        return {"authorization": f"DPoP {tokens.access}", "dpop": shown}

    async def refused(self, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        """Handle the refusal of a request with the headers `sent`; return whether to try again. Raises `McpError`."""
        challenge = headers.get("www-authenticate", "")
        nonce = headers.get("dpop-nonce")
        if "dpop" in sent and nonce != self._nonce and _parameter(challenge, "error") == "use_dpop_nonce":
            self._nonce = nonce
            return True
        token = sent.get("authorization", "").partition(" ")[2] or None
        more = status == 403
        if more and _parameter(challenge, "error") != "insufficient_scope":
            return False
        async with self._one_at_a_time:
            current = self._record.tokens.access if self._record is not None and self._record.tokens else None
            if current != token:
                return True  # another request was quicker
            if await self._renew(token, refresh=not more):
                return True
            if self._browser is None and not self._given.is_program:
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
        """Get a token in place of the expired one `used`; without `refresh`, only one that another process has got.

        Return whether there is one. Raises `McpError`.
        """
        name = f"mcp-auth-{hashlib.sha256(self._url.encode()).hexdigest()[:16]}"
        try:
            async with hold_lock(_file().with_name(name)):  # many servers take a refresh token only once
                record = self._record = await asyncio.to_thread(kept, self._url)  # another process may have renewed it
                if record is None or record.tokens is None:
                    return False
                if record.tokens.access != used:
                    return True
                if record.tokens.refresh is None or not refresh:
                    return False
                self._check_receiver(record.issuer, record.token_endpoint)
                form = _with_resource(
                    {"grant_type": "refresh_token", "refresh_token": record.tokens.refresh}, record.resource
                )
                key = (await resolve_oauth(self._config)).private_key if record.client.method == KEY_METHOD else None
                signer = Signer(key, dpop_key=record.dpop_key)
                try:
                    answer = await token_request(record.token_endpoint, record.issuer, record.client, form, signer)
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
        """Let the user log in, or log in as a program if there are credentials for that. Raises `McpError`."""
        resource = await resource_metadata(self._url, _parameter(challenge, "resource_metadata"))
        given = self._given = await resolve_oauth(self._config)
        metadata = await server_metadata(self._url, resource, given.issuer)
        self._check_receiver(metadata.issuer, metadata.token_endpoint)
        target = None if resource is None else resource.resource
        scope = self._wanted_scope(challenge, resource, metadata, more=more)
        signer = Signer(given.private_key, metadata.token_endpoint_auth_signing_alg_values_supported)
        if challenge[:4].lower() == "dpop" or (resource is not None and resource.dpop_bound_access_tokens_required):
            from spindle.plugins.mcp.signing import new_key

            signer.dpop_key = new_key()
        if (form := await self._program_form(given, metadata, scope, target or self._url)) is not None:
            client, form = _given_client(given, metadata), _with_resource(form, target)
        else:
            client, form = await self._ask_user(metadata, scope, target)
        answer = await token_request(metadata.token_endpoint, metadata.issuer, client, form, signer)
        tokens = _tokens(answer, None)
        if tokens.scope is None:
            tokens = msgspec.structs.replace(tokens, scope=scope)
        record = Record(metadata.issuer, metadata.token_endpoint, client, tokens, target, signer.dpop_key)
        await self._keep(record)

    def _check_receiver(self, issuer: str, endpoint: str) -> None:
        """Raise `McpError` if the user's secrets are not meant for this authorization server."""
        given, own = self._given, origin_of(self._url)
        if given.issuer is not None:
            if issuer != given.issuer:
                raise McpError(f'its login is from {issuer}, but its entry has "issuer": "{given.issuer}"')
        elif given.is_program and (origin_of(issuer) != own or origin_of(endpoint) != own):
            raise McpError(
                f"it wants the secrets of its entry to be sent to {origin_of(endpoint)}. If that is right, write "
                f'"issuer": "{issuer}" into "oauth" of the entry'
            )

    async def _program_form(
        self, given: OAuthOptions, metadata: ServerMetadata, scope: str | None, resource: str
    ) -> dict[str, str] | None:
        """Return the form with which a program asks for a token; None if a person has to log in. Raises `McpError`."""
        more = {} if scope is None else {"scope": scope}
        if (provider := given.identity_provider) is not None:
            exchange = {
                "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
                "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
                "audience": metadata.issuer,
                "resource": resource,
                "subject_token": provider.id_token,
                "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
                **more,
            }
            client = OAuthClient(
                provider.client_id, provider.client_secret, secret_method(provider.client_secret, None)
            )
            answer = await token_request(provider.token_endpoint, provider.token_endpoint, client, exchange)
            return {"grant_type": _JWT_BEARER, "assertion": answer["access_token"], **more}
        if given.assertion is not None:
            return {"grant_type": _JWT_BEARER, "assertion": given.assertion, **more}
        if given.client_id and given.is_program and _is_for_programs(given, metadata.grant_types_supported):
            return {"grant_type": "client_credentials", **more}
        return None

    async def _ask_user(
        self, metadata: ServerMetadata, scope: str | None, target: str | None
    ) -> tuple[OAuthClient, dict[str, str]]:
        """Let the user log in; return the client and the form of the request for a token. Raises `McpError`."""
        if (browser := self._browser) is None:
            raise LoginNeeded(f"it wants a login: spindle mcp login {self._name}")
        if not metadata.authorization_endpoint:
            raise McpError('people cannot log in there; what a program needs belongs into "oauth" of its entry')
        methods = metadata.code_challenge_methods_supported
        if methods is not None and "S256" not in methods:
            raise McpError("its authorization server does not support PKCE, without which a login is not safe")
        client = await self._client(metadata, browser, scope)
        proof = Proof()
        query = {
            "response_type": "code",
            "client_id": client.client_id or "",
            "redirect_uri": browser.redirect_uri,
            "state": proof.state,
            "code_challenge": proof.challenge,
            "code_challenge_method": "S256",
        }
        if scope is not None:
            query["scope"] = scope
            if "offline_access" in scope.split():
                query["prompt"] = "consent"
        separator = "&" if urlsplit(metadata.authorization_endpoint).query else "?"
        url = f"{metadata.authorization_endpoint}{separator}{urlencode(_with_resource(query, target))}"
        code = _code(await browser.visit(url), proof.state, metadata)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": browser.redirect_uri,
            "code_verifier": proof.verifier,
        }
        return client, _with_resource(form, target)

    def _wanted_scope(
        self, challenge: str, resource: ResourceMetadata | None, metadata: ServerMetadata, *, more: bool
    ) -> str | None:
        """Return the scopes to ask for; with `more`, in addition to the previous ones."""
        scope = self._given.scope or _parameter(challenge, "scope")
        if scope is None and resource is not None and resource.scopes_supported:
            scope = " ".join(resource.scopes_supported)
        if scope is not None and "offline_access" in (metadata.scopes_supported or ()):
            scope = " ".join(dict.fromkeys([*scope.split(), "offline_access"]))
        if more:
            granted = self._record.tokens.scope if self._record is not None and self._record.tokens else None
            scope = " ".join(dict.fromkeys(" ".join(filter(None, (self._asked, granted, scope))).split())) or None
        self._asked = scope
        return scope

    async def _client(self, metadata: ServerMetadata, browser: Browser, scope: str | None) -> OAuthClient:
        """Return our identity at this authorization server. Raises `McpError`."""
        given, before = self._given, self._record
        supported = metadata.token_endpoint_auth_methods_supported
        if given.client_id:
            return _given_client(given, metadata)
        if given.client_metadata_url and metadata.client_id_metadata_document_supported:
            return OAuthClient(given.client_metadata_url)
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
        wanted = next((method for method in METHODS if supported is None or method in supported), "none")
        body: dict[str, Any] = {
            "client_name": "Spindle",
            "redirect_uris": [browser.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": wanted,
            "application_type": "native",
        }
        body |= {} if scope is None else {"scope": scope}
        answer = await register(metadata.registration_endpoint, body)
        secret = answer.get("client_secret")
        secret = secret if isinstance(secret, str) and secret else None
        fallback = wanted if secret is None else secret_method(secret, supported)
        method = answer.get("token_endpoint_auth_method") or fallback
        if method not in METHODS or (method != "none" and secret is None):
            raise McpError(f"its authorization server wants {method!r}, which is not known here")
        return OAuthClient(answer["client_id"], secret, method, browser.redirect_uri)


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


def _given_client(given: OAuthOptions, metadata: ServerMetadata) -> OAuthClient:
    """Return the client that was registered by hand. Its private key is not kept."""
    if given.private_key is not None:
        return OAuthClient(given.client_id, method=KEY_METHOD)
    method = secret_method(given.client_secret, metadata.token_endpoint_auth_methods_supported)
    return OAuthClient(given.client_id, given.client_secret, method)


def _is_for_programs(given: OAuthOptions, grants: list[str] | None) -> bool:
    if given.grant_type is not None:
        return given.grant_type == "client_credentials"
    return grants is not None and "client_credentials" in grants and "authorization_code" not in grants


def _parameter(challenge: str, name: str) -> str | None:
    """Return a parameter of a `WWW-Authenticate` header."""
    match = re.search(rf'(?:^|[\s,]){name}=(?:"([^"]*)"|([^\s,]+))', challenge)
    return (match[1] or match[2]) if match else None


def _with_resource(form: dict[str, str], resource: str | None) -> dict[str, str]:
    return form if resource is None else {**form, "resource": resource}


def _tokens(answer: dict[str, Any], before: Tokens | None) -> Tokens:
    lasting, refresh, scope = answer.get("expires_in"), answer.get("refresh_token"), answer.get("scope")
    number = isinstance(lasting, int | float) and not isinstance(lasting, bool)
    return Tokens(
        answer["access_token"],
        refresh if isinstance(refresh, str) else before.refresh if before is not None else None,
        time.time() + lasting if number else None,  # type: ignore[operator]
        scope if isinstance(scope, str) else before.scope if before is not None else None,
        str(answer.get("token_type")).lower() == "dpop",
    )


# -- a browser on this machine -----------------------------------------------------------------------


class LoopbackBrowser:
    """Opens the page in the user's browser and waits for it to come back to a port of this machine."""

    def __init__(self, show: Callable[[str], None], port: int | None = None) -> None:
        """`show(url)` tells the user where to go."""
        self._show = show
        self._port = port or 0
        self._back: asyncio.Future[dict[str, str]]
        self._state = ""
        """The state that the page must bring back, because any program on this machine can reach the port."""
        self._server: asyncio.Server
        self.redirect_uri = ""

    async def __aenter__(self) -> "LoopbackBrowser":
        self._back = asyncio.get_running_loop().create_future()
        try:
            self._server = await serve_page(self._port, self._take)
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

    def _take(self, path: str, back: dict[str, str]) -> tuple[str, str]:
        if path != "/callback" or back.get("state") != self._state:
            return "404 Not Found", "Not found"
        if not self._back.done():
            self._back.set_result(back)
        said = "The login was refused" if "error" in back else "Your login goes on where you began it"
        return "200 OK", f"{said}; this page can be closed."
