"""The account of a user on a server: what the user may do, and what the user has used up today.

Every seat of a user has the same account. Commands are checked against it before they are carried out; the model calls
of the user's sessions are checked one by one, so that a quota exceeds its limit by at most one call of each run.
"""

import logging
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from spindle.agent import AgentError
from spindle.agent.hooks import Hooks
from spindle.agent.session import AgentSession
from spindle.base import trace
from spindle.base.agent_dir import agent_dir
from spindle.server import room
from spindle.server.day_book import AnyBook
from spindle.server.links import Links
from spindle.server.permit import Permit
from spindle.server.users import User
from spindle.shapes.model import Model
from spindle.shapes.owner import AccountState
from spindle.shapes.run_limits import RunLimits

T = TypeVar("T")
log = logging.getLogger("spindle.users")
STRICT: Final = ("plan", "dontAsk")
"""Permission modes in which a user can agree to nothing."""


class Terms(Struct, frozen=True):
    """What holds for all sessions of a user, by the file of the users and by the options of the server."""

    session_dir: str
    """Where they are."""
    mode: str | None = None
    """The permission mode; None: the user may choose."""
    level: str = "off"
    """The least level of the sandbox."""


class NotAllowed(AgentError):
    """The user may not do this."""


class Locked(NotAllowed):
    """The client has not shown the code of the server."""

    code = "locked"


class QuotaReached(AgentError):
    """The user has used up what a day allows."""


class Closing(AgentError):
    """The server ends, and takes no new runs."""


class NoRoom(Closing):
    """The disk is nearly full: the server takes no new runs until there is room again."""


