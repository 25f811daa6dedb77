"""A client of a session, as the session and its commands see it. Every wire has a subclass of its own."""

from typing import TYPE_CHECKING

from spindle.agent import AgentError
from spindle.agent.run.handle import Run
from spindle.protocol.dialect import UpdateMode

if TYPE_CHECKING:
    from spindle.protocol.live_session import LiveSession
    from spindle.protocol.registry import LiveInfo, Wanted


class Seat:
    """What holds for a client whose wire carries a single session, and nothing else."""

    holds = False
    """Whether the session stays in memory as long as this client is there."""
    answers = True
    """Whether the client has words for questions."""

    # -- what the session asks -------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a command of this client is not answered yet."""
        return False

    def session_ended(self, live: "LiveSession", reason: str) -> None:
        """The session leaves memory while the client is there."""

    # -- what commands ask -----------------------------------------------------------------------

    def accepted(self, run: Run) -> None:
        """A prompt of this client was taken. The client is told of that when the prompt is kept."""

    def set_update_mode(self, mode: UpdateMode) -> None:
        """Change the form of updates that are sent from now on."""

    def request_shutdown(self) -> None:
        """The client wants to end what it may end. Its answer still goes out."""

    async def open_session(self, wanted: "Wanted") -> "LiveInfo":
        raise AgentError("There is one session here; new_session and switch_session change it")

    async def close_session(self) -> None:
        """End the session that the command is about."""
        raise AgentError("The session of this client ends with it")

    async def live_sessions(self) -> "list[LiveInfo]":
        return []
