"""What a client is told that has just come: what was not loaded or restored, and what waits for its user.

Each thing is told once, until there is something new: after a change of session, or when another client has come.
"""

from typing import TYPE_CHECKING

from spindle.sessions.facts import damaged
from spindle.shapes.approvals import RunInterrupted
from spindle.shapes.events import Notice

if TYPE_CHECKING:
    from spindle.agent.features.project_trust import ProjectTrust
    from spindle.agent.model_choice import ModelState
    from spindle.agent.session import AgentSession


class Welcome:
    def __init__(self, agent: "AgentSession", choice: "ModelState") -> None:
        self._agent = agent
        self._choice = choice
        self._noticed: str | None = None
        """The notice about trust that clients were told last."""
        self._trust: ProjectTrust | None = None
        """Asks about the project; None: there was nothing to ask."""
        self._damage_told: set[str] = set()
        """Ids of damaged entries."""
        self._told_run: str | None = None
        """The interrupted run that clients were told of last."""

    def tell(self) -> None:
        """Tell what is new."""
        agent, choice = self._agent, self._choice
        notice = agent.resources.trust.notice()
        if notice is not None and notice.message != self._noticed:
            self._noticed = notice.message
            agent.publish(Notice(notice.message))
        self._ask_for_trust()
        if choice.notice is not None:
            agent.publish(Notice(choice.notice))
            choice.notice = None
        self._tell_damage()
        if (run := agent.interrupted_run) is not None and run.id != self._told_run:
            self._told_run = run.id
            agent.publish(RunInterrupted(run))

    def _ask_for_trust(self) -> None:
        """Let the user decide about the project. Nothing waits for the answer."""
        agent = self._agent
        found, is_guest = agent.resources.trust, agent.resources.options.user_folder is not None
        if self._trust is None and found.is_open and not is_guest and not agent.approval.reaches_nobody:
            from spindle.agent.features.project_trust import ProjectTrust

            self._trust = ProjectTrust(agent, agent.approval.ask_for_trust)
        if self._trust is not None:
            self._trust.look()

    async def trust_answered(self) -> None:
        """Return when the user was asked about the project, if there is such a question."""
        if self._trust is not None:
            await self._trust.answered()

    def _tell_damage(self) -> None:
        """Tell which facts of the session are passed over."""
        session = self._agent.session
        new = {id: text for id, text in damaged(session.entries).items() if id not in self._damage_told}
        self._damage_told |= new.keys()
        if new:
            more = f", and {len(new) - 1} more" * (len(new) > 1)
            entry, text = next(iter(new.items()))
            self._agent.publish(Notice(f"Damaged entry of the session is passed over: {entry}: {text}{more}"))

    async def close(self) -> None:
        """Withdraw the question about the project."""
        if self._trust is not None:
            await self._trust.close()
