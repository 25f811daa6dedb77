"""Browsers that are signed in. A person gives the token once; the browser gets a sign-in, which stands for it.

A sign-in has two halves, and counts only with both. One is a cookie that no script can read; browsers send it to every
port of a host, so whoever listens on another port may get it. The other is a key that the page keeps, which browsers
give to pages of its own origin alone. Only hashes of both are kept. A sign-in ends with the token that it was made
with: when the user is removed, or gets another token.
"""

import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct

from spindle.server.records import Records
from spindle.server.users import NAME, token_hash

SECONDS: Final = 30 * 86400
"""How long a sign-in lasts."""
TICKET_SECONDS: Final = 300
"""How long a ticket can be used; it counts once."""
_MOST: Final = 200
"""Sign-ins of a user that are kept; the oldest go first."""
_COOKIE: Final = re.compile(rf"(?:{NAME})?:[A-Za-z0-9_-]{{20,100}}")


class KnownBrowser(Struct, frozen=True):
    """A browser that is signed in."""

    user: str | None
    """None: the server has one token for all."""
    id: str
    """Hash of the cookie."""


class NewSignIn(Struct, frozen=True):
    cookie: str
    key: str


class SignIns:
    def __init__(self, records: Records, token_of: Callable[[str | None], str | None]) -> None:
        """`token_of` returns the hash of the present token of a user; None: there is no such user."""
        self._records = records
        self._token_of = token_of

    # All of these may block, and raise `SessionError`.

    def begin(self, user: str | None) -> NewSignIn:
        """Sign a browser in."""
        new = NewSignIn(f"{user or ''}:{secrets.token_urlsafe(32)}", secrets.token_urlsafe(32))
        self._add(user, "browsers", new.cookie, SECONDS, key=token_hash(new.key))
        return new

    def find(self, cookie: str, keys: Iterable[str]) -> KnownBrowser | None:
        """Return the sign-in with this cookie, if one of the keys is its other half."""
        found = KnownBrowser(_user(cookie), token_hash(cookie))
        entry = self._entry(found.user, "browsers", found.id) if _COOKIE.fullmatch(cookie) else None
        if entry is None or True not in [hmac.compare_digest(token_hash(key), str(entry.get("key"))) for key in keys]:
            return None
        return found

    def holds(self, sign_in: KnownBrowser) -> bool:
        """Say whether it still counts."""
        return self._entry(sign_in.user, "browsers", sign_in.id) is not None

    def end(self, sign_in: KnownBrowser) -> None:
        self._records.change(sign_in.user, lambda kept: kept.get("browsers", {}).pop(sign_in.id, None))

    def ticket(self, user: str | None) -> str:
        """Return what signs another browser in, once and soon."""
        ticket = f"{user or ''}:{secrets.token_urlsafe(24)}"
        self._add(user, "tickets", ticket, TICKET_SECONDS)
        return ticket

    def take(self, ticket: str) -> KnownBrowser | None:
        """Use up a ticket. Returns whose it was; None: it does not count."""
        if not _COOKIE.fullmatch(ticket):
            return None
        found = KnownBrowser(_user(ticket), token_hash(ticket))
        if self._entry(found.user, "tickets", found.id) is None:
            return None
        taken: list[Any] = []

        def use(kept: dict[str, Any]) -> None:
            taken[:] = [kept.get("tickets", {}).pop(found.id, None)]

        self._records.change(found.user, use)
        return found if taken[0] is not None else None

    def _entry(self, user: str | None, kind: str, id: str) -> dict[str, Any] | None:
        token = self._token_of(user)
        entry = None if token is None else self._records.read(user).get(kind, {}).get(id)
        if entry is None or entry.get("token") != token or entry.get("until", 0) < time.time():
            return None
        return dict(entry)

    def _add(self, user: str | None, kind: str, secret: str, seconds: int, **more: str) -> None:
        now = int(time.time())
        entry = {"token": self._token_of(user), "until": now + seconds, **more}

        def add(kept: dict[str, Any]) -> None:
            living = {id: one for id, one in kept.get(kind, {}).items() if one.get("until", 0) >= now}
            kept[kind] = dict([*living.items(), (token_hash(secret), entry)][-_MOST:])

        self._records.change(user, add)


def _user(text: str) -> str | None:
    return text.partition(":")[0] or None
