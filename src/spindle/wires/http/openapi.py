"""The HTTP interface as an OpenAPI document, made of the registry of commands."""

from functools import cache
from typing import Any, Literal, TypeAlias

from msgspec.structs import fields as struct_fields

from spindle.base.version import __version__
from spindle.protocol.commands import COMMANDS
from spindle.protocol.registry import CommandSpec, LiveInfo, WantedSession
from spindle.protocol.render import Ready
from spindle.protocol.schema import schema_components, told_by
from spindle.shapes.approvals import PermissionRequest
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.events import PromptResult, SessionSettled
from spindle.shapes.messages import Wire
from spindle.shapes.run_result import RunResult
from spindle.wires.http.stored import StoredItem, StoredList, StoredName, StoredQuery, StoredSession

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
SESSIONS, STORED, QUESTIONS = "Sessions", "Stored sessions", "Questions"
_TAGS = {
    "work": "Runs",
    "contents": "Conversation",
    "places": SESSIONS,
    "setup": "Setup",
    "subagents": "Runs",
    "folder": "Files",
    "owner": "Owner",
    "sharing": SESSIONS,
}
"""By the module of the command."""
_TAG_TEXTS = {
    "Runs": "Prompts, queues and what stops them.",
    "Conversation": "What a session holds: messages, entries, files that changed.",
    "Files": "The files around a session: what the agent may read.",
    SESSIONS: "Which sessions there are, and which one a client goes on with.",
    STORED: "Sessions on disk: listed, read, renamed and deleted without opening them.",
    "Owner": "Keys, settings, rules and MCP servers that are kept, for the owner of the agent directory.",
    "Setup": "Models, tools, permissions, servers, and the state of the agent.",
    QUESTIONS: "What the agent asks its client, and tools that run there.",
}
_TAKEN = {"clone": "clone_session", "answer_question": "answer_kept_question"}
"""Operations not called after their command: every object of Java has a method `clone`, the other name is taken."""
_WAIT = {
    "name": "wait",
    "in": "query",
    "description": "Answer when the run is over, with what came of it.",
    "schema": {"type": "boolean", "default": False},
}
_SILENT = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Other servers on the same store that do not answer; left out if there are none.",
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


class StreamReady(Wire, kw_only=True, tag_field="type", tag="ready"):
    """The first event of a stream."""

    version: str
    session_id: str
    cwd: str
    replay: bool
    """Whether the events since the number that was named follow; false: they are no longer known."""


class HostToolReply(Wire):
    """The result of the client's tool, complete or so far."""

    id: str
    result: dict[str, Any] | None = None
    partial_result: dict[str, Any] | None = None
    is_error: bool = False


Version: TypeAlias = Literal["3.1", "3.2"]


