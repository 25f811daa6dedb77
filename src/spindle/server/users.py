"""The users of a server, from a file with hashed tokens that is read again when it changes.

    {"users": {"anna": {"token": "sha256:…", "runsPerDay": 100, "costPerDay": 5, "roots": ["/srv/anna"]}}}

`spindle tokens` writes the file; `docs/remote.md` has the table of keys.
"""

import hashlib
import logging
import os
import re
import secrets
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec

from spindle.base.user_files import BadFile, edit_json, read_object
from spindle.shapes.permission_modes import PermissionMode
from spindle.shapes.run_limits import RUN_LIMITS, RunLimits
from spindle.shapes.sandbox import SandboxLevel

NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""User names. They are names of folders, too."""
_FILE_OF_THE_SERVER: Final = re.compile(r"(scripted/|local/(?=[/~.]))")

log = logging.getLogger("spindle.users")


class User(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What the file says of a user; None: no limit."""

    token: str
    """`sha256:` and the hash of the token in hexadecimal digits."""
    admin: bool = False
    """May read `/metrics`, and use the sessions of other users with `?user=NAME`."""
    limits: RunLimits = RunLimits()
    """Of each run. In the file they stand beside the other keys."""
    runs_per_day: int | None = None
    cost_per_day: float | None = None
    """US dollars. Days are those of UTC."""
    owner: bool = False
    """May change keys, settings, rules and MCP servers of the whole server, with the code that it prints."""
    roots: tuple[str, ...] = ()
    """Directories in which, and below which, the sessions of the user may work; none: those of the server."""
    models: tuple[str, ...] = ()
    """Patterns of the models that the user may use, as `anthropic/*`; none: all."""
    permission_mode: PermissionMode | None = None
    """The mode of the user's sessions, which the user cannot change."""
    sandbox: SandboxLevel | None = None
    """The least level of the user's sessions: a client may make it stricter."""
    created: str | None = None

    def run_limits(self) -> dict[str, float | None]:
        """Return the limits of each run, by their names in the file."""
        return {limit.wire_name: getattr(self.limits, limit.name) for limit in RUN_LIMITS}

    def limited(self, limits: RunLimits) -> RunLimits:
        """Return these limits of a run, but none above those of the user."""
        return msgspec.structs.replace(
            limits,
            **{
                limit.name: min(known)
                for limit in RUN_LIMITS
                if (
                    known := [
                        n for n in (getattr(limits, limit.name), getattr(self.limits, limit.name)) if n is not None
                    ]
                )
            },
        )

    def may_use(self, model: str) -> bool:
        """Say whether the user may use this model, named `provider/id`.

        `scripted/PATH` and `local/PATH` read a file of the server: a pattern has to name the provider.
        """
        if found := _FILE_OF_THE_SERVER.match(model):
            return any(p.startswith(found[1]) and fnmatchcase(model, p) for p in self.models)
        return not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)

    def same_sessions(self, other: "User") -> bool:
        """Whether sessions that were opened for `other` may go on: only values that are always read again differ."""
        fresh = {"admin": False, "owner": False, "runs_per_day": None, "cost_per_day": None, "created": None}
        return msgspec.structs.replace(self, **fresh) == msgspec.structs.replace(other, **fresh)


