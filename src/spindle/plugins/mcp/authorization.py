"""Requests to authorization servers: descriptions, registrations, tokens. `oauth` decides when to send them."""

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct, field

from spindle.base import limits
from spindle.llm import http
from spindle.plugins.mcp import LoginNeeded, McpError
from spindle.plugins.mcp.connection import MODERN
from spindle.shapes.codec import DecodeError, decode

METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
"""Ways to prove its identity for a client that registered itself."""
KEY_METHOD: Final = "private_key_jwt"
_MAX_BODY: Final = 1 << 20
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
T = TypeVar("T")


class OAuthClient(Struct, frozen=True):
    """Our identity at an authorization server."""

    client_id: str | None
    client_secret: str | None = None
    method: str = "none"
    """How we prove our identity to the token endpoint."""
    redirect_uri: str | None = None


class ServerMetadata(Struct):
    """What an authorization server says about itself (RFC 8414, OpenID Connect Discovery)."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str = ""
    """Empty: only programs can log in."""
    registration_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    token_endpoint_auth_signing_alg_values_supported: list[str] | None = None
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


class ResourceMetadata(Struct):
    """What a server says about its authorization servers (RFC 9728)."""

    resource: str
    authorization_servers: list[str] = field(default_factory=list)
    scopes_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool = False


class Signer(Struct):
    """Keys that sign requests for tokens."""

    private_key: str | None = None
    """Key of the client (`private_key_jwt`)."""
    algorithms: list[str] | None = None
    """Algorithms that the server accepts for it."""
    dpop_key: str | None = None
    """Key that the token is bound to."""


async def resource_metadata(url: str, named: str | None) -> ResourceMetadata | None:
    """Ask a server for its authorization servers, first at `named`. None: it names none, as before 2025-06-18.

    Raises `McpError`.
    """
    parts = urlsplit(url)
    well_known = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
    places = [named] if named else []
    places += [well_known + parts.path] if parts.path not in ("", "/") else []
    for place in [*places, well_known]:
        found = await _description(place, ResourceMetadata)
        if found is None or not found.authorization_servers:
            continue
        if not _covers(found.resource, url):
            raise McpError(f"its login is for another resource: {found.resource}")
        return found
    return None


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname}:{port}"


async def server_metadata(url: str, resource: ResourceMetadata | None, pinned: str | None) -> ServerMetadata:
    """Return what the authorization server of the server at `url` says about itself. Raises `McpError`.

    `pinned` is the only one that the user wants.
    """
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    named = [origin] if resource is None else resource.authorization_servers
    issuer = next((name for name in named if pinned in (None, name)), None)
    if issuer is None:
        raise McpError(f'it names the authorization server {named[0]}, but its entry has "issuer": "{pinned}"')
    for place in _places(issuer):
        found = await _description(place, ServerMetadata)
        if found is None:
            continue
        # Before 2025-06-18 the server was its own authorization server, under any name of its origin.
        own = resource is None and f"{found.issuer}/".startswith(f"{origin}/")
        if found.issuer != issuer and not own:
            raise McpError(f"its authorization server says that it is another: {found.issuer} instead of {issuer}")
        for endpoint in (found.authorization_endpoint, found.token_endpoint, found.registration_endpoint):
            if endpoint:
                _require_safe(endpoint)
        return found
    if resource is not None or pinned is not None:
        raise McpError(f"its authorization server {issuer} does not say how to log in")
    return ServerMetadata(origin, f"{origin}/token", f"{origin}/authorize", f"{origin}/register")


async def register(endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    """Register a client. Raises `McpError`."""
    status, answer, _ = await _exchange("POST", endpoint, msgspec.json.encode(body), "application/json")
    if status not in (200, 201) or not isinstance(answer.get("client_id"), str):
        raise McpError(f"its authorization server did not register us: {_complaint(status, answer)}")
    return answer


async def token_request(
    url: str, issuer: str, client: OAuthClient, form: dict[str, str], signer: Signer | None = None
) -> dict[str, Any]:
    """Ask for a token and return the answer. Raises `LoginNeeded` if our grant is no longer valid, else `McpError`."""
    _require_safe(url)
    signer = signer or Signer()
    headers = {}
    if client.method == "client_secret_basic" and client.client_secret is not None:
        pair = f"{quote(client.client_id or '', safe='')}:{quote(client.client_secret, safe='')}"
        headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    elif client.client_id is not None:
        form = {**form, "client_id": client.client_id}
        if client.method == "client_secret_post" and client.client_secret is not None:
            form["client_secret"] = client.client_secret
        elif client.method == KEY_METHOD:
            from spindle.plugins.mcp.signing import assertion

            signed = assertion(client.client_id, issuer, signer.private_key or "", signer.algorithms)
            form |= {"client_assertion_type": _ASSERTION, "client_assertion": signed}
    nonce = None
    while True:
        if signer.dpop_key is not None:
            from spindle.plugins.mcp.signing import proof

            headers["dpop"] = proof(signer.dpop_key, "POST", url, nonce=nonce)
        status, answer, got = await _exchange(
            "POST", url, urlencode(form).encode(), "application/x-www-form-urlencoded", headers
        )
        if status == 200 and isinstance(answer.get("access_token"), str):
            return answer
        if answer.get("error") != "use_dpop_nonce" or nonce is not None or not got.get("dpop-nonce"):
            break
        nonce = got["dpop-nonce"]
    text = f"no token from its authorization server: {_complaint(status, answer)}"
    # Some servers refuse with 200. Other answers (a busy server, a page of a proxy) say nothing about our grant.
    refused = status in (400, 401) or (status == 200 and "error" in answer)
    raise LoginNeeded(text) if refused else McpError(text)


def secret_method(secret: str | None, supported: list[str] | None) -> str:
    """Return how a client proves its identity, with a secret or without."""
    if secret is None:
        return "none"
    return "client_secret_basic" if supported is None or "client_secret_basic" in supported else "client_secret_post"


def _places(issuer: str) -> list[str]:
    """Return the addresses where an authorization server may describe itself."""
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
    """Say whether a resource is the server, or a path above it."""
    wide, narrow = urlsplit(resource), urlsplit(url)
    if (wide.scheme, wide.netloc.lower()) != (narrow.scheme, narrow.netloc.lower()):
        return False
    return f"{narrow.path.rstrip('/')}/".startswith(f"{wide.path.rstrip('/')}/")


def _require_safe(url: str) -> None:
    """Raise `McpError` for an address without encryption, where tokens could be read on the way."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise McpError(f"not an address: {url}") from None
    host = parts.hostname or ""
    if parts.scheme != "https" and not (parts.scheme == "http" and host in ("localhost", "127.0.0.1", "::1")):
        raise McpError(f"not a safe address for a login: {url}")