@cache
def openapi(version: Version = "3.1") -> dict[str, Any]:
    """Return the document. In version 3.2 the stream of events has a schema for its items; 3.1 cannot say that."""
    specs = sorted(COMMANDS.values(), key=lambda spec: spec.name)
    kinds: list[Any] = [WantedSession, SessionPut, LiveInfo, RunResult, ExtensionUIRequest, PermissionRequest]
    kinds += [ReplyToQuestion, HostToolReply, StreamReady, StoredList, StoredItem, StoredSession, StoredName]
    kinds += [spec.fields for spec in specs] + [spec.data for spec in specs if spec.data is not None]
    found, components = schema_components(kinds, REFS)
    wanted, put, info, result, question, request, reply, tool_reply, ready, *rest = found
    stored, rest = rest[:4], rest[4:]
    components["Event"] = _over_http(components["Event"], ready)
    for kind in (Ready, PromptResult, SessionSettled):
        del components[kind.__name__]
    shapes: list[type] = [WantedSession, SessionPut, ReplyToQuestion, HostToolReply, *(spec.fields for spec in specs)]
    for shape in shapes:
        _allow_null(components.get(shape.__name__, {}))
    schemas = iter(rest)
    fields = {spec.name: next(schemas) for spec in specs}
    data = {spec.name: next(schemas) for spec in specs if spec.data is not None}
    session, events = "/v1/sessions/{id}", "/v1/sessions/{id}/events"
    components["PromptAccepted"] = components.pop(data["prompt"]["$ref"].rpartition("/")[2])
    data["prompt"] = {"$ref": REFS.format(name="PromptAccepted")}
    listed = {"sessions": {"type": "array", "items": info}, "silent": _SILENT}
    sessions = {"type": "object", "properties": listed, "required": ["sessions"]}
    lists = {"questions": {"type": "array", "items": question}, "requests": {"type": "array", "items": request}}
    questions = {"type": "object", "properties": lists}
    open_questions = {"200": _json("Questions", questions)}
    asked = {"name": "question", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    one = {"200": _json("The session", info)}
    put_text = "Open the session with exactly this id; it is begun if there is none."
    paths: dict[str, Any] = {
        "/v1/sessions": {
            "get": _operation(
                "list_sessions_alive", "List the live sessions.", {"200": _json("Live sessions", sessions)}
            ),
            "post": _operation("create_session", "Open a session.", {"201": _json("The session", info)}, body=wanted),
        },
        session: {
            "parameters": [SESSION],
            "get": _operation("get_session", "Show a session.", one),
            "put": _operation("put_session", put_text, one, body=put),
            "delete": _operation("end_session", "End a live session; its file stays.", {"204": _nothing()}),
        },
        **_stored(*stored),
        events: {"parameters": [SESSION], "get": _events(version)},
        f"{session}/questions": {
            "parameters": [SESSION],
            "get": _operation("get_questions", "List open questions.", open_questions, QUESTIONS),
        },
        f"{session}/answers/{{question}}": {
            "parameters": [SESSION, asked],
            "post": _operation("answer_question", "Answer a question.", {"204": _nothing()}, QUESTIONS, body=reply),
        },
    }
    for name in ("host_tool_result", "host_tool_update"):
        text = "Report on a call of the client's tool."
        post = _operation(name, text, {"204": _nothing()}, QUESTIONS, body=tool_reply, required=True)
        paths[f"{session}/{name}"] = {"parameters": [SESSION], "post": post}
    for spec in specs:
        answer = {"204": _nothing()} if spec.data is None else {"200": _json("Done", data[spec.name])}
        operation, tag = _TAKEN.get(spec.name, spec.name), _TAGS[spec.handler.__module__.rpartition(".")[2]]
        post = _operation(operation, spec.doc, answer, tag, body=fields[spec.name], required=_has_required(spec))
        if spec.name == "prompt":
            post["parameters"] = [_WAIT]
            accepted_or_done = {"title": "PromptAnswer", "oneOf": [data["prompt"], result]}
            post["responses"]["200"] = _json("`PromptAccepted`, or with `wait` the `RunResult`", accepted_or_done)
        paths[f"{session}/{spec.name}"] = {"parameters": [SESSION], "post": post}
    _without_union_defaults(components)
    return {
        "openapi": f"{version}.0",
        "info": {
            "title": "Spindle",
            "version": __version__,
            "description": (__doc__ or "").strip(),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "tags": [{"name": name, "description": text} for name, text in _TAG_TEXTS.items()],
        "paths": paths,
        "components": {
            "schemas": {
                **components,
                "Failure": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]},
            },
            "responses": {
                status: _json(text, {"$ref": REFS.format(name="Failure")}) for status, text in ERRORS.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _stored(page: Any, item: Any, whole: Any, name: Any) -> dict[str, Any]:
    """Return the paths of the stored sessions."""
    listing = _operation(
        "list_stored", "List the stored sessions, the latest first.", {"200": _json("A page", page)}, STORED
    )
    listing["parameters"] = [
        {"name": field.name, "in": "query", "description": text, "schema": {"type": kind}}
        for field, (kind, text) in zip(struct_fields(StoredQuery), _STORED_QUERY, strict=True)
    ]
    read = {"200": _json("The session", whole)}
    renamed = {"200": _json("The session", item)}
    return {
        "/v1/stored": {"get": listing},
        "/v1/stored/{id}": {
            "parameters": [SESSION],
            "get": _operation("get_stored", "Read a stored session: its facts and messages.", read, STORED),
            "patch": _operation("rename_stored", "Name a session.", renamed, STORED, body=name, required=True),
            "delete": _operation("delete_stored", "Delete a session for good.", {"204": _nothing()}, STORED),
        },
    }


_STORED_QUERY = (
    ("integer", "At most so many, 100 unless told."),
    ("string", "The `nextCursor` of the page before."),
    ("string", "Only sessions whose name, or one message, has all these words."),
    ("string", "Only sessions of this working directory."),
)


def _without_union_defaults(schema: Any) -> None:
    """Leave out defaults of unions: generators write them as values of a type that the value does not have."""
    if isinstance(schema, dict) and ("anyOf" in schema or "oneOf" in schema):
        schema.pop("default", None)
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _without_union_defaults(part)


def _allow_null(shape: dict[str, Any]) -> None:
    """Allow null for every optional field: for all commands it means the same as leaving the field out."""
    for name, schema in shape.get("properties", {}).items():
        allowed = not schema.keys() - {"default"} or {"type": "null"} in schema.get("anyOf", ())
        if not allowed and name not in shape.get("required", ()):
            shape["properties"][name] = {"anyOf": [schema, {"type": "null"}]}


def _has_required(spec: CommandSpec) -> bool:
    return len(spec.fields.__struct_defaults__) < len(spec.fields.__struct_fields__)


def _operation(
    name: str, doc: str, answers: dict[str, Any], tag: str = SESSIONS, *, body: Any = None, required: bool = False
) -> dict[str, Any]:
    description = " ".join(doc.split())
    operation: dict[str, Any] = {
        "operationId": name,
        "tags": [tag],
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


def _events(version: Version) -> dict[str, Any]:
    numbered = {"schema": {"type": "integer", "minimum": 0}, "description": "Number of the last event that was seen."}
    event = {"$ref": REFS.format(name="Event")}
    if version == "3.1":  # a schema here would be that of the whole stream
        stream: dict[str, Any] = {"schema": {"type": "string"}}
    else:
        data = {"type": "string", "contentMediaType": "application/json", "contentSchema": event}
        fields = {"id": {"type": "string"}, "event": {"type": "string"}, "data": data}
        stream = {"itemSchema": {"type": "object", "properties": fields, "required": ["data"]}}
    told = "Server-sent events; the `data` of each is an `Event` of the components, the first one a `StreamReady`"
    answers = {"200": {"description": told, "content": {"text/event-stream": stream}}}
    operation = _operation("get_events", "Stream the session's events, each with its number.", answers)
    operation["parameters"] = [
        {"name": "since", "in": "query", **numbered},
        {"name": "Last-Event-ID", "in": "header", **numbered},
    ]
    return operation


def _over_http(event: dict[str, Any], ready: dict[str, Any]) -> dict[str, Any]:
    """Return the events of a stream: it begins with a `ready` of its own, and no client negotiates a version there."""
    mapping = event["discriminator"]["mapping"]
    kept = {name: ref for name, ref in mapping.items() if name not in ("prompt_result", "session_settled")}
    told = {name: {"$ref": ref} for name, ref in sorted((kept | {"ready": ready["$ref"]}).items())}
    return {"title": "Event", "oneOf": [*told.values()], **told_by("type", told)}