class Account:
    def __init__(self, name: str | None = None, user: User | None = None, book: AnyBook | None = None) -> None:
        """`book` has what the user has used up. Without a user everything is allowed."""
        self.name = name
        self.user = user
        self.closing = False
        """Whether the server takes no new runs."""
        self.terms: Terms | None = None
        """None: the user may open any file, and choose modes and levels."""
        self.permit: Permit | None = None
        """The code that the server has printed."""
        self.links: Links | None = None
        """Links to conversations of the users."""
        self._told_of_room = False
        """Whether it was logged that the disk is getting full."""
        self._book = book

    # -- runs ------------------------------------------------------------------------------------

    def check_work(self, model: Model | None) -> None:
        """Raise `Closing`, `NoRoom`, `NotAllowed` or `QuotaReached` if no model may be called for this user now."""
        if self.closing:
            raise Closing("The server is shutting down and takes no new runs; another one may be there soon")
        self._check_room()
        self.check_call(model)

    def check_call(self, model: Model | None) -> None:
        """Raise `NotAllowed` or `QuotaReached` if this model may not be called; a run that goes on may be ending."""
        user, book = self.user, self._book
        if user is None or book is None or model is None:
            return
        self.check_model(model.full_name)
        if user.cost_per_day is None:
            return
        if model.cost_unknown:
            raise self._refused(
                f"Your cost is limited, and the price of {model.provider}/{model.id} is unknown: use another model"
            )
        book.refresh()
        if book.cost >= user.cost_per_day:
            self._reached("costPerDay", f"${user.cost_per_day:g}", f"${book.cost:.4f} are spent")

    def _check_room(self) -> None:
        left = room.free(agent_dir() if self.terms is None else self.terms.session_dir)
        if left is None or left >= room.LOW:
            self._told_of_room = False
            return
        if not self._told_of_room:
            self._told_of_room = True
            log.warning("%d MiB are left on the disk of the sessions; below %d no new work is taken", *_mib(left))
        if left < room.LEAST:
            trace.tell("refusal", status=503, reason="disk", why="the disk is nearly full", user=self.name)
            raise NoRoom(
                "The disk of the server is nearly full: it takes no new runs until there is room. What it has accepted "
                "is kept"
            )

    async def counted(self, agent: AgentSession, submitting: Coroutine[Any, Any, T]) -> T:
        """Hand in what leads to a run, which counts unless it is refused. Raises as `check_work`."""
        user, book = self.user, self._book
        try:
            self.check_work(agent.model)
            if user is not None and book is not None and not await book.begin_run(user.runs_per_day):
                self._reached("runsPerDay", f"{user.runs_per_day} runs", "all have begun")
        except BaseException:
            submitting.close()
            raise
        try:
            return await submitting
        except BaseException:
            if book is not None:
                await book.end_run()
            raise

    def state(self) -> AccountState:
        """Return what the user may do, and has used up today."""
        user, terms, book = self.user, self.terms, self._book
        if user is None or book is None:
            return AccountState(owner=True)
        book.refresh()
        return AccountState(
            name=self.name,
            owner=user.owner,
            runs=book.runs,
            runs_per_day=user.runs_per_day,
            cost=book.cost,
            cost_per_day=user.cost_per_day,
            mode=None if terms is None else terms.mode,
            sandbox="off" if terms is None else terms.level,
            models=list(user.models),
        )

    def spend(self, cost: float) -> None:
        if self._book is not None and cost:
            self._book.spend(cost)

    def _reached(self, limit: str, most: str, used: str) -> None:
        trace.tell("limit", limit=limit, user=self.name)
        left = 86400 - time.time() % 86400
        raise QuotaReached(
            f"Today's limit of {most} is reached: {used}. It begins again in {left / 3600:.1f} hours (UTC)"
        )

    def _refused(self, why: str) -> NotAllowed:
        """Report a refusal, and return its error."""
        trace.tell("refusal", status=403, reason="command", why=why, user=self.name)
        return NotAllowed(why)

    def limited(self, limits: RunLimits) -> RunLimits:
        """Return the limits of a run as a client wants them, but not above those of the user."""
        return limits if self.user is None else self.user.limited(limits)

    def bind(self, agent: AgentSession) -> None:
        """Check every model call of an agent."""
        if self.user is not None:
            agent.hooks.add(_CountedCalls(self))

    # -- commands --------------------------------------------------------------------------------

    def check_model(self, name: str) -> None:
        """Raise `NotAllowed` if the user may not use this model."""
        if self.user is not None and not self.user.may_use(name):
            allowed = ", ".join(self.user.models) or "all that read no file of the server"
            raise self._refused(f"You may not use {name}; allowed: {allowed}")

    def check(self, command: str, fields: dict[str, Any], agent: AgentSession) -> None:
        """Raise `NotAllowed`, `QuotaReached` or `Closing` if the user may not give this command now."""
        if command in _WORK and fields.get("summarize", True):
            self.check_work(agent.model)
        if command == _UPLOAD:
            self._check_room()
        if self.user is not None and (check := _CHECKS.get(command)) is not None:
            check(self, fields, agent)

    def check_owner(self, *, unlocked: bool) -> None:
        """Raise `NotAllowed` or `Locked` if a client of this user may not change keys, settings, rules and servers."""
        if self.user is not None and not self.user.owner:
            raise self._refused("Keys, logins, settings, rules and servers of this server are its operator's")
        if not unlocked:
            raise Locked(
                "This changes keys, settings, rules or servers, so it wants the code that the server printed when it "
                "started (once for each browser): unlock"
            )

    def _check_owner(self, fields: dict[str, Any], agent: AgentSession) -> None:
        if self.user is not None and not self.user.owner:
            raise self._refused("What is set on this server is its operator's")

    def _check_permissions(self, fields: dict[str, Any], agent: AgentSession) -> None:
        if self.terms is not None and self.terms.mode is not None and (fields["mode"] or fields["allow"]):
            raise self._refused(
                "The permission mode is set for you on this server; you may only add ask and deny rules"
            )

    def _check_programs(self, fields: dict[str, Any], agent: AgentSession) -> None:
        if self.terms is not None and self.terms.mode in STRICT:
            raise self._refused(f"You may start no programs of your own: your permission mode is {self.terms.mode}")

    def _check_servers(self, fields: dict[str, Any], agent: AgentSession) -> None:
        self._check_programs(fields, agent)
        if self.terms is not None and self.terms.level != "off":  # their values may be commands, or name our keys
            raise self._refused(f"You may add no MCP servers: your sandbox is {self.terms.level}")

    def _check_set_model(self, fields: dict[str, Any], agent: AgentSession) -> None:
        self.check_model(f"{fields['provider']}/{fields['model_id']}")

    def _check_session_file(self, fields: dict[str, Any], agent: AgentSession) -> None:
        path = fields.get("session_path") or fields.get("parent_session")
        # In a store, a user finds no sessions but the user's own.
        own = None if self.terms is None or agent.session.store is not None else self.terms.session_dir
        if path is not None and own is not None and not _inside(path, agent.cwd, [own]):
            raise self._refused("Only your own sessions can be opened: list_sessions has their paths")

    def _check_output(self, fields: dict[str, Any], agent: AgentSession) -> None:
        self._check_writing(fields, agent)
        if not _inside(fields["output_path"] or os.getcwd(), agent.cwd, [agent.cwd]):
            raise self._refused(
                "A page can be written only in the working directory (outputPath); export_page returns it"
            )

    def _check_writing(self, fields: dict[str, Any], agent: AgentSession) -> None:
        if self.terms is not None and self.terms.level == "read-only":
            raise self._refused("You may write no files: your sandbox is read-only")

    def _check_prefix(self, fields: dict[str, Any], agent: AgentSession) -> None:
        path = fields["prefix"]
        if path.startswith(("/", "~", "./", "../")):
            roots = [agent.cwd, *(self.user.roots if self.user is not None else ())]
            if not _inside(os.path.dirname(os.path.expanduser(path)) or "/", agent.cwd, roots):
                raise self._refused("Only paths of your own directories are completed")


_UPLOAD: Final = "upload_file"
_WORK: Final = frozenset({"steer", "send_queued", "compact", "handoff", "navigate_tree"})
"""Commands that may lead to a model call; prompts are checked when they are counted."""
_CHECKS: Final[dict[str, Callable[[Account, dict[str, Any], AgentSession], None]]] = {
    "bash": Account._check_programs,
    "set_mcp_servers": Account._check_servers,
    "set_permissions": Account._check_permissions,
    "set_model": Account._check_set_model,
    "switch_session": Account._check_session_file,
    "new_session": Account._check_session_file,
    "export_html": Account._check_output,
    "restore": Account._check_writing,
    "complete_path": Account._check_prefix,
    "get_keys": Account._check_owner,
    "get_settings": Account._check_owner,
    "get_model_ways": Account._check_owner,
    "unlock": Account._check_owner,
}


class _CountedCalls(Hooks):
    """Checks each model call of a session."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def model_call(self, model: Model) -> None:
        self._account.check_call(model)


def _mib(left: int) -> tuple[int, int]:
    return left >> 20, room.LEAST >> 20


def _inside(path: str, cwd: str, folders: list[str]) -> bool:
    try:
        place = Path(os.path.realpath(os.path.join(cwd, path)))
    except ValueError:  # no file can have this name
        return False
    return any(place.is_relative_to(os.path.realpath(folder)) for folder in folders)
