"""Forms of servers: fields that do not fit are asked for again, lists take several values."""

import asyncio
from typing import Any

from spindle.plugins.mcp.elicitation import DONE, SKIP, elicit
from spindle.shapes.client_requests import ExtensionUIRequest


class User:
    """Answers one question after the other, and remembers them."""

    has_ui = True

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[ExtensionUIRequest] = []

    async def ask(self, request: ExtensionUIRequest) -> dict[str, Any] | None:
        self.asked.append(request)
        answer = self.answers.pop(0)
        return None if answer is None else {"value": answer}


async def nobody(title: str, message: str) -> bool | None:
    return None


def form(user: User, *required: str, **fields: Any) -> Any:
    schema = {"type": "object", "properties": fields, "required": list(required)}
    params = {"message": "Fill in", "requestedSchema": schema}
    return asyncio.run(elicit("srv", params, user, nobody))  # type: ignore[arg-type]


AGE = {"type": "integer", "minimum": 0, "title": "Age"}
TAGS = {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}


def test_a_field_that_does_not_fit_is_asked_for_again_with_the_reason() -> None:
    user = User("Ada", "old", "-3", "30")
    content = {"name": "Ada", "age": 30}
    assert form(user, "name", "age", name={"type": "string"}, age=AGE) == {"action": "accept", "content": content}
    titles = [request.title or "" for request in user.asked]
    assert ["cannot be used" in title for title in titles] == [False, False, True, True]  # only this field, again
    assert "Age cannot be used" in titles[2] and titles[2] != titles[3]
    assert form(User("x" * 3, None), "name", name={"type": "string", "maxLength": 2}) == {"action": "decline"}
    assert form(User(*["no"] * 50), "age", age=AGE) == {"action": "decline"}  # a program that never learns


def test_a_list_takes_several_values() -> None:
    user = User("b", "a", DONE)
    assert form(user, "tags", tags=TAGS) == {"action": "accept", "content": {"tags": ["b", "a"]}}
    assert [request.options for request in user.asked] == [["a", "b", "c", DONE], ["a", "c", DONE], ["c", DONE]]
    assert "Chosen so far: b, a" in (user.asked[2].title or "")
    assert form(User("a", "b", "c"), tags=TAGS)["content"] == {"tags": ["a", "b", "c"]}  # nothing is left to choose
    assert form(User("a"), tags=TAGS | {"maxItems": 1})["content"] == {"tags": ["a"]}
    assert form(User(SKIP), tags=TAGS)["content"] == {}
    assert form(User(SKIP), tags=TAGS | {"default": ["c"]})["content"] == {"tags": ["c"]}
    user = User(DONE, "a", DONE, "a", "c", DONE)
    assert form(user, "tags", tags=TAGS | {"minItems": 2})["content"] == {"tags": ["a", "c"]}