def _nested_in(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def token_hash(token: str) -> str:
    # A token is 32 random bytes: it cannot be guessed from a fast hash.
    return "sha256:" + hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def read_users(path: Path) -> dict[str, User]:
    """Read the file; no file is no users. Raises `BadFile` with a text that names the file and the user."""
    try:
        found = (read_object(path) or {}).get("users", {})
        if not isinstance(found, dict):
            raise BadFile('"users" must be an object')
        return {name: _user(name, value) for name, value in found.items()}
    except BadFile as error:
        raise BadFile(f"{path}: {error}") from None


def _user(name: str, value: Any) -> User:
    if not re.fullmatch(NAME, name):
        raise BadFile(f"{name!r} is no name of a user: letters, digits, dots, _ and -, at most 64")
    try:
        user = msgspec.convert(_nested(value), User)
    except msgspec.ValidationError as error:
        raise BadFile(f"user {name}: {error}") from None
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", user.token):
        raise BadFile(f"user {name}: token must be sha256: and 64 hexadecimal digits; spindle tokens add makes it")
    numbers = {"runsPerDay": user.runs_per_day, "costPerDay": user.cost_per_day, **user.run_limits()}
    for limit, number in numbers.items():
        if number is not None and not number > 0:
            raise BadFile(f"user {name}: {limit} must be above 0; revoke the token to refuse everything")
    for root in user.roots:
        if not os.path.isabs(root):
            raise BadFile(f"user {name}: root {root} must be an absolute path")
    return user


def _nested(value: Any) -> Any:
    """Return what the file says of a user, with the limits of runs as an object of their own."""
    if not isinstance(value, dict) or "limits" in value:
        return {"users": value}  # no user has such a key
    names = {limit.wire_name: limit.name for limit in RUN_LIMITS}
    rest = {key: item for key, item in value.items() if key not in names}
    return {**rest, "limits": {names[key]: item for key, item in value.items() if key in names}}


class UsersFile:
    """The users as the file says now."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises `BadFile`, also if it has no users: then no client could connect."""
        self.path = path
        self.users: dict[str, User] = {}
        self._by_token: dict[str, str] = {}
        self._state: Any = None
        self._use(read_users(path))
        if not self.users:
            raise BadFile(f"{path} has no users: spindle tokens add NAME makes one")
        self._state = self._stat()

    def refresh(self) -> bool:
        """Read the file again if it has changed. Returns whether there is news; a file with a fault changes nothing."""
        state = self._stat()
        if state == self._state:
            return False
        self._state = state
        try:
            self._use(read_users(self.path))
        except BadFile as error:
            log.error("The users stay as they were: %s", error)
            return False
        log.info("%s was read again: %d users", self.path, len(self.users))
        return True

    def roots_of_others(self, name: str) -> list[str]:
        """Return the roots of all other users, but for those that lead to a root of this one."""
        own = [os.path.realpath(root) for root in (self.users[name].roots if name in self.users else ())]
        others = {os.path.realpath(root) for other, user in self.users.items() if other != name for root in user.roots}
        shared = {root for root in others for one in own if _nested_in(root, one) or _nested_in(one, root)}
        return sorted(others - shared)

    def find(self, token: str) -> str | None:
        """Return the name of the user with this token."""
        return self._by_token.get(token_hash(token))

    def _stat(self) -> Any:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _use(self, users: dict[str, User]) -> None:
        self.users = users
        self._by_token = {user.token: name for name, user in users.items()}


def add_user(path: Path, name: str, values: dict[str, Any]) -> str:
    """Write a new user. Returns the token. Raises `BadFile`, also if there is one of that name: it keeps its limits."""
    token = _new_token()
    value = {"token": token_hash(token), **values}
    _user(name, value)

    def add(file: dict[str, Any]) -> None:
        if name in (users := file.setdefault("users", {})):
            raise BadFile(
                f"{path} has a user {name} already. `spindle tokens rotate {name}` makes another token, "
                f"`spindle tokens set {name}` changes what that user may do"
            )
        users[name] = value

    edit_json(path, add, 0o600)
    return token


def rotate_token(path: Path, name: str) -> str:
    """Give a user another token, and change nothing else. Returns it. Raises `BadFile` if there is no such user."""
    token = _new_token()
    change_user(path, name, {"token": token_hash(token)})
    return token


def change_user(path: Path, name: str, values: dict[str, Any]) -> None:
    """Change these values of a user; None takes one away. Raises `BadFile`, and then the file stays as it is."""

    def change(file: dict[str, Any]) -> None:
        users = file.get("users", {})
        if not isinstance(users, dict) or name not in users:
            raise BadFile(f"{path} has no user {name}")
        changed = {key: value for key, value in {**users[name], **values}.items() if value is not None}
        _user(name, changed)
        users[name] = changed

    edit_json(path, change, 0o600)


def _new_token() -> str:
    return f"spindle_{secrets.token_urlsafe(32)}"


def revoke_user(path: Path, name: str) -> None:
    """Take a user out of the file. Raises `BadFile` if there is none."""

    def remove(file: dict[str, Any]) -> None:
        if file.get("users", {}).pop(name, None) is None:
            raise BadFile(f"{path} has no user {name}")

    edit_json(path, remove, 0o600)
