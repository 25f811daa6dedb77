"""The limits of a run. A limit is declared here and nowhere else, and `agent/run/meter.py` measures it.

Options of the command line, fields of the wire, keyword arguments in Python, tasks of a batch and the manual are made
from this declaration.
"""

from typing import Annotated, Any, TypedDict, get_args

from msgspec import Struct
from msgspec.structs import fields, replace


class Words(Struct, frozen=True):
    """Texts about a limit, for people."""

    value: str
    """Placeholder of its value in the help."""
    help: str
    """Help of its option."""
    unit: str
    """The unit that is counted."""


class RunLimits(Struct, frozen=True):
    """Limits that a client or a program sets for a run; None: no limit."""

    max_turns: Annotated[int | None, Words("N", "End a run after so many model calls", "Model calls")] = None
    max_cost: Annotated[float | None, Words("USD", "End a run when it has cost so much", "US dollars")] = None
    max_time: Annotated[float | None, Words("SECONDS", "End a run after this time, as 90 or 10m", "Seconds")] = None
    max_total_tokens: Annotated[
        int | None,
        Words("N", "End a run after so many tokens, input and output", "Tokens of all model calls"),
    ] = None

    @property
    def on_spending(self) -> bool:
        return self.max_cost is not None or self.max_total_tokens is not None

    def over(self, others: "RunLimits") -> "RunLimits":
        """Return these limits; those that are None come from `others`."""
        mine = {name: value for name in RunLimits.__struct_fields__ if (value := getattr(self, name)) is not None}
        return replace(others, **mine) if mine else others


class LimitArguments(TypedDict, total=False):
    """The same limits as keyword arguments. For a limit that is left out, or None, that of the agent holds, if any.

    Type checkers need the names written out; a test compares the two.
    """

    max_turns: int | None
    """Model calls."""
    max_cost: float | None
    """US dollars."""
    max_time: float | None
    """Seconds."""
    max_total_tokens: int | None
    """Tokens of all model calls."""


class Limit(Struct, frozen=True):
    """One limit with its names."""

    name: str
    type: type[int] | type[float]
    words: Words

    @property
    def option(self) -> str:
        """The name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def wire_name(self) -> str:
        """The field of `prompt`, and the stop reason of a run that reached the limit."""
        first, *others = self.name.split("_")
        return first + "".join(map(str.title, others))


def _limit(name: str, annotated: Any) -> Limit:
    optional, words = get_args(annotated)
    return Limit(name, get_args(optional)[0], words)


RUN_LIMITS = tuple(_limit(item.name, item.type) for item in fields(RunLimits))
"""In the order in which they are shown."""
