"""What came of a prompt, as one object: for programs that look at nothing else."""

from typing import Any

from msgspec import UNSET, UnsetType

from spindle.shapes.events import Denial
from spindle.shapes.messages import Wire

STATUSES = {
    "end": "ok",
    "handled": "ok",
    "aborted": "aborted",
    "error": "error",
    "denied": "denied",
    "schema": "schema",
}
"""By stop reason; every other one is a limit."""
EXIT_CODES = {"ok": 0, "error": 1, "aborted": 1, "denied": 3, "limit": 4, "schema": 5}
"""2 is a wrong command line, 128 + n the end by signal n."""


class RunTokens(Wire, omit_defaults=False):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0


class RunResult(Wire, kw_only=True, omit_defaults=False):
    status: str
    """`ok`, `error`, `aborted`, `denied`, `limit` or `schema`."""
    stop_reason: str
    """As `agent_settled` has it."""
    text: str
    """Of the last answer."""
    value: Any | UnsetType = UNSET
    """What was handed in, if a schema was given."""
    error: str | None = None
    denials: list[Denial]
    """Calls that were not allowed. With any of them a run that ended well has the status `denied`."""
    turns: int
    tool_calls: int
    tokens: RunTokens
    cost: float | None
    """US dollars; null if the price is unknown."""
    cost_source: str
    """`computed` from the price list, `billed` by the provider, or `unknown`."""
    session_id: str
    session_file: str | None
    files_changed: list[str]
    """By the tools `write` and `edit`."""
    duration_ms: int


def status_of(stop_reason: str, denials: list[Denial]) -> str:
    status = STATUSES.get(stop_reason, "limit")
    return "denied" if status == "ok" and denials else status


def exit_code(result: RunResult) -> int:
    return EXIT_CODES[result.status]
