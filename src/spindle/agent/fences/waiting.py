"""Questions that outlive the process: kept in the session when they are asked, answered there, and used once.

A call whose question waits is left open and has not run. The note that an answer was used comes before the call runs,
so no call is made twice, whenever the process ends.
"""

from collections.abc import Iterable
from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from spindle.sessions.entries import Entry
from spindle.sessions.facts import Fact, facts, keep
from spindle.sessions.session import Session
from spindle.shapes.approvals import Answer, Deny, PermissionRequest


class Held(Exception):
    """The call stays open: its question waits in the session."""


class KeptQuestion(Fact, kw_only=True):
    """A question about a call, as it is asked, answered, or used."""

    entry_type: ClassVar[str] = "spindle.question"
    call: str
    state: Literal["asked", "answered", "used"]
    request: PermissionRequest
    answer: Answer | UnsetType = UNSET

    @property
    def has_run(self) -> bool:
        """Whether the call may have run. The process may have ended since."""
        return self.state == "used" and not isinstance(self.answer, Deny)

    def answered(self, session: Session, answer: Answer) -> None:
        keep(session, KeptQuestion(call=self.call, state="answered", request=self.request, answer=answer))

    def used(self, session: Session, answer: Answer | UnsetType) -> None:
        keep(session, KeptQuestion(call=self.call, state="used", request=self.request, answer=answer))


def asked(session: Session, call: str, request: PermissionRequest) -> KeptQuestion:
    """Keep a new question."""
    question = KeptQuestion(call=call, state="asked", request=request)
    keep(session, question)
    return question


def kept_questions(entries: Iterable[Entry], calls: Iterable[str]) -> dict[str, KeptQuestion]:
    """Return the questions about these calls as they stand, by call."""
    wanted = set(calls)
    return {one.call: one for one in facts(entries, KeptQuestion) if one.call in wanted} if wanted else {}
