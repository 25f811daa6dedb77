"""Questions of a server to the user, as our dialogs: one for each field. A user who cannot be asked declines."""

import re
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias

from spindle.agent.dialogs import Dialogs
from spindle.plugins.mcp import Message
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.messages import Wire
from spindle.tools.base import ToolError
from spindle.tools.validate import validate_arguments

Asker = Callable[..., Awaitable[dict[str, Any] | None]]
SKIP = "(no answer)"
DONE = "(done)"
_MAX_FIELDS = 50
_MAX_TRIES = 10
"""How often one field is asked for: the client may be a program that never learns."""


class _Declined(Exception):
    """The user does not want to answer."""


class Choice(Wire):
    """One value of a field, and its text for the user."""

    value: str
    shown: str


_ACTIONS: Final = {None: "cancel", True: "accept", False: "decline"}
Confirm: TypeAlias = Callable[[str, str], Awaitable[bool | None]]
"""Asks a yes-or-no question: a title and a text. None: there is no answer."""


async def elicit(
    server: str, params: Message, dialogs: Dialogs, confirm: Confirm, call_id: str | None = None
) -> Message:
    """Ask the user, and return the result of `elicitation/create`; `call_id`: the tool call that it belongs to."""
    if not dialogs.has_ui:
        return {"action": "decline"}
    ask = partial(_ask, dialogs, confirm, call_id)
    message = str(params.get("message") or "")[:4000]
    head = f'MCP server "{server}": {message}'
    if params.get("mode") == "url":
        text = f"{message}\n\nOpen this address, then confirm: {params.get('url')}"
        return {"action": _ACTIONS[await confirm(f'MCP server "{server}" asks you to visit a page', text)]}
    schema = params.get("requestedSchema")
    fields = fields_of(schema)
    if not fields:
        agreed = await confirm(f'MCP server "{server}" asks', message)
        return {"action": _ACTIONS[agreed]} | ({"content": {}} if agreed else {})
    required = schema.get("required") if isinstance(schema, dict) else None
    content: Message = {}
    try:
        for name, field in fields.items():
            given = await _valid_field(ask, head, name, field, isinstance(required, list) and name in required)
            if given is not None:
                content[name] = given
    except _Declined:
        return {"action": "decline"}
    content = with_defaults(schema, content)
    try:
        checked = await validate_arguments("elicitation", {"type": "object", **(schema or {})}, content)
        return {"action": "accept", "content": checked}
    except ToolError:
        return {"action": "cancel"}


def fields_of(schema: Any) -> dict[str, Message]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found = properties.items() if isinstance(properties, dict) else ()
    return {str(name): field for name, field in list(found)[:_MAX_FIELDS] if isinstance(field, dict)}


def with_defaults(schema: Any, content: Message) -> Message:
    """Return the content with the defaults of fields that have no answer."""
    defaults = {name: field["default"] for name, field in fields_of(schema).items() if "default" in field}
    return defaults | content


async def _valid_field(ask: Asker, head: str, name: str, field: Message, needed: bool) -> Any:
    """Return an answer that fits the field, asked for again with the reason if it does not. Raises `_Declined`."""
    reason = ""
    for _ in range(_MAX_TRIES):
        given = await _field(ask, head + reason, name, field, needed=needed)
        if given is None and (not needed or "default" in field):
            return None
        answer = {} if given is None else {name: given}
        schema = {"type": "object", "properties": {name: field}, "required": [name]}
        try:
            return (await validate_arguments("elicitation", schema, answer))[name]
        except ToolError as error:
            problems = re.findall(r"^  - [^:]*: (.*)$", str(error).partition("\n\n")[0], re.MULTILINE)
            reason = f"\n{field.get('title') or name!s} cannot be used: {'; '.join(problems) or error}"
    raise _Declined


async def _field(ask: Asker, head: str, name: str, field: Message, *, needed: bool) -> Any:
    """Return the user's answer; None if an optional field is left empty. Raises `_Declined`."""
    label = str(field.get("title") or name)
    about = label + (f": {field['description']}" if field.get("description") else "")
    if field.get("type") == "boolean":
        return await _confirmed(ask, head, about)
    title = f"{head}\n{about}"
    if choices := _choices(field):
        if field.get("type") == "array":
            return await _several(ask, title, choices, field, needed=needed)
        return await _chosen(ask, title, choices, needed=needed)
    return await _written(ask, title, field, needed=needed)


async def _confirmed(ask: Asker, head: str, about: str) -> bool:
    answer = await ask(method="confirm", title=head, message=about)
    if answer is None or answer.get("cancelled"):
        raise _Declined
    return answer.get("confirmed") is True


async def _several(ask: Asker, title: str, choices: list[Choice], field: Message, *, needed: bool) -> list[str] | None:
    """Ask for one value after the other, until the user is done."""
    chosen: list[Choice] = []
    most = field.get("maxItems")
    while len(chosen) < (most if isinstance(most, int) else len(choices)):
        rest = [choice for choice in choices if choice not in chosen]
        if not rest:
            break
        end = DONE if chosen or needed else SKIP
        so_far = f"\nChosen so far: {', '.join(choice.shown for choice in chosen)}" if chosen else ""
        answer = await ask(method="select", title=title + so_far, options=[*(choice.shown for choice in rest), end])
        given = None if answer is None else answer.get("value")
        if given == end:
            break
        found = next((choice for choice in rest if choice.shown == given), None)
        if found is None:
            raise _Declined
        chosen.append(found)
    return [choice.value for choice in chosen] or (None if "default" in field or not needed else [])


async def _chosen(ask: Asker, title: str, choices: list[Choice], *, needed: bool) -> str | None:
    shown = [choice.shown for choice in choices] + ([] if needed else [SKIP])
    answer = await ask(method="select", title=title, options=shown)
    given = None if answer is None else answer.get("value")
    value = next((choice.value for choice in choices if choice.shown == given), None)
    if value is None and given != SKIP:
        raise _Declined
    return value


async def _written(ask: Asker, title: str, field: Message, *, needed: bool) -> str | None:
    default = field.get("default")
    prefill = None if default is None else str(default)
    placeholder = prefill or str(field.get("type") or "")
    answer = await ask(method="input", title=title, placeholder=placeholder, prefill=prefill)
    text = None if answer is None else answer.get("value")
    if not isinstance(text, str):
        raise _Declined
    if not text and (default is not None or not needed):
        return None
    return text  # the check against the schema makes numbers of it


def _choices(field: Message) -> list[Choice]:
    items = field.get("items")
    source = items if field.get("type") == "array" and isinstance(items, dict) else field
    titled = source.get("oneOf") or source.get("anyOf")
    if isinstance(titled, list):
        named = [item for item in titled if isinstance(item, dict) and isinstance(item.get("const"), str)]
        return [Choice(item["const"], str(item.get("title") or item["const"])) for item in named]
    values, names = source.get("enum"), source.get("enumNames")
    if not isinstance(values, list):
        return []
    names = names if isinstance(names, list) and len(names) == len(values) else values
    return [Choice(str(value), str(name)) for value, name in zip(values, names, strict=True)]


async def _ask(dialogs: Dialogs, confirm: Confirm, call_id: str | None, **fields: Any) -> dict[str, Any] | None:
    if fields["method"] == "confirm":
        agreed = await confirm(fields["title"], fields["message"])
        return None if agreed is None else {"confirmed": agreed}
    return await dialogs.ask(ExtensionUIRequest(id=str(uuid.uuid4()), tool_call_id=call_id, **fields))
