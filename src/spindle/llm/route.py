"""The way to a server: its address, and the proxy before it."""

import os
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from spindle.base.version import __version__
from spindle.llm.errors import ConnectError
from spindle.shapes.model import masked_url

_PORTS = {"http": 80, "https": 443}
_KEPT_IN_TARGETS = "!$%&'()*+,/:;=?@[]~"
"""Escapes are kept as they are, too: signatures cover them."""
_BREAKS = re.compile("[\r\n\0]")
_USUAL_HEADERS = {
    "user-agent": f"spindle/{__version__}",
    "accept": "application/json",
    "accept-encoding": "identity",
    "content-type": "application/json",
}
_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")


class Address(NamedTuple):
    host: str
    port: int
    is_tls: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Route(NamedTuple):
    """Requests with the same route may share a connection."""

    server: Address
    proxy: Address | None
    proxy_login: str | None
    """The value of `Proxy-Authorization`."""

    def tunnel_request(self) -> bytes:
        """Return the request for a tunnel to the server."""
        host = _in_brackets(self.server.host)
        lines = [f"CONNECT {host}:{self.server.port} HTTP/1.1", f"Host: {host}:{self.server.port}"]
        lines.append(f"User-Agent: spindle/{__version__}")
        if self.proxy_login:
            lines.append(f"Proxy-Authorization: {self.proxy_login}")
        return "\r\n".join([*lines, "", ""]).encode()


class Target(NamedTuple):
    """What is asked for, and by which route."""

    route: Route
    path: str
    """With the query."""
    login: str | None
    """The value of `Authorization`, from the credentials in the URL."""

    def head(self, method: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """Return the head of a request. Raises `ConnectError` for headers that cannot be sent."""
        server, proxy, proxy_login = self.route
        host = _in_brackets(server.host)
        if server.port != _PORTS["https" if server.is_tls else "http"]:
            host = f"{host}:{server.port}"
        names = {name.lower() for name in headers}
        fields = {name: value for name, value in _USUAL_HEADERS.items() if name not in names}
        path = self.path
        if proxy is not None and not server.is_tls:  # no tunnel: the proxy reads the request itself
            path = f"http://{host}{path}"
            if proxy_login:
                fields["Proxy-Authorization"] = proxy_login
        if self.login:
            if "authorization" in names:
                both = "Cannot combine AUTHORIZATION header with AUTH argument or credentials encoded in URL"
                raise self._refused(both)
            fields["Authorization"] = self.login
        if "content-length" not in names and (body is not None or method not in _WITHOUT_BODY):
            fields["Content-Length"] = str(len(body or b""))
        lines = [f"{method} {path} HTTP/1.1"]
        if "host" not in names:
            lines.append(f"Host: {host}")
        # Keys come from files, with the newline at their end.
        lines += [f"{name}: {value.strip()}" for name, value in (fields | dict(headers)).items()]
        if _BREAKS.search("".join(lines)):
            raise self._refused("Newline, carriage return, or null byte detected in headers")
        try:
            return "\r\n".join([*lines, "", ""]).encode()
        except UnicodeEncodeError as error:
            raise self._refused(str(error)) from None

    def _refused(self, why: str) -> ConnectError:
        return ConnectError(f"Cannot reach {self.route.server}: {why}", is_final=True)


def find_target(url: str, proxy: str | None) -> Target:
    """Return the target at `url`, through `proxy` or that of the environment. Raises `ConnectError`."""
    try:
        parts, server, path, login = _parsed(url)
    except ValueError:
        raise ConnectError(f"{masked_url(url)!r} is not a valid address", is_final=True) from None
    proxy = proxy or _proxy_of_environment(parts, server.host)
    proxy_address = proxy_login = None
    if proxy:
        try:
            proxy_parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            if proxy_parts.scheme not in _PORTS and proxy_parts.scheme:
                text = f"The proxy {masked_url(proxy)!r} cannot be used: it must begin with http:// or https://"
                raise ConnectError(text, is_final=True)
            proxy_address, proxy_login = _address(proxy_parts), _login(proxy_parts)
        except ValueError:
            text = f"The proxy {masked_url(proxy)!r} is not a valid address"
            raise ConnectError(text, is_final=True) from None
    return Target(Route(server, proxy_address, proxy_login), path, login)


@lru_cache(16)  # requests of a session go to the same place
def _parsed(url: str) -> tuple[SplitResult, Address, str, str | None]:
    """Raises `ValueError`."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts, _address(parts), quote(path, safe=_KEPT_IN_TARGETS), _login(parts)


def _address(parts: SplitResult) -> Address:
    """Raises `ValueError`."""
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError
    return Address(parts.hostname, parts.port or _PORTS[parts.scheme], parts.scheme == "https")


def _login(parts: SplitResult) -> str | None:
    if not parts.username and not parts.password:
        return None
    from base64 import b64encode

    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def _in_brackets(host: str) -> str:
    if ":" in host:
        return f"[{host}]"
    return host if host.isascii() else host.encode("idna").decode()


def _proxy_of_environment(parts: SplitResult, host: str) -> str | None:
    # A proxy of the environment is for the network; a server on this machine is reached directly.
    if host in ("localhost", "::1") or host.startswith("127."):
        return None
    if sys.platform != "darwin" and not any(name[-6:].lower() == "_proxy" for name in os.environ):
        return None  # without the import, which is dear
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    if proxy_bypass(parts.netloc.rpartition("@")[2]) or _is_in_a_network(host, proxies.get("no", "")):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")


def _is_in_a_network(host: str, no_proxy: str) -> bool:
    """Say whether an address is in one of the networks (`10.0.0.0/8`) that need no proxy."""
    if "/" not in no_proxy:
        return False
    from ipaddress import ip_address, ip_network

    try:
        address = ip_address(host)
    except ValueError:  # a name
        return False
    for entry in no_proxy.split(","):
        try:
            if "/" in entry and address in ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
