"""Access control: who may connect. A request is checked by its headers, before any upgrade.

The server runs shell commands, so the rules are strict: without a token only loopback addresses are served, and there
only processes of the same user; pages of other sites are refused by their `Origin`, and names that merely point at this
machine (DNS rebinding) by their `Host`.
"""

import base64
import contextlib
import hmac
import ipaddress
import os
import socket
import struct
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from spindle.server.users import UsersFile, token_hash

TOKEN_PROTOCOL = "spindle.token."
"""A browser cannot set headers on a WebSocket, so its token comes as a subprotocol, in base64url."""

FIRST_DELAY_S: Final = 0.1
LONGEST_DELAY_S: Final = 5.0
REMEMBERED_ADDRESSES: Final = 1024
TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
ESTABLISHED: Final = b"01"
# The table may change while it is read, so that a row is missed.
TRIES: Final = 2

Endpoint = tuple[str, int]


class Refusal(Struct, frozen=True):
    status: int
    reason: str
    kind: str
    """The rule that refused the request: `host`, `origin`, `token`, `owner`."""
    guessed: bool = False
    """Whether a token was given, but a wrong one."""


class Access(Struct, frozen=True):
    host: str
    port: int
    token: str | None = None
    origins: frozenset[str] = frozenset()
    """Other sites whose pages may connect."""
    users: UsersFile | None = None
    """Users with tokens of their own."""
    tls: bool = False

    @property
    def needs_token(self) -> bool:
        return self.token is not None or self.users is not None

    @property
    def only_owner(self) -> bool:
        """Whether only the user who started the server may connect."""
        return not self.needs_token and is_loopback(self.host)

    def user(self, headers: Mapping[str, str]) -> str | None:
        """Return the name of the user whose token came."""
        if self.users is None:
            return None
        return next((name for one in given_tokens(headers) if (name := self.user_of(one)) is not None), None)

    def knows(self, token: str) -> bool:
        """Say whether this is the token of the server, or of a user."""
        return self.user_of(token) is not None if self.users is not None else self._has_token([token])

    def user_of(self, token: str) -> str | None:
        """Return the name of the user with this token."""
        return None if self.users is None else self.users.find(token)

    def hash_of(self, user: str | None) -> str | None:
        """Return the hash of the present token of a user, or of the server; None: there is none."""
        if self.users is None:
            return None if self.token is None or user is not None else token_hash(self.token)
        return self.users.users[user].token if user in self.users.users else None

    def check(self, headers: Mapping[str, str], *, needs_token: bool = True) -> Refusal | None:
        """Return why a request is refused, or None. `headers` has the values of a repeated header joined."""
        host = headers.get("Host", "").lower()
        if not self._is_own_host(host):
            site = f"{_scheme(headers, host, self.tls)}://{_shown(host)}"
            hint = f"{_shown(host)}; --remote-origin {site} allows it" if host else "(none)"
            return Refusal(403, f"Host not allowed: {hint}", "host")
        origin = headers.get("Origin")
        if origin is not None and origin not in self.origins and origin not in (f"http://{host}", f"https://{host}"):
            return Refusal(
                403, f"Origin not allowed: {_shown(origin)}; --remote-origin {_shown(origin)} allows it", "origin"
            )
        if needs_token and self.needs_token:
            given = given_tokens(headers)
            if not (self._has_token(given) if self.token is not None else self.user(headers)):
                which = "; the one that came is wrong" if given else ""
                return Refusal(
                    401, f"A valid token is required: Authorization: Bearer TOKEN{which}", "token", bool(given)
                )
        return None

    def shared(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that let a page of another site, which we let in, read an answer."""
        origin = headers.get("Origin")
        if origin is None or origin not in self.origins:
            return {}
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin", "Access-Control-Expose-Headers": "Retry-After"}

    def _has_token(self, given: Iterable[str]) -> bool:
        # Every candidate is compared, in constant time: the duration must reveal nothing.
        return True in [hmac.compare_digest(_bytes(one), _bytes(self.token or "")) for one in given]

    def _is_own_host(self, host: str) -> bool:
        """Say whether a request for this host may be meant for us."""
        if any(host == urlsplit(origin).netloc.lower() for origin in self.origins):
            return True  # we are behind a proxy of that name
        if not is_loopback(self.host) and self.needs_token:
            return True  # a page that comes under a false name still has no token
        try:
            address = urlsplit(f"//{host}")
            name, port = address.hostname or "", address.port
        except ValueError:
            return False
        if is_loopback(name):
            return True  # whatever the port: it may be forwarded from another machine
        if port is not None and port != self.port:
            return False
        if is_loopback(self.host):
            return name == self.host
        # DNS rebinding needs a name; a numeric address cannot be rebound.
        return _is_address(name)


class Slowdown:
    """Delays the answer to a wrong token: longer each time, counted per address. A right token never waits."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, int] = OrderedDict()
        """How many wrong tokens each address has sent; the latest address is last."""

    def delay(self, address: str) -> float:
        """Count a wrong token; return how many seconds its refusal should wait."""
        key = _network(address)
        times = self._wrong[key] = self._wrong.get(key, 0) + 1
        self._wrong.move_to_end(key)
        if len(self._wrong) > REMEMBERED_ADDRESSES:
            self._wrong.popitem(last=False)
        return float(min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(times - 1, 10)))


