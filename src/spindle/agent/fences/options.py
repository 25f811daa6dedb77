"""Permissions as they are given, and as they are told."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from spindle.agent.fences.callback import CanUseTool
from spindle.shapes.approvals import Decision
from spindle.shapes.messages import Wire
from spindle.shapes.sandbox import SandboxOptions

OnQuestion = Literal["deny", "wait"]
"""What a question to which there is no answer means: a no, or that the run waits for an answer that comes later."""
ON_QUESTION = ("deny", "wait")


class PermissionOptions(Struct, frozen=True):
    """Permissions as a command line, a program or a client sets them."""

    mode: str | None = None
    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()
    can_use_tool: CanUseTool | None = None
    """Answers questions. With it the mode is `default` unless another one is set."""
    directories: Sequence[str] = ()
    """Folders that count as part of the working directory; the model is told of them."""
    sandbox: SandboxOptions = SandboxOptions()
    on_question: OnQuestion = "deny"


class RuleInfo(Wire):
    behavior: str
    rule: str
    source: str


class PermissionState(Wire, kw_only=True):
    mode: str
    rules: list[RuleInfo]
    """By behavior, in the order in which they are tried."""
    decision: Decision | None = None
    """The decision about the call in the request."""
