"""The model's server: which model it is asked for, and a check that both answer before a night of trials begins."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import aiohttp

_SECONDS = 300
"""For the first answer: a server may have to load the model."""

_TOOLS: dict[str, Any] = {
    "tools": [
        {
            "type": "function",
            "function": {"name": "ls", "description": "List files", "parameters": {"type": "object", "properties": {}}},
        }
    ]
}
_END = "Most addresses end with /v1"


class EndpointError(Exception):
    """The server or the model cannot be used; the text says what to do."""


@dataclass(frozen=True)
class Endpoint:
    url: str
    """As `http://127.0.0.1:11434/v1`."""
    key: str = "none"
    model: str = ""
    """The name by which the server knows the model."""


async def checked(endpoint: Endpoint, tools: bool = False) -> Endpoint:
    """Let the model answer once, with a tool at hand if harnesses will offer some. Without a name take the only model
    of the server. Raises `EndpointError`."""
    headers = {"Authorization": f"Bearer {endpoint.key}"}
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
            model = endpoint.model
            if not model:
                names = await _names(session, endpoint.url)
                if len(names) != 1:
                    raise EndpointError(f"Name a model with --model. {_known(names)}")
                model = names[0]
            await _ask(session, endpoint.url, model, tools)
            return Endpoint(endpoint.url, endpoint.key, model)
    except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError) as error:
        why = str(error) or f"no answer within {_SECONDS} s"
        raise EndpointError(f"The server at {endpoint.url} cannot be asked: {why}. Is it started?") from None


async def _names(session: aiohttp.ClientSession, url: str) -> list[str]:
    """Return the models of the server; none if it has no list."""
    async with session.get(f"{url}/models") as answer:
        try:
            listed: Any = await answer.json(content_type=None)
            return [str(one["id"]) for one in listed["data"]]
        except (ValueError, KeyError, TypeError):
            return []


async def _ask(session: aiohttp.ClientSession, url: str, model: str, tools: bool) -> None:
    body = {"model": model, "messages": [{"role": "user", "content": "Say ok."}], "max_tokens": 16, "stream": False}
    async with session.post(f"{url}/chat/completions", json=body | (_TOOLS if tools else {})) as answer:
        said = (await answer.text()).strip()
        if answer.status == 200 and _is_answer(said):
            return
    said = said[:300]
    if answer.status == 200:
        raise EndpointError(f"There is no API like OpenAI's at {url}. It says: {said or 'nothing'}. {_END}")
    if tools and answer.status == 400 and "tool" in said.lower():
        raise EndpointError(
            f"The server takes no tools for {model!r}: {said}. Only a harness that writes its calls as text can be "
            "measured: --harness mini-text"
        )
    if answer.status in (401, 403):
        raise EndpointError(f"The server refuses the key (HTTP {answer.status}): {said}. Name its variable: --key-env")
    if answer.status == 404:
        if not (names := await _names(session, url)):
            raise EndpointError(f"There is no API like OpenAI's, or no such model, at {url} (HTTP 404): {said}. {_END}")
        raise EndpointError(f"The server has no model {model!r} (HTTP 404): {said}. {_known(names)}")
    raise EndpointError(f"The model {model!r} does not answer (HTTP {answer.status}): {said}")


def _is_answer(said: str) -> bool:
    """Say whether this is an answer of the API, whole or streamed."""
    lines = [line.removeprefix("data:") for line in said.splitlines() if line.startswith("data:")] or [said]
    try:
        return any(json.loads(line).get("choices") is not None for line in lines if line.strip() != "[DONE]")
    except (ValueError, AttributeError):
        return False


def _known(names: list[str]) -> str:
    return f"It has: {', '.join(names[:20])}" if names else "It does not list its models"
