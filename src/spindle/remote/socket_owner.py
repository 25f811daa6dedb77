"""Whose process holds the other end of a connection on this machine.

Linux lists every TCP socket with its owner in `/proc/net/tcp` and `/proc/net/tcp6`. A row counts only while the
connection is open and a process holds it: a socket that its process has closed is listed with the owner 0.
"""

import contextlib
import ipaddress
import os
import socket
import struct
from pathlib import Path
from typing import Final

TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
ESTABLISHED: Final = b"01"
# The table may change while it is read, and a row be passed over.
TRIES: Final = 2

Endpoint = tuple[str, int]


def can_tell() -> bool:
    """Say whether owners can be found here, by a look at a connection of our own. Takes a few milliseconds."""
    if not hasattr(os, "geteuid") or _stands_for_many(os.geteuid()):
        return False
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
            return owner(own.getsockname(), server.getsockname()) == os.geteuid()
    except OSError:
        return False


def owner(theirs: Endpoint, ours: Endpoint) -> int | None:
    """Return the user of the socket at `theirs` that is connected to `ours`; None if there is none to be found.

    Reads a table as long as there are sockets: not for the event loop.
    """
    for _ in range(TRIES):
        for table in TABLES:
            with contextlib.suppress(OSError):
                if (user := find_owner(Path(table).read_bytes(), theirs, ours)) is not None:
                    return user
    return None


def find_owner(table: bytes, theirs: Endpoint, ours: Endpoint) -> int | None:
    """Look up the owner of an open connection in the text of a table."""
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
    """Return an endpoint as tables write it: words in the machine's byte order. IPv4 has a form in either table."""
    address, port = ipaddress.ip_address(endpoint[0].partition("%")[0]), endpoint[1]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    forms = [address.packed]
    if isinstance(address, ipaddress.IPv4Address):
        forms.append(b"\0" * 10 + b"\xff\xff" + address.packed)
    return [b"%b:%04X" % (_words(form), port) for form in forms]


def _words(packed: bytes) -> bytes:
    return b"".join(b"%08X" % word for word in struct.unpack(f"={len(packed) // 4}I", packed))


def _stands_for_many(user: int) -> bool:
    """Say whether all users that a container does not know are shown under this number."""
    try:
        unknown = int(Path("/proc/sys/kernel/overflowuid").read_text())
        everyone = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    except (OSError, ValueError):
        return False
    return user == unknown and not everyone
