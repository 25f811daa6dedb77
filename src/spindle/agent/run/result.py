"""How a run ended: its status, the exit code, the words for people, and exceptions for programs."""

from typing import Any

from msgspec import UNSET, UnsetType

from spindle.agent import AgentError
from spindle.sessions.session import Session
from spindle.shapes.approvals import Denial
from spindle.shapes.messages import Wire
from spindle.shapes.run_result import RunResult, RunTokens, handled

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
    "The model ended with a call that cannot be run, with an announcement, with a file that it only recited, or as if "
    "a change that failed had been made, also when it was told to do the work"
)
CUT_ANSWER = (
    "The answer was cut at the limit of output tokens. Ask for a shorter answer, tell the model to go on, or raise the "
    "limit (maxTokens)"
)
EXIT_CODES = {"ok": 0, "error": 1, "aborted": 1, "denied": 3, "limit": 4, "schema": 5, "waiting": 6}
"""Exit code by status. 2 is a wrong command line, 128 + n the end by signal n."""


def status_of(stop_reason: str, denials: list[Denial]) -> str:
    status = STATUSES.get(stop_reason, "limit")
    return "denied" if status == "ok" and denials else status


def exit_code(result: RunResult) -> int:
    return EXIT_CODES[result.status]


def without_run(session: Session) -> RunResult:
    """Return the result of a prompt that a command of an extension has dealt with."""
    return handled(session.id, str(session.path) if session.path else None)


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
