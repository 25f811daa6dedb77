"""Questions of an agent to the user of an editor: about permissions beside the tool call, other dialogs as forms."""

import asyncio
from contextlib import suppress
from typing import Any

from spindle.agent import AgentError
from spindle.agent.fences.questions import DENY, ONCE
from spindle.agent.session import AgentSession
from spindle.base.flow import Tasks
from spindle.shapes.approvals import Allow, Answer, Deny, PermissionRequest
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.wires.acp.json_rpc import JsonRpcError, RpcConnection
from spindle.wires.acp.updates import Update

NEVER = "Never allow"
YES, NO = "Yes", "No"


class Questions:
    def __init__(self, connection: RpcConnection, agent: AgentSession, session_id: str, *, forms: bool) -> None:
        """`forms`: whether the editor can show forms."""
        self._connection = connection
        self._agent = agent
        self._session_id = session_id
        self._forms = forms
        self._open: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks()

    def ask(self, request: ExtensionUIRequest, call: Update | None) -> None:
        """Ask the user; `call` is the tool call that the question is about, if any."""
        if request.id in self._open:
            return
        task = self._open[request.id] = self._tasks.spawn(self._ask(request, call), "acp question")
        task.add_done_callback(lambda _: self._open.pop(request.id, None))

    def ask_about(self, request: PermissionRequest, call: Update) -> None:
        """Ask the user about a call. The dialog that follows with the same id is left out."""
        task = self._open[request.id] = self._tasks.spawn(self._ask_about(request, call), "acp question")
        task.add_done_callback(lambda _: self._open.pop(request.id, None))

    def withdraw(self, id: str | None) -> None:
        if (task := self._open.get(id or "")) is not None:
            task.cancel()

    def close(self) -> None:
        for task in self._open.values():
            task.cancel()

    async def _ask_about(self, request: PermissionRequest, call: Update) -> None:
        choices = _choices(request)
        try:
            chosen = await self._permission(call, [(text, kind) for text, (kind, _) in choices.items()])
        except JsonRpcError as error:
            text = f"the editor could not ask: {error}"
            self._agent.replies.receive({"type": "extension_ui_response", "id": request.id, "error": text})
            return
        kind, answer = choices.get(chosen or "", ("", Deny()))
        if kind == "reject_always" and request.suggestions:
            never = [*client_rules(self._agent)["deny"], *request.suggestions[0].rules]
            self._agent.set_permissions(deny=never)
        with suppress(AgentError):  # another client was quicker
            await self._agent.approval.answer(request.id, answer)

    async def _ask(self, request: ExtensionUIRequest, call: Update | None) -> None:
        fields: dict[str, Any] = {"cancelled": True}
        try:
            if request.method in ("confirm", "select") and (call is not None or not self._forms):
                fields = await self._choice(request, call)
            elif self._forms:
                fields = await self._form(request)
        except JsonRpcError as error:
            fields = {"cancelled": True, "error": f"the editor could not ask: {error}"}
        # An editor that has left says nothing: other clients may answer.
        self._agent.replies.receive({"type": "extension_ui_response", "id": request.id, **fields})

    async def _choice(self, request: ExtensionUIRequest, call: Update | None) -> dict[str, Any]:
        """Ask a question of an extension or a server like one about a call."""
        is_confirm = request.method == "confirm"
        texts = [YES, NO] if is_confirm else request.options or []
        about = call or {"toolCallId": request.id, "title": _title(request), "kind": "other", "status": "pending"}
        chosen = await self._permission(
            about, [(text, "reject_once" if text in (NO, DENY) else "allow_once") for text in texts]
        )
        if chosen is None:
            return {"cancelled": True}
        return {"confirmed": chosen == YES} if is_confirm else {"value": chosen}

    async def _permission(self, call: Update, options: list[tuple[str, str]]) -> str | None:
        """Return the option that the user chose; None: there is no answer. Raises `JsonRpcError`."""
        answer = await self._connection.request(
            "session/request_permission",
            {
                "sessionId": self._session_id,
                "toolCall": call,
                "options": [{"optionId": text, "name": text, "kind": kind} for text, kind in options],
            },
        )
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
        return chosen if isinstance(chosen, str) else None

    async def _form(self, request: ExtensionUIRequest) -> dict[str, Any]:
        field: dict[str, Any] = {"type": "string", "title": _title(request)}
        if request.method == "confirm":
            field["type"] = "boolean"
        elif request.method == "select":
            field["enum"] = request.options or []
        else:
            if request.prefill:
                field["default"] = request.prefill
            if request.placeholder:
                field["description"] = request.placeholder
        answer = await self._connection.request(
            "elicitation/create",
            {
                "sessionId": self._session_id,
                "mode": "form",
                "message": "\n".join(text for text in (request.title, request.message) if text) or "?",
                "requestedSchema": {"type": "object", "properties": {"value": field}, "required": ["value"]},
            },
        )
        content = answer.get("content") if isinstance(answer, dict) and answer.get("action") == "accept" else None
        if not isinstance(content, dict) or "value" not in content:
            return {"cancelled": True}
        return {"confirmed" if request.method == "confirm" else "value": content["value"]}


def _title(request: ExtensionUIRequest) -> str:
    return " ".join(text for text in (request.title, request.message) if text) or "Question"


def _choices(request: PermissionRequest) -> dict[str, tuple[str, Answer]]:
    """Return the options of a question with their kinds and what they answer."""
    if request.kind == "trust":
        return {
            "Yes, for this session": ("allow_once", Allow()),
            "Yes, from now on": ("allow_always", Allow(keep="user")),
            "No": ("reject_once", Deny()),
            "No, and do not ask again": ("reject_always", Deny(keep="user")),
        }
    choices: dict[str, tuple[str, Answer]] = {ONCE: ("allow_once", Allow())}
    for one in request.suggestions:
        choices[one.text] = ("allow_always", Allow(keep="session", rules=one.rules))
    choices[DENY] = ("reject_once", Deny())
    if request.kind == "tool" and request.suggestions:
        choices[f"{NEVER} {', '.join(request.suggestions[0].rules)}"] = ("reject_always", Deny())
    return choices


def client_rules(agent: AgentSession) -> dict[str, list[str]]:
    """Return the rules that the client of an agent has set, by behavior."""
    found: dict[str, list[str]] = {"allow": [], "ask": [], "deny": []}
    for rule in agent.approval.state().rules:
        if rule.source == "client":
            found[rule.behavior].append(rule.rule)
    return found
