"""Streams that real providers once sent, as the tests of other projects have recorded them.

The recordings are read from the source packages in `SPINDLE_TEST_RECORDINGS` (see `.ci/run`); none is kept here.
Every stream goes through a real server and the whole of `llm/`; beside it a few lines of plain Python fold it again.
"""

import gzip
import os
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindle.shapes.codec import DecodeError, decode
from spindle.shapes.messages import AssistantMessage, Text, Thinking, ToolCall
from tests.support.mock_model import MockModel, raw

from .helpers import answer_of, collect, make_model

FOLDER = Path(os.environ.get("SPINDLE_TEST_RECORDINGS", "/nowhere"))
PACKAGES = sorted(FOLDER.glob("*.tar.gz"))
pytestmark = pytest.mark.skipif(not PACKAGES, reason="SPINDLE_TEST_RECORDINGS holds no source packages")
APIS = {  # found in every stream of the API (some projects hide the addresses) → API, and its base at our mock
    b'"chat.completion.chunk"': ("openai-completions", "/v1"),
    b'"response.created"': ("openai-responses", "/v1"),
    b'"message_start"': ("anthropic-messages", ""),
    b'"candidates"': ("google-generative-ai", "/v1beta"),
    b"contentBlockDelta": ("bedrock-converse-stream", ""),
}


def recorded(package: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield name, address and body of every recorded answer that is an event stream."""
    import yaml

    with tarfile.open(package) as archive:
        for member in archive:
            file = archive.extractfile(member) if "cassettes/" in member.name or "_vcr/" in member.name else None
            if file is None or not member.name.endswith((".yaml", ".yaml.gz")):
                continue
            data = gzip.decompress(file.read()) if member.name.endswith(".gz") else file.read()
            for address, response in _exchanges(yaml.load(data, getattr(yaml, "CSafeLoader", yaml.SafeLoader))):
                if (body := _stream_in(response)) is not None:
                    yield member.name, address, body


def _exchanges(cassette: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(cassette.get("interactions"), dict):  # made by another program, of a model in its own process
        return
    if "interactions" in cassette:
        yield from ((one["request"]["uri"], one["response"]) for one in cassette["interactions"])
    else:
        pairs = zip(cassette["requests"], cassette["responses"], strict=True)
        yield from ((request["uri"], response) for request, response in pairs)


def _stream_in(response: dict[str, Any]) -> bytes | None:
    body = response["body"]["string"]
    body = body.encode() if isinstance(body, str) else bytes(body)
    if body.startswith(b"\x1f\x8b"):
        body = gzip.decompress(body)
    is_stream = body.lstrip().startswith((b"data:", b"event:", b": ")) or b":event-type" in body[:100]
    return body if response["status"]["code"] == 200 and is_stream else None


# -- a second opinion ------------------------------------------------------------------------------


def events(body: bytes) -> Iterator[Any]:
    for line in body.replace(b"\r\n", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            try:
                yield decode(line[5:].strip())
            except DecodeError:
                assert line[5:].strip() == b"[DONE]"


def chat_opinion(body: bytes) -> tuple[str, str, list[str]]:
    text, thinking, names = "", "", []
    for event in events(body):
        for choice in event.get("choices", [])[:1]:
            delta = choice.get("delta") or {}
            content = delta.get("content") or delta.get("refusal") or ""
            for part in content if isinstance(content, list) else [{"text": content}]:
                text += part.get("text") or ""
                thinking += "".join(piece["text"] for piece in part.get("thinking") or [])
            thinking += delta.get("reasoning_content") or delta.get("reasoning") or ""
            names += [
                call["function"]["name"] for call in delta.get("tool_calls") or [] if call["function"].get("name")
            ]
    return text, thinking, names


def responses_opinion(body: bytes) -> tuple[str, str, list[str]]:
    said = list(events(body))
    spoken = ("response.output_text.delta", "response.refusal.delta")
    text = "".join(event["delta"] for event in said if event["type"] in spoken)
    thinking = "".join(event["delta"] for event in said if event["type"] == "response.reasoning_summary_text.delta")
    items = [event["item"] for event in said if event["type"] == "response.output_item.added"]
    return text, thinking, [item["name"] for item in items if item["type"] == "function_call"]


def messages_opinion(body: bytes) -> tuple[str, str, list[str]]:
    said = list(events(body))
    deltas = [event["delta"] for event in said if event["type"] == "content_block_delta"]
    blocks = [event["content_block"] for event in said if event["type"] == "content_block_start"]
    return (
        "".join(delta.get("text", "") for delta in deltas),
        "".join(delta.get("thinking", "") for delta in deltas),
        [block["name"] for block in blocks if block["type"] == "tool_use"],
    )


def google_opinion(body: bytes) -> tuple[str, str, list[str]]:
    candidates = [event["candidates"][0] for event in events(body) if event.get("candidates")]
    parts = [part for candidate in candidates for part in candidate.get("content", {}).get("parts", [])]
    texts = {
        kind: "".join(p.get("text", "") for p in parts if bool(p.get("thought")) is kind) for kind in (True, False)
    }
    return texts[False], texts[True], [part["functionCall"]["name"] for part in parts if "functionCall" in part]


def converse_opinion(body: bytes) -> tuple[str, str, list[str]]:
    text, thinking, names = "", "", []
    while body:
        size, head = struct.unpack(">II", body[:8])
        event, body = decode(body[12 + head : size - 4]), body[size:]
        delta = event.get("delta") or {}
        text += delta.get("text") or ""
        thinking += (delta.get("reasoningContent") or {}).get("text") or ""
        names += [start["toolUse"]["name"] for start in [event.get("start") or {}] if "toolUse" in start]
    return text, thinking, names


OPINIONS = {
    "bedrock-converse-stream": converse_opinion,
    "mistral-conversations": chat_opinion,
    "openai-completions": chat_opinion,
    "openai-responses": responses_opinion,
    "anthropic-messages": messages_opinion,
    "google-generative-ai": google_opinion,
}


def ours(answer: AssistantMessage) -> tuple[str, str, list[str]]:
    blocks = answer.content
    return (
        "".join(block.text for block in blocks if isinstance(block, Text)),
        "".join(block.thinking for block in blocks if isinstance(block, Thinking)).replace("\n\n", ""),
        [block.name for block in blocks if isinstance(block, ToolCall)],
    )


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_recorded_streams(package: Path) -> None:
    seen = 0
    wrong = []
    for name, address, body in recorded(package):
        found = next((found for mark, found in APIS.items() if mark in body), None)
        if found is None:
            continue
        api, base = ("mistral-conversations", "") if "mistral.ai" in address else found
        middle = len(body) // 2  # often inside a character or an event
        with MockModel([raw(body[:middle], body[middle:])]) as mock:
            answer = answer_of(collect(make_model(api=api, base_url=mock.url + base, reasoning=True), api_key="k"))
        text, thinking, names = OPINIONS[api](body)
        seen += 1
        if answer.stop_reason == "error" or ours(answer) != (text, thinking.replace("\n\n", ""), names):
            wrong.append(
                f"{name}: {answer.error_message} {ours(answer)!r:.300} instead of {(text, thinking, names)!r:.300}"
            )
        elif "cancel" not in name and "usage" in str(body) and not answer.usage.output:
            wrong.append(f"{name}: no usage")
    assert seen
    assert not wrong, f"{len(wrong)} of {seen}:\n" + "\n".join(wrong)
