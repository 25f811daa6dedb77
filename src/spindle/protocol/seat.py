"""A client of a session, as the session and its commands see it. Every wire has a subclass of its own."""

from collections.abc import Collection, Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from spindle.agent import AgentError
from spindle.agent.run.handle import Run
from spindle.protocol.dialect import SPINDLE, Dialect, UpdateMode

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession
    from spindle.protocol.live_session import LiveSession
    from spindle.protocol.registry import LiveInfo, WantedSession
    from spindle.server.account import Account
    from spindle.shapes.owner import AccountState
    from spindle.shapes.run_limits import RunLimits

T = TypeVar("T")


class NoAccount:
    """Stands for the account of a client that is no user of a server: it may do everything, and nothing is counted."""

    permit = None
    links = None
    name: str | None = None

    async def counted(self, agent: "AgentSession", submitting: Coroutine[Any, Any, T]) -> T:
        return await submitting

    def limited(self, limits: "RunLimits") -> "RunLimits":
        return limits

    def bind(self, agent: "AgentSession") -> None:
        pass

    def check(self, command: str, fields: dict[str, Any], agent: "AgentSession") -> None:
        pass

    def check_model(self, name: str) -> None:
        pass

    def state(self) -> "AccountState":
        from spindle.shapes.owner import AccountState

        return AccountState(owner=True)

    def check_owner(self, *, unlocked: bool) -> None:
        pass


NO_ACCOUNT = NoAccount()


class Seat:
    """A client whose wire carries one session; other wires override the methods."""

    holds = False
    """Whether the session stays in memory as long as this client is there."""
    answers = True
    """Whether the client can answer questions."""
    watches = False
    """Whether the client may only look on: nothing that it does or leaves undone changes anything for others."""
    dialect: Dialect = SPINDLE
    account: "Account | NoAccount" = NO_ACCOUNT
    """What the user of this client may do."""
    unlocked = False
    """Whether the client has shown the code of the server."""

    # -- what the session asks -------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a command of this client is not answered yet."""
        return False

    def session_ended(self, live: "LiveSession", reason: str) -> None:
        """Act on the end of the session, which leaves memory while the client is still there."""

    # -- what commands ask -----------------------------------------------------------------------

    def check_owner(self) -> None:
        """Raise `NotAllowed` or `Locked` if the client may not change keys, settings, rules and servers."""
        self.account.check_owner(unlocked=self.unlocked)

    def unlock(self) -> None:
        """Let the client change them from now on."""
        self.unlocked = True

    def accepted(self, run: Run) -> None:
        """Act on a prompt of this client that was accepted: the client is told once the prompt is kept."""

    def follow(self, run: Run, id: Any) -> None:
        """Tell the client of the end of the prompt that came with the command `id`, if it wants to know."""

    def negotiate(self) -> None:
        """Speak version 2 of oh-my-pi's protocol from now on."""
        raise AgentError("Version 2 of the protocol is for stdin and stdout")

    def set_subagent_subscription(self, level: Literal["off", "progress", "events"]) -> None:
        """Tell of subagents in oh-my-pi's form from now on."""
        raise AgentError("set_subagent_subscription is for clients that have negotiated version 2: negotiate_protocol")

    def set_event_filter(self, events: Collection[str] | None) -> None:
        """Send only events of these types from now on; None: all."""
        raise AgentError("Events are filtered only on stdin and stdout")

    def set_update_mode(self, mode: UpdateMode) -> None:
        """Change the form of updates that are sent from now on."""

    def request_shutdown(self) -> None:
        """End what the client may end: the process, or its connection. The response is still sent."""

    async def open_session(self, wanted: "WantedSession") -> "LiveInfo":
        raise AgentError("There is one session here; new_session and switch_session change it")

    async def close_session(self) -> None:
        """End the session that the command is about."""
        raise AgentError("The session of this client ends with it")

    async def live_sessions(self) -> "list[LiveInfo]":
        return []
