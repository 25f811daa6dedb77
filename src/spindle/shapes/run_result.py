"""The result of a prompt as one object, for programs that look at nothing else; the same on every wire."""

from typing import Any

from msgspec import UNSET, UnsetType, field

from spindle.shapes.approvals import Denial, PermissionRequest
from spindle.shapes.events import Fallback
from spindle.shapes.messages import Usage, Wire


class RunTokens(Wire, omit_defaults=False):
    """Tokens of all model calls of a run."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0

    def add(self, usage: "Usage | RunTokens") -> None:
        self.input += usage.input
        self.output += usage.output
        self.cache_read += usage.cache_read
        self.cache_write += usage.cache_write
        self.total += usage.input + usage.output + usage.cache_read + usage.cache_write


class RunResult(Wire, kw_only=True, omit_defaults=False):
    """The result of a run."""

    status: str
    """`ok`, `error`, `aborted`, `interrupted`, `waiting`, `denied`, `limit` or `schema`."""
    stop_reason: str
    """As `agent_settled` has it."""
    text: str
    """Text of the last answer."""
    value: Any | UnsetType = UNSET
    """The result that the model handed in, if a schema was given."""
    error: str | None = None
    denials: list[Denial]
    """Tool calls that were not allowed. If there are any, a run that ended well has the status `denied`."""
    questions: list[PermissionRequest] | UnsetType = UNSET
    """Questions that a run with the status `waiting` waits for; `answer_question` answers them."""
    turns: int
    tool_calls: int
    tokens: RunTokens
    cost: float | None
    """US dollars; null if the cost of a model call is not known."""
    cost_source: str
    """`billed` by the provider, `computed` from the price list (or in part), or `unknown`."""
    session_id: str
    session_file: str | None
    files_changed: list[str]
    """Files that differ from before the run, whoever changed them; without checkpoints those that `write` and `edit`
    wrote to."""
    fallbacks: list[Fallback] = field(default_factory=list)
    """Switches to other models, because one could not answer."""
    duration_ms: int

    def figures(self) -> dict[str, Any]:
        """Return the figures for the trace, which gets nothing of the conversation itself."""
        return {
            "stop_reason": self.stop_reason,
            "turns": self.turns,
            "tool_calls": self.tool_calls,
            "denials": len(self.denials),
            "input_tokens": self.tokens.input,
            "output_tokens": self.tokens.output,
            "cache_read_tokens": self.tokens.cache_read,
            "cache_write_tokens": self.tokens.cache_write,
            "cost": self.cost,
        }


def handled(session_id: str, session_file: str | None) -> RunResult:
    """Return the result of a prompt that a command of an extension has dealt with."""
    return RunResult(
        status="ok",
        stop_reason="handled",
        text="",
        denials=[],
        turns=0,
        tool_calls=0,
        tokens=RunTokens(),
        cost=0.0,
        cost_source="computed",
        session_id=session_id,
        session_file=session_file,
        files_changed=[],
        duration_ms=0,
    )
