"""Questions about tool calls in the chat. What a call would do stands above the question; its input can be edited."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from spindle.apps.console.input import Question
from spindle.apps.console.look import clean, fit, one_line, visible
from spindle.apps.input_text import input_of_text, text_of_input
from spindle.client import CommandFailed, Event
from spindle.shapes.codec import DecodeError

if TYPE_CHECKING:
    from spindle.apps.console.talk import Talk

Json = dict[str, Any]

_EDIT = "Edit the input"
_USUAL = "no rule allows it"
"""A reason that says nothing about the call."""


_KEPT: Final = (("project", "P", "Always in this project"), ("user", "A", "Always in all sessions"))
"""Where a rule may be kept beyond the session, the key for it, and how it is called."""


class PermissionQuestions:
    """Asks about one call at a time, and answers with `answer_permission`."""

    def __init__(self, talk: "Talk") -> None:
        self._talk = talk

    async def ask(self, request: Event) -> None:
        """Ask until there is an answer that the agent takes."""
        self._show(request)
        question, answers = _question(request)
        limit = request.get("timeout")
        answer: Json | None = None
        try:
            async with asyncio.timeout(limit and limit / 1000):
                while answer is None:
                    chosen = await self._talk.editor.ask(question)
                    if chosen is None:
                        break
                    answer = await self._answer(request, question.options[chosen], answers)
                    if answer is not None and not await self._send(request, answer):
                        answer = None
            if answer is None and self._talk.view.since is not None and request["kind"] != "trust":
                await self._talk.interrupt()
            elif answer is None:  # something else than a run waits
                await self._send(request, {"behavior": "deny"})
        except TimeoutError:
            pass
        words = "no answer" if answer is None else _words(request, answers, answer)
        told = fit(one_line(words), self._talk.view.width // 2)
        asked = fit(one_line(question.title), self._talk.view.width - len(told) - 3)
        self._talk.view.say(f"{asked} → {told}", "dim", kind="tool")

    async def _send(self, request: Event, answer: Json) -> bool:
        """Answer the question. Return false if the agent does not take the answer."""
        try:
            await self._talk.client.answer_permission(request["id"], **answer)
        except CommandFailed as failed:
            self._talk.view.fail(failed.error)
            return False
        return True

    async def _answer(self, request: Event, chosen: str, answers: dict[str, Json]) -> Json | None:
        if chosen == _EDIT:
            return await self._edited(request)
        if chosen != "Deny":
            return answers[chosen]
        reason = await self._talk.editor.ask(Question("Why not? The model reads it; Enter: no reason"))
        return {"behavior": "deny", "reason": reason.strip() or None} if reason is not None else {"behavior": "deny"}

    async def _edited(self, request: Event) -> Json | None:
        """Let the user edit the input in `$EDITOR`. None: it is as it was, or cannot be read."""
        given = request.get("arguments")
        after = await self._talk.editor.edit(*text_of_input(given))
        try:
            changed = input_of_text(given, after)
        except DecodeError as error:
            self._talk.view.fail(f"This is no JSON: {error}")
            return None
        if changed is None:
            self._talk.view.say("The input is as it was", "dim")
            return None
        return {"behavior": "allow", "input": changed}

    # -- what is shown ---------------------------------------------------------------------------

    def _show(self, request: Event) -> None:
        """Print what the call would do: it stays, and scrolls with the rest."""
        view, preview = self._talk.view, request.get("preview") or {}
        about = []
        if request.get("subagent"):
            about.append(f"the subagent {request['subagent']} asks")
        if preview.get("kind") == "command":
            about += [f"sandbox {preview['sandbox']}"] if preview["sandbox"] != "off" else []
            about += [f"at the far side of {preview['where']}"] if preview.get("where") else []
            about += ["in the background"] if preview.get("background") else []
        if preview.get("place"):
            about.append(f"as in {preview['place']}")
        if request.get("reason", _USUAL) != _USUAL and request["kind"] == "tool":
            about.append(request["reason"])
        if preview.get("kind") == "diff":
            view.previewed.add(request.get("toolCallId") or "")
            view.say(visible(preview["path"]), "bold", kind="question")
            for line in clean(preview["diff"]).split("\n"):
                view.say(f"  {line}", {"+": "green", "-": "red"}.get(line[:1], "dim"), kind="more")
            if preview.get("cut"):
                view.say("  … the rest is left out: the change is very long", "yellow", kind="more")
        elif preview.get("kind") == "failure":
            view.say(visible(f"It would fail: {preview['reason']}"), "red", kind="question")
        elif preview.get("kind") in ("fields", "address"):
            lines = [f"  {field['name']}: {field['value']}" for field in preview.get("fields", ())]
            view.say(visible("\n".join([request["summary"], *lines])), kind="question")
        if about:
            view.say(visible("; ".join(about)), "dim", kind="more" if preview.get("kind") == "diff" else "question")


def _question(request: Event) -> tuple[Question, dict[str, Json]]:
    """Return the question, and what its options answer."""
    answers: dict[str, Json]
    yes: Json = {"behavior": "allow"}
    title = visible(_title(request)).strip()
    if request["kind"] == "trust" and request.get("keeps"):
        answers = {
            "Yes, for this session": yes,
            "Yes, from now on": {**yes, "keep": "user"},
            "No": {"behavior": "deny"},
            "No, and do not ask again": {"behavior": "deny", "keep": "user"},
        }
        # Nobody has asked for it: a message that is being typed must not be the answer, so there are no keys.
        return Question(title, list(answers), chosen=2), answers
    if request["kind"] not in ("tool", "outside"):
        return Question(title, ["Yes", "No"], "yn"), {"Yes": yes, "No": {"behavior": "deny"}}
    answers = {"Allow once": yes}
    suggestions = request.get("suggestions") or []
    for one in suggestions:
        answers[one_line(one["text"])] = {**yes, "keep": "session", "rules": one["rules"]}
    keys = f"y{'abc'[: len(suggestions)]}"
    for keep, key, where in _KEPT if suggestions else ():
        if keep in (request.get("keeps") or ()):
            rules = suggestions[0]["rules"]
            answers[f"{where}: {one_line(', '.join(rules))}"] = {**yes, "keep": keep, "rules": rules}
            keys += key
    editable = request["kind"] == "tool"
    options = [*answers, *([_EDIT] if editable else []), "Deny"]
    return Question(title, options, f"{keys}{'e' * editable}n"), answers


def _title(request: Event) -> str:
    preview = request.get("preview") or {}
    if request["kind"] == "outside":
        return f"Run it outside of the sandbox? {preview['command']}\n({preview['stoppedBy']})"
    if request["kind"] != "tool":
        return f"{request['summary']}\n{preview.get('text') or request.get('reason', '')}"
    destroys = " (may destroy data)" if request.get("mayDestroy") else ""
    text = preview["command"] if preview.get("kind") == "command" else request["summary"]
    return f"Allow {request['toolName']}{destroys}? {text}"


def _words(request: Event, answers: dict[str, Json], answer: Json) -> str:
    if request["kind"] not in ("tool", "outside"):
        return next(text for text, means in answers.items() if means == answer)
    if answer["behavior"] == "deny":
        return f"Deny: {answer['reason']}" if answer.get("reason") else "Deny"
    if "input" in answer:
        return "Allow, with another input"
    return f"Always allow {', '.join(answer['rules'])}" if answer.get("keep") else "Allow once"
