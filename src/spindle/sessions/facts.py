"""Facts: what parts of the agent keep in a session, in custom entries that other programs carry and ignore.

Each type of entry is a `Fact` that is declared by the part it belongs to; `keep` writes one and `facts` reads them. A
session file may come from anywhere: an entry that does not fit its declaration is passed over, and `damaged` names it.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from msgspec import ValidationError, convert

from spindle.sessions.entries import Entry
from spindle.shapes.messages import Wire

if TYPE_CHECKING:
    from spindle.sessions.session import Session

RUN_ENTRY = "spindle.run"
"""Type of the entries that say when a run began, went on, and ended; lists of sessions read them, too."""
RUN_OPEN = ("begun", "resumed", "waiting")
"""States of a run that has not ended."""


class Fact(Wire):
    """Base of what is kept. A field that old files may lack has a default."""

    entry_type: ClassVar[str]
    """Type of the custom entries."""

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """Read an entry of this type. Raises `ValidationError` if it is damaged."""
        return convert(entry.value.get("data"), cls)

    @classmethod
    def is_in(cls, entry: Entry) -> bool:
        """Say whether an entry is of this type, damaged or not."""
        # Few entries are: the others need not be decoded.
        named = entry.type == "custom" and cls.entry_type.encode() in entry.raw
        return named and entry.value.get("customType") == cls.entry_type


F = TypeVar("F", bound=Fact)


def keep(session: "Session", fact: Fact) -> Entry:
    """Write a fact into the session. Returns its entry."""
    entry = session.entry(session.append_custom(fact.entry_type, fact))
    assert entry is not None
    return entry


def fact_in(entry: Entry, kind: type[F]) -> F | None:
    """Return the fact in an entry; None if it is of another type, or damaged."""
    if not kind.is_in(entry):
        return None
    try:
        return kind.of(entry)
    except ValidationError:
        return None


def facts(entries: Iterable[Entry], kind: type[F]) -> list[F]:
    """Return the facts of a type, in the order of the entries."""
    return [fact for entry in entries if (fact := fact_in(entry, kind)) is not None]


def damaged(entries: Iterable[Entry]) -> dict[str, str]:
    """Return what is wrong with facts that cannot be read, by the ids of their entries."""
    kinds, found = {kind.entry_type: kind for kind in Fact.__subclasses__()}, {}
    for entry in entries:
        kind = kinds.get(str(entry.value.get("customType"))) if entry.type == "custom" else None
        if kind is not None:
            try:
                kind.of(entry)
            except ValidationError as error:
                found[entry.id] = f"{kind.entry_type}: {error}"
    return found