async def _description(url: str, kind: type[T]) -> T | None:
    """Return a description, or None if there is none."""
    _require_safe(url)
    status, answer, _ = await _exchange("GET", url, None, None)
    if status != 200:
        return None
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError:
        return None


def _complaint(status: int, answer: dict[str, Any]) -> str:
    words = [str(answer[key])[:300] for key in ("error", "error_description") if answer.get(key)]
    return ": ".join(words) or f"HTTP status {status}"


async def _exchange(
    method: str, url: str, body: bytes | None, kind: str | None, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    """Return the status, the JSON object (empty for other content) and the headers of an answer. Raises `McpError`."""
    sent = {"accept": "application/json", "mcp-protocol-version": MODERN, **(headers or {})}
    if kind is not None:
        sent["content-type"] = kind
    try:
        async with asyncio.timeout(limits.CONNECT), await http.request(method, url, sent, body) as response:
            data = b""
            while len(data) < _MAX_BODY and (more := await response.read()):
                data += more
            status, got = response.status, response.headers
    except TimeoutError:
        raise McpError(f"no answer from {url} within {limits.CONNECT:g} s") from None
    except (http.ConnectError, http.IdleTimeoutError, http.UnreadableError) as error:
        raise McpError(str(error)) from None
    try:
        answer = decode(data)
    except DecodeError:
        answer = {}
    return status, answer if isinstance(answer, dict) else {}, got
