"""The words of questions about tool calls: for older clients, which know only dialogs, and for the model after a no."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec import UNSET

from spindle.agent import AgentError
from spindle.agent.fences.questions import SAVED, Dialog, GivenAnswer, kept_rules
from spindle.shapes.approvals import Allow, CommandPreview, Decision, Deny, DiffPreview, PermissionRequest, Suggestion
from spindle.shapes.codec import decode, encode
from spindle.shapes.sandbox import SandboxLevel

OUTSIDE: Final = "bash outside of the sandbox"
"""Stands for the tool in a question about a command that the sandbox has stopped."""


def call_dialog(request: PermissionRequest, always: list[str], *, plain: bool) -> Dialog:
    """Return a question about a call as older clients get it; `plain`: as a yes-or-no question."""
    choices = {one.text: Allow(keep="session", rules=one.rules) for one in request.suggestions}
    text = request.summary if isinstance(request.preview, DiffPreview) else _text(request.arguments)
    if plain:
        return Dialog(f"Allow {request.tool_name}?", choices, text, always)
    if always and "user" in request.keeps:
        choices[f"{next(iter(choices))} {SAVED}"] = Allow(keep="user", rules=always)
    title = f"Allow {request.tool_name}{' (may destroy data)' if request.may_destroy else ''}? {text}"
    return Dialog(title, choices, always=always)


def outside_question(
    command: str, stopped_by: str, always: list[str], directory: str, level: SandboxLevel
) -> tuple[dict[str, Any], Dialog]:
    """Return the fields of the question whether a command may run again without the sandbox, and its dialog."""
    from spindle.agent.fences.offers import ALWAYS

    words = f"{ALWAYS} {', '.join(always)} outside"
    fields = {
        "kind": "outside",
        "tool_name": OUTSIDE,
        "arguments": {"command": command, "stoppedBy": stopped_by},
        "summary": "Run the command again, outside of the sandbox",
        "preview": CommandPreview(command=command, directory=directory, sandbox=level, stopped_by=stopped_by),
        "reason": f"the sandbox stopped it: {stopped_by}",
        "suggestions": [Suggestion(words, always)] if always else [],
        "keeps": ["session", "user"] if always else [],
    }
    choices = {words: Allow(keep="session", rules=always), f"{words} {SAVED}": Allow(keep="user", rules=always)}
    title = f"Run it outside of the sandbox? {command}\n({stopped_by})"
    return fields, Dialog(title, choices if always else {}, always=always)


def why(decision: Decision) -> str:
    return f"rule {decision.rule} of the {decision.source}" if decision.rule else decision.reason


def refusal(name: str, why: str, verdict: GivenAnswer) -> str:
    """Return why a call does not run, as the model should read it."""
    reason = verdict.answer.reason.strip() if isinstance(verdict.answer, Deny) else ""
    if verdict.by == "nobody":
        return f"Permission denied: this call of {name} needs a yes ({why}), and there is no answer."
    if verdict.by == "error":
        return f"Permission denied: this call of {name} needs a yes ({why}), and the question could not be answered."
    if verdict.by == "program" and reason:
        return reason
    no = f"The user did not allow this call of {name} ({why})."
    return f"{no} They said: {reason}" if reason else no


def _text(arguments: Any) -> str:
    if isinstance(arguments, dict) and len(arguments) == 1:
        (value,) = arguments.values()
        if isinstance(value, str):
            return value  # a lone text is shown as it is
    return encode(arguments).decode()


async def unchanged(request: PermissionRequest, answer: Allow) -> Allow:
    """Check a yes to a question whose input cannot be changed. Raises `AgentError`."""
    if answer.input is not UNSET:
        raise AgentError("The input of this question cannot be changed")
    rules = rules_to_keep(request, answer)
    require_offered(request, rules)
    return Allow(keep=answer.keep, rules=rules)


async def plain_yes(request: PermissionRequest, answer: Allow) -> Allow:
    """Check a yes that may itself be kept. Raises `AgentError`."""
    if answer.input is not UNSET or answer.rules:
        raise AgentError("This question is about no call: it takes no input and no rules")
    if answer.keep is not None and answer.keep not in request.keeps:
        raise AgentError(f'"keep" cannot be "{answer.keep}" for this question. Possible: {", ".join(request.keeps)}')
    return Allow(keep=answer.keep)


def input_of(answer: Allow) -> Any:
    """Return a copy of the changed input of a yes, as it will be recorded. Raises `AgentError` if it is no JSON."""
    try:
        return decode(encode(answer.input))
    except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise AgentError(f"The changed input cannot be written as JSON: {error}") from None


def rules_to_keep(request: PermissionRequest, answer: Allow) -> Sequence[str]:
    """Return the rules that a yes keeps. Raises `AgentError` if they cannot be kept there, or if there are none."""
    if answer.keep is None:
        return ()
    if answer.keep not in request.keeps:
        possible = ", ".join(request.keeps) or "none"
        raise AgentError(f'"keep" cannot be "{answer.keep}" for this question. Possible: {possible}')
    if not (rules := kept_rules(request, answer)):
        raise AgentError("There is no rule to keep: the question suggests none, and the answer names none")
    return rules


def require_offered(request: PermissionRequest, rules: Sequence[str]) -> None:
    """Raise `AgentError` for a rule that the question does not suggest."""
    offered = [rule for one in request.suggestions for rule in one.rules]
    if not set(rules) <= set(offered):
        raise AgentError(f"Only rules that the question suggests can be kept: {', '.join(offered) or 'none'}")
