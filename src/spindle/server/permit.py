"""The code that a server prints, and the browsers that have shown it.

On this machine every process of the user may connect, a shell of an agent too. So what changes keys, settings, rules
or servers wants a proof that the client's user sees what the server prints. A code counts once; in its place the
client gets a permit, which it shows from then on. Only hashes of permits are kept.
"""

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from spindle.agent import AgentError
from spindle.base.user_files import BadFile, edit_json, read_object
from spindle.server.users import token_hash

_LETTERS: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
_LENGTH: Final = 8
_TRIES: Final = 5
"""After so many wrong codes there is another one."""
_MOST: Final = 50
"""Permits that are kept; the oldest go first."""


class WrongCode(AgentError):
    """That is not the code, or not a permit, of this server."""

    code = "locked"


class Permit:
    def __init__(self, file: Path) -> None:
        """`file` has the hashes of the permits."""
        self._file = file
        self.tell: Callable[[str], None] = lambda code: None
        """Called with every new code."""
        self._wrong = 0
        self._taking = threading.Lock()
        """Clients may show a code at the same moment, and it counts once."""
        self.code = self._new()

    def take(self, code: str) -> str:
        """Take a code, and return a permit. Raises `WrongCode`, or `AgentError` if the permit could not be kept."""
        with self._taking:
            return self._take(code.upper().replace("-", "").replace(" ", ""))

    def _take(self, given: str) -> str:
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.code.replace("-", "").encode()):
            self._wrong += 1
            if self._wrong >= _TRIES:
                self._renew()
                raise WrongCode("That was not the code, too often: the server has printed another one")
            raise WrongCode("That is not the code that the server printed last")
        permit = secrets.token_urlsafe(32)
        self._keep(permit)
        self._renew()
        return permit

    def knows(self, permit: str) -> bool:
        """Say whether this permit was given, and is kept."""
        try:
            kept = (read_object(self._file) or {}).get("browsers", {})
        except BadFile:
            return False
        return isinstance(kept, dict) and token_hash(permit) in kept

    def _keep(self, permit: str) -> None:
        def add(file: dict[str, Any]) -> None:
            kept = file.get("browsers")
            kept = dict(kept) if isinstance(kept, dict) else {}
            kept[token_hash(permit)] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            file["browsers"] = dict(list(kept.items())[-_MOST:])

        try:
            edit_json(self._file, add, 0o600)
        except (BadFile, OSError) as error:
            raise AgentError(f"Cannot change {self._file}: {error}") from None

    def _renew(self) -> None:
        self._wrong, self.code = 0, self._new()
        self.tell(self.code)

    @staticmethod
    def _new() -> str:
        letters = "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))
        return f"{letters[:4]}-{letters[4:]}"
