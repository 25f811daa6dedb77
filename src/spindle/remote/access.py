"""Who may connect. Decided from the request's head, before anything is upgraded.

The program behind this door runs shell commands, so the door is narrow: loopback addresses only, unless there is a
token; pages of other sites are turned away by their `Origin`, and names that merely point at this machine (DNS
rebinding) by their `Host`.
"""

import base64
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Access", "Refusal", "is_loopback", "parse_address"]

TOKEN_PROTOCOL = "spindle.token."
"""A browser cannot set headers on a WebSocket, so its token comes as a subprotocol, in base64url."""


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Access:
    host: str
    port: int
    token: str | None = None
    origins: frozenset[str] = frozenset()
    """Other sites whose pages may connect."""

    def check(self, headers: Mapping[str, str], *, needs_token: bool = True) -> Refusal | None:
        """Return why a request is refused, or None. Header names are looked up without regard to case."""
        host = headers.get("Host", "")
        if is_loopback(self.host) and not self._is_own_host(host):
            return Refusal(403, "Host not allowed")
        origin = headers.get("Origin")
        if origin is not None and origin not in self.origins and origin not in (f"http://{host}", f"https://{host}"):
            return Refusal(403, "Origin not allowed")
        if needs_token and self.token is not None and not self._has_token(headers):
            return Refusal(401, "A valid token is required")
        return None

    def _is_own_host(self, host: str) -> bool:
        name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
        if port and port != str(self.port):
            return False
        return is_loopback(name.strip("[]")) or name.strip("[]") == self.host

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        assert self.token is not None
        given = [headers.get("Authorization", "").removeprefix("Bearer ")]
        for protocol in headers.get("Sec-WebSocket-Protocol", "").split(","):
            if protocol.strip().startswith(TOKEN_PROTOCOL):
                given.append(_decoded(protocol.strip().removeprefix(TOKEN_PROTOCOL)))
        # Every candidate is compared, in constant time: how long it takes must tell nothing.
        matches = [hmac.compare_digest(one.encode(), self.token.encode()) for one in given]
        return True in matches


def _decoded(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(text: str) -> tuple[str, int]:
    """Read `host:port`, `[v6]:port` or `:port` (loopback). Raises `ValueError` with a text to show."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError(f"--remote needs an address like 127.0.0.1:8080, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
