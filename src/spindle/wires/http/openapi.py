"""The HTTP interface as an OpenAPI 3.1 document, made of the registry of commands."""

from functools import cache
from typing import Any

from spindle.agent.run.result import RunResult
from spindle.base.version import __version__
from spindle.protocol.commands import COMMANDS
from spindle.protocol.registry import CommandSpec, LiveInfo, Wanted
from spindle.protocol.schema import schema_components
from spindle.shapes.events import ExtensionUIRequest
from spindle.shapes.messages import Wire

REFS = "#/components/schemas/{name}"
SESSION = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
ERRORS = {
    "400": "The request makes no sense",
    "401": "A valid token is required",
    "403": "Not from this page, host or user",
    "404": "No such session, command or question",
    "409": "The agent refuses it, and says why",
    "413": "The body is too long",
    "429": "Too many sessions are open",
    "500": "Something broke",
    "503": "Too many connections are open",
}
_FAILURES = {status: {"$ref": f"#/components/responses/{status}"} for status in ERRORS}


class ReplyToQuestion(Wire):
    """The reply to a question: one of these fields."""

    value: str | None = None
    confirmed: bool | None = None
    cancelled: bool | None = None


class SessionPut(Wire):
    """Options for a session that is begun because there is none with this id."""

    cwd: str | None = None
    model: str | None = None
    name: str | None = None


class HostToolReply(Wire):
    """The result of the client's tool, complete or so far."""

    id: str
    result: dict[str, Any] | None = None
    partial_result: dict[str, Any] | None = None
    is_error: bool = False


@cache
def openapi() -> dict[str, Any]:
    specs = sorted(COMMANDS.values(), key=lambda spec: spec.name)
    kinds: list[Any] = [Wanted, SessionPut, LiveInfo, RunResult, ExtensionUIRequest, ReplyToQuestion, HostToolReply]
    kinds += [spec.fields for spec in specs] + [spec.data for spec in specs if spec.data is not None]
    found, components = schema_components(kinds, REFS)
    wanted, put, info, result, question, reply, tool_reply, *rest = found
    shapes: list[type] = [Wanted, SessionPut, ReplyToQuestion, HostToolReply, *(spec.fields for spec in specs)]
    for shape in shapes:
        _allow_null(components.get(shape.__name__, {}))
    schemas = iter(rest)
    fields = {spec.name: next(schemas) for spec in specs}
    data = {spec.name: next(schemas) for spec in specs if spec.data is not None}
    session, events = "/v1/sessions/{id}", "/v1/sessions/{id}/events"
    listed = {"sessions": {"type": "array", "items": info}}
    sessions = {"type": "object", "properties": listed, "required": ["sessions"]}
    questions = {"type": "object", "properties": {"questions": {"type": "array", "items": question}}}
    asked = {"name": "question", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    paths: dict[str, Any] = {
        "/v1/sessions": {
            "get": _operation(
                "list_sessions_alive", "List the live sessions.", {"200": _json("Live sessions", sessions)}
            ),
            "post": _operation("create_session", "Open a session.", {"201": _json("The session", info)}, body=wanted),
        },
        session: {
            "parameters": [SESSION],
            "get": _operation("get_session", "Show a live session.", {"200": _json("The session", info)}),
            "put": _operation(
                "put_session",
                "Open the session with exactly this id; it is begun if there is none.",
                {"200": _json("The session", info)},
                body=put,
            ),
            "delete": _operation("end_session", "End a live session; its file stays.", {"204": _nothing()}),
        },
        events: {"parameters": [SESSION], "get": _events()},
        f"{session}/questions": {
            "parameters": [SESSION],
            "get": _operation("get_questions", "List open questions.", {"200": _json("Questions", questions)}),
        },
        f"{session}/answers/{{question}}": {
            "parameters": [SESSION, asked],
            "post": _operation("answer_question", "Answer a question.", {"204": _nothing()}, body=reply),
        },
    }
    for name in ("host_tool_result", "host_tool_update"):
        post = _operation(
            name, "Report on a call of the client's tool.", {"204": _nothing()}, body=tool_reply, required=True
        )
        paths[f"{session}/{name}"] = {"parameters": [SESSION], "post": post}
    for spec in specs:
        answer = {"204": _nothing()} if spec.data is None else {"200": _json("Done", data[spec.name])}
        post = _operation(spec.name, spec.doc, answer, body=fields[spec.name], required=_has_required(spec))
        if spec.name == "prompt":
            post["parameters"] = [
                {
                    "name": "wait",
                    "in": "query",
                    "description": "Answer when the run is over, with what came of it.",
                    "schema": {"type": "boolean", "default": False},
                }
            ]
            post["responses"]["200"] = _json("Accepted, or what came of the run", {"anyOf": [data["prompt"], result]})
        paths[f"{session}/{spec.name}"] = {"parameters": [SESSION], "post": post}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Spindle",
            "version": __version__,
            "description": (__doc__ or "").strip(),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {
                **components,
                "Error": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]},
            },
            "responses": {status: _json(text, {"$ref": REFS.format(name="Error")}) for status, text in ERRORS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _allow_null(shape: dict[str, Any]) -> None:
    """Allow null for every optional field: for all commands it means the same as leaving the field out."""
    for name, schema in shape.get("properties", {}).items():
        if name not in shape.get("required", ()):
            shape["properties"][name] = {"anyOf": [schema, {"type": "null"}]}


def _has_required(spec: CommandSpec) -> bool:
    return len(spec.fields.__struct_defaults__) < len(spec.fields.__struct_fields__)


def _operation(
    name: str, doc: str, answers: dict[str, Any], *, body: Any = None, required: bool = False
) -> dict[str, Any]:
    description = " ".join(doc.split())
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": description.partition(". ")[0].rstrip("."),
        "description": description,
        "responses": {**answers, **_FAILURES},
    }
    if body is not None:
        operation["requestBody"] = {"required": required, "content": {"application/json": {"schema": body}}}
    return operation


def _json(text: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _nothing() -> dict[str, Any]:
    return {"description": "Done"}


def _events() -> dict[str, Any]:
    numbered = {"schema": {"type": "integer", "minimum": 0}, "description": "Number of the last event that was seen."}
    # No schema: some programs would apply it to the whole stream, others to each event.
    stream = {"description": "Server-sent events", "content": {"text/event-stream": {}}}
    operation = _operation("get_events", "Stream the session's events, each with its number.", {"200": stream})
    operation["parameters"] = [
        {"name": "since", "in": "query", **numbered},
        {"name": "Last-Event-ID", "in": "header", **numbered},
    ]
    return operation
