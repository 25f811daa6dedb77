"""Keys of messages that we do not know: they survive `get_messages` and a fork, and attachments reach the model."""

import json

from spindle.shapes.messages import text_of

from .rig import Rig, run

ATTACHMENT = {
    "id": "a",
    "type": "document",
    "fileName": "plan.txt",
    "mimeType": "text/plain",
    "extractedText": "the plan",
}


def test_unknown_keys_survive(tmp_path):
    file = tmp_path / "other.jsonl"
    (tmp_path / "work").mkdir()
    user = {"role": "user", "content": "look", "timestamp": 1, "mood": "curious", "attachments": [ATTACHMENT]}
    lines = [
        {
            "type": "session",
            "version": 3,
            "id": "s",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "cwd": str(tmp_path / "work"),
        },
        {
            "type": "message",
            "id": "aaaaaaaa",
            "parentId": None,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "message": user,
        },
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    async def main():
        async with Rig(tmp_path, ["one", "two"], session=True) as rig:
            await rig.call("switch_session", sessionPath=str(file))
            assert (await rig.data("get_messages"))["messages"] == [user]
            await rig.run("go on")
            sent = text_of(rig.script.requests[-1].messages[0].content, "\n")
            assert "look" in sent and "plan.txt" in sent and "the plan" in sent
            entry = (await rig.data("get_fork_messages"))["messages"][1]["entryId"]
            await rig.call("fork", entryId=entry)
            assert (await rig.data("get_messages"))["messages"] == [user]

    run(main())
