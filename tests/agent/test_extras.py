"""Keys of messages that we do not know: they survive `get_messages` and a fork, and attachments reach the model."""

import json

import pytest

from spindle.shapes.messages import text_of
from tests.support.agent_process import AgentProcess
from tests.support.images import PIXEL as PNG
from tests.support.mock_model import reply

from .rig import Rig, run

ATTACHMENT = {
    "id": "a",
    "type": "document",
    "fileName": "plan.txt",
    "mimeType": "text/plain",
    "extractedText": "the plan",
}


def write_session(tmp_path, *entries):
    """Write a session of these entries, each below the one before."""
    (tmp_path / "work").mkdir()
    time = {"timestamp": "2026-01-01T00:00:00.000Z"}
    lines = [{"type": "session", "version": 3, "id": "s", "cwd": str(tmp_path / "work")}]
    for number, entry in enumerate(entries):
        lines.append({"id": f"{number:08x}", "parentId": f"{number - 1:08x}" if number else None, **entry})
    file = tmp_path / "other.jsonl"
    file.write_text("".join(json.dumps({**line, **time}, ensure_ascii=False) + "\n" for line in lines))
    return file


def test_unknown_keys_survive(tmp_path):
    user = {"role": "user", "content": "look", "timestamp": 1, "mood": "curious", "attachments": [ATTACHMENT]}
    label = {"type": "label", "targetId": "x"}  # a fork leaves it out, and hangs the message elsewhere
    file = write_session(tmp_path, label, {"type": "message", "message": user})

    async def main():
        async with Rig(tmp_path, ["one", "two"], session=True) as rig:
            await rig.call("switch_session", sessionPath=str(file))
            assert (await rig.data("get_messages"))["messages"] == [user]
            await rig.run("go on")
            sent = text_of(rig.script.requests[-1].messages[0].content, "\n")
            assert "look" in sent and "plan.txt" in sent and "the plan" in sent
            first, *fresh = (await rig.data("get_messages"))["messages"]
            assert first == user and [message["role"] for message in fresh] == ["user", "assistant"]
            entry = (await rig.data("get_fork_messages"))["messages"][1]["entryId"]
            await rig.call("fork", entryId=entry)
            assert (await rig.data("get_messages"))["messages"] == [user]

    run(main())


def test_unknown_keys_survive_where_results_are_put_in_order(tmp_path):
    calls = [{"type": "toolCall", "id": id, "name": "read", "arguments": {"path": id}} for id in "ab"]
    made = {"api": "scripted", "provider": "p", "model": "m", "stopReason": "toolUse", "timestamp": 1, "usage": {}}
    results = [
        {"role": "toolResult", "toolCallId": id, "toolName": "read", "content": [], "isError": False, "mood": id}
        for id in "ba"
    ]
    said = [{"role": "user", "content": "look", "timestamp": 1}, {"role": "assistant", "content": calls, **made}]
    file = write_session(tmp_path, *({"type": "message", "message": message} for message in (*said, *results)))

    async def main():
        async with Rig(tmp_path, ["one"], session=True) as rig:
            await rig.call("switch_session", sessionPath=str(file))
            assert (await rig.data("get_messages"))["messages"][2:] == [*reversed(results)]

    run(main())


def test_messages_in_any_writing_are_one_line_of_sound_json(tmp_path):
    said = ["größer", "\u2028|\u2029", "BROKEN"]
    users = [{"role": "user", "content": text, "timestamp": 1, "mood": text} for text in said]
    strange = {"role": "oracle", "riddle": "\u2028"}
    file = write_session(tmp_path, *({"type": "message", "message": message} for message in (*users, strange)))
    file.write_bytes(file.read_bytes().replace(b"BROKEN", b"\xff"))

    with AgentProcess(base=tmp_path) as agent:
        agent.data("switch_session", sessionPath=str(file))
        found = agent.data("get_messages")["messages"]
        (line,) = [line for line in agent.lines if b'"command":"get_messages"' in line]
    assert b"\xe2\x80" not in line and "BROKEN" not in line.decode()
    shown = [user | {"attachments": []} for user in users[:2]]
    assert found[:2] == shown and found[2]["content"] == "\ufffd" and found[3] == strange


def test_an_attached_image_of_a_stored_message_reaches_the_model(tmp_path):
    image = {"id": "img1", "type": "image", "fileName": "p.png", "mimeType": "image/png", "size": 3, "content": PNG}
    user = {"role": "user", "content": "look", "timestamp": 1, "attachments": [{**image, "extractedText": None}]}
    file = write_session(tmp_path, {"type": "message", "message": user})
    with AgentProcess([reply("seen")], base=tmp_path) as agent:
        agent.data("switch_session", sessionPath=str(file))
        agent.run("what is it?")
        (first, *_) = [m for m in agent.mock.requests[-1].body["messages"] if m["role"] == "user"]
    assert first["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]


@pytest.mark.parametrize("dialect", ["spindle", "pi-0.74", "pi-0.87", "xcsh"])
def test_empty_keys_of_the_documents_samples(tmp_path, dialect):
    stored = {"role": "user", "content": "before", "timestamp": 1, "mood": "kept"}
    nothing = stored | {"attachments": None}
    file = write_session(tmp_path, *({"type": "message", "message": message} for message in (stored, nothing)))
    with AgentProcess([reply("ok")], base=tmp_path, args=["--dialect", dialect]) as agent:
        agent.data("switch_session", sessionPath=str(file))
        agent.data("bash", command="true")
        agent.prompt("hi")
        (run,) = agent.wait("agent_end")["messages"][:1]
        told = [
            f["message"]
            for f in agent.frames
            if f["type"] in ("message_start", "message_end") and f["message"]["role"] == "user"
        ]
        first = agent.data("get_messages")["messages"]
        assert agent.data("get_messages")["messages"] == first
        assert agent.data("get_messages_page")["messages"][:4] == first[:4]
    before, same, command, user, _ = first
    empty = {"attachments": []} if dialect == "spindle" else {}
    assert (before, same) == (stored | empty, nothing)
    assert [{key: m[key] for key in m if key == "attachments"} for m in (user, run, *told)] == [empty] * 4
    assert command.get("fullOutputPath", "left out") == (None if dialect == "spindle" else "left out")
    assert file.read_text().count("attachments") == 1, "only what the file had"
