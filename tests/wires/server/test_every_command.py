"""Another user's token, tried with every command of the registry, on every wire: nothing is told, nothing changes."""

import json
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import msgspec
from websockets.exceptions import ConnectionClosed

from spindle.protocol.commands import COMMANDS
from tests.support.mock_model import reply

from .test_team import Team

SECRET = "what only anna knows"
CHAT_INSTRUCTIONS = ("help", "history", "tools", "config", "clear", "reset")


def value_for(kind: Any, probe: str) -> Any:
    """Return a value of a field's type with the probe in it, if there is room for it."""
    if get_origin(kind) in (UnionType, *([Any] if kind is Any else [])):
        kind = next((part for part in get_args(kind) if part is not type(None)), str)
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if kind in (bool, int, float):
        return kind(1)
    name = str(get_origin(kind) or kind)
    if "list" in name or "Sequence" in name:
        return []
    return {} if "dict" in name or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) else probe


def forms_of(command: str, probe: str) -> list[dict[str, Any]]:
    """Return the fields of a command: those it needs, each of the others beside them, all."""
    fields = msgspec.structs.fields(COMMANDS[command].fields)
    given = {field.encode_name: value_for(field.type, probe) for field in fields}
    needed = {field.encode_name: given[field.encode_name] for field in fields if field.required}
    return [
        needed,
        given,
        *({**needed, field.encode_name: given[field.encode_name]} for field in fields if not field.required),
    ]


def test_a_foreign_token_gets_nothing_from_any_command(tmp_path: Path) -> None:
    users = {"anna": {}, "bob": {"permissionMode": "dontAsk"}}
    with (
        Team(tmp_path, users, [reply(f"{SECRET}: the answer"), reply("an answer for bob")]) as server,
        server.socket("anna") as anna,
    ):
        anna.call("prompt", message=SECRET)
        anna.wait("agent_settled")
        anna.call("set_session_name", name=f"name: {SECRET}")
        live = anna.ready["sessionId"]
        before = anna.call("get_state")["data"]
        entry = anna.call("get_entries")["data"]["leafId"]
        file = Path(before["sessionFile"])
        content = file.read_bytes()
        probes = (live, str(file), entry, str(file.parent), anna.ready["cwd"])
        done: set[str] = set()
        for command in COMMANDS:
            sent = 0
            with server.socket("bob") as bob:
                for fields in [form for probe in probes for form in forms_of(command, probe)]:
                    for of in ({}, {"sessionId": live}):
                        bob.write(json.dumps({"id": "x", "type": command, **fields, **of}))
                        sent += 1
                try:
                    for _ in range(sent):
                        frame = bob.wait(lambda frame: frame.get("type") == "response" and frame.get("id") == "x")
                        assert SECRET not in json.dumps(frame), (command, frame)
                        done |= {command} if frame["success"] else set()
                except ConnectionClosed:
                    assert command in ("shutdown", "close_session"), command
                assert not any(SECRET in json.dumps(frame) for frame in bob._waiting), command
            for id in (live, entry):
                for fields in forms_of(command, str(file)):
                    status, text = server.http("bob", "POST", f"/v1/sessions/{id}/{command}", fields)
                    assert status in (400, 403, 404) and SECRET not in text, (command, id, status, text)
        assert len(done) > len(COMMANDS) / 2, "most of them did something for bob"
        with server.chat_of("bob", "") as chat:
            for name in CHAT_INSTRUCTIONS:
                for parameters in ({"session": live}, str(file)):
                    told = chat.ask("i", {"Instruction": {"command": name, "parameters": parameters}})
                    assert SECRET not in json.dumps(told), name
        assert file.read_bytes() == content
        assert anna.call("get_state")["data"] == before
        assert SECRET in json.dumps(anna.call("get_messages"))
