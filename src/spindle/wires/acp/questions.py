"""Questions of an agent to the user of an editor: about permissions beside the tool call, other dialogs as forms."""

import asyncio
from typing import Any

from spindle.agent.permissions.approval import DENY, ONCE, SAVED
from spindle.agent.session import AgentSession
from spindle.base.flow import Tasks
from spindle.shapes.events import ExtensionUIRequest
from spindle.wires.acp.json_rpc import Connection, RpcError
from spindle.wires.acp.updates import Update

NEVER = "Never allow"


class Questions:
    def __init__(self, connection: Connection, agent: AgentSession, session_id: str, *, forms: bool) -> None:
        """`forms`: whether the editor can show forms."""
        self._connection = connection
        self._agent = agent
        self._session_id = session_id
        self._forms = forms
        self._open: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks()

    def ask(self, request: ExtensionUIRequest, call: Update | None) -> None:
        """Ask the user; `call` is the tool call that the question is about, if any."""
        task = self._open[request.id] = self._tasks.spawn(self._ask(request, call), "acp question")
        task.add_done_callback(lambda _: self._open.pop(request.id, None))

    def withdraw(self, id: str | None) -> None:
        if (task := self._open.get(id or "")) is not None:
            task.cancel()

    def close(self) -> None:
        for task in self._open.values():
            task.cancel()

    async def _ask(self, request: ExtensionUIRequest, call: Update | None) -> None:
        fields: dict[str, Any] = {"cancelled": True}
        try:
            if request.method in ("confirm", "select") and (call is not None or not self._forms):
                fields = await self._permission(request, call)
            elif self._forms:
                fields = await self._form(request)
        except RpcError:
            pass  # the editor cannot ask, so the reply is no
        finally:
            self._agent.receive_reply({"type": "extension_ui_response", "id": request.id, **fields})

    async def _permission(self, request: ExtensionUIRequest, call: Update | None) -> dict[str, Any]:
        rules = request.always or []
        if request.method == "confirm":
            options = [("Yes", "allow_once"), ("No", "reject_once")]
        else:
            # Editors tell options apart by their kind: of two options of one kind, the wider one is left out.
            offered = [text for text in request.options or () if not (rules and text.endswith(SAVED))]
            options = [(text, _kind(text, rules)) for text in offered]
            if rules and DENY in (request.options or ()):
                options.append((f"{NEVER} {', '.join(rules)}", "reject_always"))
        about = call or {"toolCallId": request.id, "title": _title(request), "kind": "other", "status": "pending"}
        answer = await self._connection.request(
            "session/request_permission",
            {
                "sessionId": self._session_id,
                "toolCall": about,
                "options": [{"optionId": text, "name": text, "kind": kind} for text, kind in options],
            },
        )
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
        if chosen is None:
            return {"cancelled": True}
        if request.method == "confirm":
            return {"confirmed": chosen == "Yes"}
        if chosen == f"{NEVER} {', '.join(rules)}":
            self._agent.set_permissions(deny=[*client_rules(self._agent)["deny"], *rules])
            chosen = DENY
        return {"value": chosen}

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


def _kind(option: str, rules: list[str]) -> str:
    if option == DENY:
        return "reject_once"
    return "allow_always" if rules and option != ONCE else "allow_once"


def client_rules(agent: AgentSession) -> dict[str, list[str]]:
    """Return the rules that the client of an agent has set, by behavior."""
    found: dict[str, list[str]] = {"allow": [], "ask": [], "deny": []}
    for rule in agent.permissions().rules:
        if rule.source == "client":
            found[rule.behavior].append(rule.rule)
    return found
