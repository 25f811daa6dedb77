"""The `partial` of an update shows the answer up to its own piece, even if the server sent all pieces at once."""

import json
from typing import Any

import pytest

from spindle.llm.live import LiveMessage
from spindle.protocol.outbox import Outbox
from spindle.protocol.render import Renderer
from spindle.shapes.events import MessageUpdate
from spindle.shapes.pieces import AnswerStart
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import raw, reply

from .test_outbox import MODEL, frames

ARGUMENTS = ['{"pa', 'th": "no', "where", '", "limit": 1', "0}"]
READ = {"path": "nowhere", "limit": 10}


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def openai() -> bytes:
    deltas: list[dict[str, Any]] = [{"reasoning_content": piece} for piece in ("Let", " me", " think")]
    deltas += [{"content": piece} for piece in ("I ", "read ", "it.")]
    opening = {"index": 0, "id": "c1", "type": "function", "function": {"name": "read", "arguments": ""}}
    deltas += [{"tool_calls": [opening]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in ARGUMENTS]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return sse(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}) + b"data: [DONE]\n\n"


def anthropic() -> bytes:
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": piece} for piece in ("Let", " me")]
            + [{"type": "signature_delta", "signature": "SIG=="}],
        ),
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in ("I ", "read ", "it.")]),
        (
            {"type": "tool_use", "id": "c1", "name": "read", "input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in ARGUMENTS],
        ),
    ]
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 1}}}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}}
    return sse(*events, end, {"type": "message_stop"})


def check(updates: list[dict[str, Any]]) -> list[str]:
    """Fold the deltas as a client would, and compare each update with that. Returns the kinds of updates."""
    texts: dict[int, str] = {}
    for update in updates:
        event, content = update["assistantMessageEvent"], update["assistantMessageEvent"]["partial"]["content"]
        assert update["message"]["content"] == content
        kind = event["type"]
        if kind == "start":
            assert content == []
            continue
        index = event["contentIndex"]
        texts[index] = texts.get(index, "") + event.get("delta", "")
        assert len(content) == len(texts), "a block that has not begun"
        for block, text in zip(content, texts.values(), strict=True):
            if block["type"] != "toolCall":
                assert block[block["type"]] == text
            elif text in ("", '{"pa'):
                assert block["arguments"] == {}
            else:
                told = json.dumps(block["arguments"])[:-1].rstrip('"}')
                assert "".join(ARGUMENTS).startswith(told) and len(told) <= len(text)
        if kind == "thinking_start":
            assert "SIG" not in str(content)
        if kind == "toolcall_end":
            assert content[index]["arguments"] == READ
    return [update["assistantMessageEvent"]["type"] for update in updates]


@pytest.mark.parametrize(("api", "burst"), [("openai-completions", openai()), ("anthropic-messages", anthropic())])
def test_in_a_burst(api: str, burst: bytes) -> None:
    with AgentProcess([raw(burst), reply("done")], api=api) as agent:
        seen = agent.run("go")
        updates = [frame for frame in seen if frame["type"] == "message_update"]
        first = updates[: next(at for at, u in enumerate(updates) if u["assistantMessageEvent"]["type"] == "done")]
        kinds = check(first)
        assert {"start", "thinking_start", "text_start", "toolcall_start", "toolcall_end"} <= set(kinds)
        assert kinds.count("toolcall_delta") == len(ARGUMENTS) and kinds.count("text_delta") == 3


@pytest.mark.parametrize("merge", [False, True])
def test_for_a_slow_reader(merge: bool) -> None:
    live, box = LiveMessage(MODEL), Outbox(Renderer())
    pieces: list[Any] = [AnswerStart(), live.start_text(), *(live.append(0, word) for word in ["one", "two", "three"])]
    pieces += [live.end(0), live.start_tool_call("c1", "read"), *(live.append(1, piece) for piece in ARGUMENTS)]
    pieces += live.end_all()
    for piece in pieces:
        box.put(MessageUpdate(piece, live))
    updates = frames(box.take(1 << 30, merge=merge))
    assert len(check(updates)) == (7 if merge else len(pieces))
