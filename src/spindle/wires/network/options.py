"""Options of the server: its address, who may connect, and the bounds that keep one client from harming the others."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    users: Path | None = None
    """The file with the users and their tokens."""
    origins: frozenset[str] = frozenset()
    """Sites other than our own page that may connect."""
    node_address: str | None = None
    """Where other servers on the same store reach this one; None: where it listens."""
    insecure: bool = False
    """Serve other machines without a token."""
    tls: tuple[str, str] | None = None
    """Certificate and key file."""
    max_connections: int = 256
    max_message_bytes: int = 16 << 20
    max_queued: int = 8
    """Chat requests of one connection that may wait behind the running one."""
    max_turns: int = 0
    """Chat requests before the user is asked whether to go on, unless the client says otherwise; 0: never ask."""
    frames_per_second: int = 200
    """Frames that a connection may send in the long run; it is read no faster. Five seconds' worth may come at once."""
    max_sessions: int = 2000
    """How many live sessions there may be; 0: no bound."""
    keep_seconds: float = 600
    """How long a session without clients stays in memory."""
    max_kept: int = 256
    """How many sessions without clients stay in memory; those without clients for longest go first."""
    request_timeout: float = 0
    """Seconds a chat request may take, without the time it waits for the user; 0: no time limit."""
    tool_timeout: float = 600
    """Seconds the tools of one answer may take; 0: no time limit."""
    confirm_timeout: float = 300
    """Seconds the user has for a confirmation; 0: no time limit."""
    stall_timeout: float = 30
    """Seconds a client may leave waiting frames unread."""
    viewer_stall_timeout: float = 10
    """The same for clients of the RPC protocol, which may hold up other clients of the session."""
    ping_seconds: float = 20
    """How often a silent client gets a ping, and how long it may take to answer."""
    reasoning: bool = False
    """Send the model's thinking too, as `[Reasoning: …]` in the stream."""


CHANGEABLE: dict[str, type] = {
    name: type(value)
    for name, value in ((f.name, f.default) for f in RemoteOptions.__dataclass_fields__.values())
    if isinstance(value, int) and name not in ("port", "insecure")
}
"""Options that can be set by name, each with its type: a number or a switch."""
_MAY_BE_ZERO = (
    "max_queued",
    "max_turns",
    "max_sessions",
    "keep_seconds",
    "max_kept",
    "request_timeout",
    "tool_timeout",
    "confirm_timeout",
)


def changed(options: RemoteOptions, assignments: Iterable[str]) -> RemoteOptions:
    """Return `options` with changes such as `confirm_timeout=60`. Raises `ValueError` with a text for people."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, _, text = assignment.partition("=")
        name, text = name.strip(), text.strip().lower()
        kind = CHANGEABLE.get(name)
        if kind is None:
            raise ValueError(f"Unknown remote option {name!r}; there are {', '.join(CHANGEABLE)}")
        if kind is bool:
            if text not in ("true", "false"):
                raise ValueError(f"Remote option {name} must be true or false")
            values[name] = text == "true"
        else:
            least = 0 if name in _MAY_BE_ZERO else 1
            if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) >= least):
                raise ValueError(f"Remote option {name} must be a whole number, at least {least}")
            values[name] = int(text)
    return replace(options, **values)
