"""Tells of a tool call that was refused, whoever refused it."""

from collections.abc import Callable

from msgspec.structs import asdict

from spindle.base import trace
from spindle.shapes.approvals import Denial, PermissionDenied
from spindle.shapes.events import Event


def tell_denial(publish: Callable[[Event], None], call_id: str, denial: Denial) -> None:
    said = (
        {"arguments": denial.arguments, "rule": denial.rule, "error_text": denial.error or denial.reason}
        if trace.content
        else {}
    )
    trace.tell("denial", tool=denial.tool_name, call=call_id, by=denial.by, **said)
    publish(PermissionDenied(call_id, **asdict(denial)))