def _network(address: str) -> str:
    """Return the part of an address that a machine cannot change at will: all of IPv4, the first half of IPv6."""
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))


def _scheme(headers: Mapping[str, str], host: str, tls: bool) -> str:
    """Return the scheme under which a client sees us: as its page or a proxy says, else that of this server."""
    origin = urlsplit(headers.get("Origin", ""))
    told = origin.scheme if origin.netloc.lower() == host else headers.get("X-Forwarded-Proto", "").strip().lower()
    return told if told in ("http", "https") else "https" if tls else "http"


def given_tokens(headers: Mapping[str, str]) -> list[str]:
    """Return what came in the place of a token: the key of a page that is signed in comes there, too."""
    scheme, _, credentials = headers.get("Authorization", "").strip().partition(" ")
    given = [credentials.strip()] if scheme.lower() == "bearer" else []
    for protocol in headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith(TOKEN_PROTOCOL):
            given.append(_decoded(protocol.strip().removeprefix(TOKEN_PROTOCOL)))
    return given


def _shown(text: str) -> str:
    """Return a stranger's text in a form that is safe in a log: not too long, only printable ASCII."""
    return "".join(sign if " " < sign <= "~" else "?" for sign in text[:200])


def _bytes(text: str) -> bytes:
    """Return the text of a header as bytes, whatever it holds."""
    return text.encode("utf-8", "surrogateescape")


def _decoded(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    return host.lower() == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def parse_address(text: str) -> tuple[str, int]:
    """Read `host:port`, `[v6]:port`, `:port` or `port` (loopback). Raises `ValueError` with a text to show."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or not 0 <= int(port) <= 65535:
        raise ValueError(f"A server needs a port or an address like 127.0.0.1:3838, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


# -- the user at the other end of a connection on this machine -------------------------------------

# Linux lists every TCP socket with its owner in `/proc/net/tcp` and `/proc/net/tcp6`. A row counts only while the
# connection is open and a process holds it: a socket that its process has closed is listed with the owner 0.


def can_tell() -> bool:
    """Say whether owners can be found on this machine, by a trial connection. Takes a few milliseconds."""
    if not hasattr(os, "geteuid") or _stands_for_many(os.geteuid()):
        return False
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
            return owner(own.getsockname(), server.getsockname()) == os.geteuid()
    except OSError:
        return False


def owner(theirs: Endpoint, ours: Endpoint) -> int | None:
    """Return the user of the socket at `theirs` that is connected to `ours`; None if it is not found.

    Blocks: it reads a table of all sockets of the machine.
    """
    for _ in range(TRIES):
        for table in TABLES:
            with contextlib.suppress(OSError):
                if (user := find_owner(Path(table).read_bytes(), theirs, ours)) is not None:
                    return user
    return None


def find_owner(table: bytes, theirs: Endpoint, ours: Endpoint) -> int | None:
    """Return the owner of an open connection, from the text of a table."""
    for local, remote in zip(_written(theirs), _written(ours), strict=False):
        place = table.find(b" %b %b %b " % (local, remote, ESTABLISHED))
        if place < 0:
            continue
        # local, remote, state, queues, timer, retransmits, user, timeout, inode
        fields = table[place : table.find(b"\n", place)].split()
        if len(fields) > 8 and fields[6].isdigit() and fields[8].isdigit() and int(fields[8]) != 0:
            return int(fields[6])
    return None


def _written(endpoint: Endpoint) -> list[bytes]:
    """Return an endpoint as tables write it: words in the machine's byte order. IPv4 has one form for each table."""
    address, port = ipaddress.ip_address(endpoint[0].partition("%")[0]), endpoint[1]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    forms = [address.packed]
    if isinstance(address, ipaddress.IPv4Address):
        forms.append(b"\0" * 10 + b"\xff\xff" + address.packed)
    words = [struct.unpack(f"={len(form) // 4}I", form) for form in forms]
    return [b"%b:%04X" % (b"".join(b"%08X" % word for word in each), port) for each in words]


def _stands_for_many(user: int) -> bool:
    """Say whether all users that a container does not know are shown under this number."""
    try:
        unknown = int(Path("/proc/sys/kernel/overflowuid").read_text())
        everyone = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    except (OSError, ValueError):
        return False
    return user == unknown and not everyone
