"""Features of an agent that are hooks of its own."""

from typing import TYPE_CHECKING

from spindle.agent.hooks import Hooks
from spindle.base import limits
from spindle.base.flow import Tasks
from spindle.shapes.events import AgentSettled, Event, SessionInfoChanged

if TYPE_CHECKING:
    from spindle.agent.engine import Engine

_READ_BY_PEOPLE = frozenset({"rpc", "chat", "acp", "remote"})
"""Modes whose sessions stand in lists that people read."""


def chosen_features(engine: "Engine") -> list[Hooks]:
    """Return the features that settings and session call for; the others are not loaded."""
    features: list[Hooks] = []
    if engine.settings.compaction.prune:
        from spindle.agent.features.pruning import Pruning

        features.append(Pruning(engine))
    if commands := engine.settings.checks_after_edit:
        from spindle.agent.features.edit_checks import EditChecks

        features.append(EditChecks(commands, engine))
    if engine.settings.read_before_write:
        from spindle.agent.features.unread_files import UnreadFiles

        features.append(UnreadFiles(engine))
    if engine.conversation.session.store is not None:
        from spindle.agent.features.uploads import Uploads

        features.append(Uploads(engine))
    return features


class Titles(Hooks):
    """Names a session after its first answer, beside the work, if the user has set a model for titles."""

    def __init__(self, engine: "Engine", mode: str) -> None:
        self._engine = engine
        self._tasks = Tasks()
        self._tried: set[str] = set()
        """Ids of sessions."""
        if mode in _READ_BY_PEOPLE:
            self.listening = frozenset({"agent_settled"})

    def observe_soon(self, event: Event) -> None:
        session = self._engine.conversation.session
        if not isinstance(event, AgentSettled) or event.stop_reason != "end" or session.id in self._tried:
            return
        if "titles" in self._engine.settings.roles:
            self._tried.add(session.id)
            if not any(entry.type == "session_info" for entry in session.entries):
                self._tasks.spawn(self._name(), "spindle-title")

    async def _name(self) -> None:
        from spindle.agent.naming import title_of

        session = self._engine.conversation.session
        made = await title_of(self._engine)
        if made is None or session is not self._engine.conversation.session:
            return
        if session.name is None:
            session.append_name(*made)
            self._engine.hub.publish(SessionInfoChanged(session.name))

    async def close(self) -> None:
        await self._tasks.end(limits.TASKS_END)
