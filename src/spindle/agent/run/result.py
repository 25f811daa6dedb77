"""The result of a prompt as one object, for programs that look at nothing else."""

from typing import Any

from msgspec import UNSET, UnsetType, field

from spindle.agent import AgentError
from spindle.sessions.session import Session
from spindle.shapes.events import Denial, Fallback, PermissionRequest
from spindle.shapes.messages import Usage, Wire

STATUSES = {
    "end": "ok",
    "handled": "ok",
    "aborted": "aborted",
    "error": "error",
    "unfinished": "error",
    "length": "error",
    "denied": "denied",
    "schema": "schema",
    "interrupted": "interrupted",
    "waiting": "waiting",
}
"""Status by stop reason; every other stop reason is a limit."""
WAITING = "waiting"
"""Status and stop reason of a run that waits for the answer to a question."""
NO_ANSWER = "The model ended with an empty answer, also when it was asked for one"
UNFINISHED = (
    "The model ended with a call that cannot be run, with an announcement, or with a file that it only recited, also "
    "when it was told to do the work"
)
CUT_ANSWER = (
    "The answer was cut at the limit of output tokens. Ask for a shorter answer, tell the model to go on, or raise the "
    "limit (maxTokens)"
)
EXIT_CODES = {"ok": 0, "error": 1, "aborted": 1, "denied": 3, "limit": 4, "schema": 5, "waiting": 6}
"""Exit code by status. 2 is a wrong command line, 128 + n the end by signal n."""


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


def status_of(stop_reason: str, denials: list[Denial]) -> str:
    status = STATUSES.get(stop_reason, "limit")
    return "denied" if status == "ok" and denials else status


def exit_code(result: RunResult) -> int:
    return EXIT_CODES[result.status]


def without_run(session: Session) -> RunResult:
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
        session_id=session.id,
        session_file=str(session.path) if session.path else None,
        files_changed=[],
        duration_ms=0,
    )


class SubagentReport(Wire, kw_only=True, omit_defaults=False):
    """How the work of a subagent ended: the details of the result of `task`."""

    agent: str
    """The name of its definition."""
    status: str
    """`ok`, `failed`, `empty`, `schema`, `aborted` or `limit`."""
    value: Any | UnsetType = UNSET
    """The data that it handed in, if the call has a schema."""
    error: str | None = None
    model: str | None = None
    turns: int = 0
    tool_calls: int = 0
    tokens: RunTokens
    cost: float | None = 0.0
    cost_source: str = "computed"
    session_id: str | None = None
    session_file: str | None = None


_OF_SUBAGENTS = {"ok": "ok", "denied": "ok", "limit": "limit", "schema": "schema", "aborted": "aborted"}


def report_of(result: RunResult, agent: str, model: str | None, stopped: str | None) -> SubagentReport:
    """Return how a subagent's run ended; `stopped` is the limit that ended the run that it works for, if one did."""
    status = _OF_SUBAGENTS.get(result.status, "failed")
    error: str | None = why(result)
    if result.error == NO_ANSWER:
        status, error = "empty", None
    elif result.stop_reason == "denied":
        status, error = "failed", "its tool calls were refused again and again"
    elif status == "limit" or (status == "aborted" and stopped is not None):
        status, error = "limit", stopped or result.stop_reason
    elif status == "ok":
        error = None
    return SubagentReport(
        agent=agent,
        status=status,
        value=result.value,
        error=error,
        model=model,
        turns=result.turns,
        tool_calls=result.tool_calls,
        tokens=result.tokens,
        cost=result.cost,
        cost_source=result.cost_source,
        session_id=result.session_id,
        session_file=result.session_file,
    )


# -- runs that did not end well, as exceptions -----------------------------------------------------


class RunFailed(AgentError):
    """A run that did not end well; an aborted run has no class of its own."""

    def __init__(self, text: str, result: RunResult) -> None:
        super().__init__(text)
        self.result = result
        """The result of the run."""


class ModelError(RunFailed):
    """The model could not be reached or gave no usable answer, or the agent broke."""


class Refused(RunFailed):
    """Tool calls were not allowed: `result.denials`. The model may have ended its work without them."""


class LimitReached(RunFailed):
    """A limit ended the run: `result.stop_reason` says which. Another prompt goes on from there."""


class SchemaNotMet(RunFailed):
    """The model handed in nothing that fits the schema."""


_FAILURES = {"error": ModelError, "denied": Refused, "limit": LimitReached, "schema": SchemaNotMet}


def why(result: RunResult) -> str:
    if result.status == "limit":
        return f"Stopped by a limit: {result.stop_reason}"
    if result.status == "schema":
        return "The model handed in no result that fits the JSON Schema"
    if result.status == "denied":
        return "\n".join(dict.fromkeys(denial.reason for denial in result.denials))
    if result.questions:
        return "\n".join(f"Waits for an answer: {one.summary} (question {one.id})" for one in result.questions)
    return result.error or f"Request {result.stop_reason}"


def failure(result: RunResult) -> RunFailed | None:
    return None if result.status == "ok" else _FAILURES.get(result.status, RunFailed)(why(result), result)
