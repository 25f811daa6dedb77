"""What parts of the agent keep in a session: entries of old versions are read, damaged ones passed over."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from spindle.sessions import open as sessions
from spindle.sessions.facts import Fact, damaged, facts, keep
from tests.sessions.helpers import chain, write_session
from tests.support.agent_process import AgentProcess, agent_environment
from tests.support.mock_model import reply
from tests.support.nursery import SPINDLE, run

EARLIER: list[tuple[str, str, dict[str, Any]]] = [
    ("agent.features.pruning.Pruned", "spindle-pruned", {"toolCallIds": ["c1", "c2"]}),
    ("agent.features.stream_rules.RulesTold", "ttsr_injection", {"rules": ["no-print"]}),
    ("agent.fences.approval.Agreed", "spindle.permissions", {"allow": ["bash(ls:*)"]}),
    ("agent.fences.approval.Agreed", "spindle.permissions", {"outside": ["make"]}),
    ("agent.fences.rulebook.Chosen", "spindle.strictness", {"mode": "plan", "ask": ["Bash"], "sandbox": "read-only"}),
    (
        "agent.features.undo.checkpoints.Noted",
        "checkpoint",
        {
            "id": "0123456789ab",
            "root": "/srv",
            "covers": "all",
            "files": 3,
            "leaf": None,
            "skipped": 0,
            "kind": "turn",
            "run": "ab0123456789",
            "durationMs": 12,
        },
    ),
    (
        "agent.features.background.CommandFact",
        "spindle.background",
        {"id": "bg1", "command": "make", "outputFile": "/tmp/out", "pid": 71, "kept": True},
    ),
    ("agent.features.background.CommandFact", "spindle.background", {"id": "bg1", "ended": True}),
    ("agent.features.place.FarPlace", "spindle.exec", {"command": "ssh host", "cwd": "/srv"}),
    ("agent.features.place.FarPlace", "spindle.exec", {"command": "ssh host", "cwd": None}),
    (
        "sessions.stand_ins.StandIn",
        "spindle.fallback",
        {"from": "a/b", "to": "c/d", "chosen": "a/b", "role": "main", "cause": "quota"},
    ),
    ("agent.run.record.RunRecord", "spindle.run", {"id": "r", "state": "ended", "stopReason": "end"}),
    (
        "agent.fences.waiting.KeptQuestion",
        "spindle.question",
        {
            "call": "c",
            "state": "answered",
            "request": {
                "type": "permission_request",
                "id": "q",
                "kind": "tool",
                "session": "s",
                "toolCallId": "c",
                "toolName": "bash",
                "arguments": {"command": "ls"},
                "summary": "Run ls",
                "waits": True,
            },
            "answer": {"behavior": "deny", "reason": "No."},
        },
    ),
    (
        "agent.run.record.WorksFor",
        "spindle.subagent",
        {"parentSessionId": "s", "parentToolCallId": "c", "agent": "explore"},
    ),
    ("plugins.mcp.exposure.ServerTools", "spindle.mcp", {"direct": []}),
    (
        "sessions.uploads.Upload",
        "spindle.upload",
        {"path": "/tmp/spindle-upload-0123456789abcdef/a.txt", "key": "s/spindle-upload-0123456789abcdef"},
    ),
    (
        "plugins.mcp.exposure.ServerTools",
        "spindle.mcp",
        {
            "loaded": [
                {
                    "server": "s",
                    "tool": {
                        "name": "t",
                        "description": "",
                        "schema": {"type": "object"},
                        "readOnly": True,
                        "destructive": False,
                        "title": "",
                    },
                }
            ]
        },
    ),
]


def kind(path: str) -> type[Fact]:
    module, name = path.rsplit(".", 1)
    found = getattr(importlib.import_module(f"spindle.{module}"), name)
    assert issubclass(found, Fact)
    return found


def custom(type: str, data: Any) -> dict[str, Any]:
    return {"type": "custom", "customType": type, "data": data}


def without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None}


@pytest.mark.parametrize(("path", "type", "data"), EARLIER)
def test_a_fact_of_an_earlier_version_is_read_and_written_alike(
    path: str, type: str, data: dict[str, Any], tmp_path: Path
) -> None:
    file = write_session(tmp_path / "s.jsonl", chain({"type": "message"} | _user(), custom(type, data)))
    with sessions.load(file) as session:
        [fact] = facts(session.entries, kind(path))
        assert keep(session, fact).value["data"] == without_nulls(data)
        assert damaged(session.entries) == {}


def test_every_declared_fact_is_in_the_table_above() -> None:
    for path, _, _ in EARLIER:
        kind(path)
    declared = {found.entry_type for found in Fact.__subclasses__() if found.__module__.startswith("spindle.")}
    assert declared == {type for _, type, _ in EARLIER}


def _user() -> dict[str, Any]:
    return {"message": {"role": "user", "content": "before", "timestamp": 1735689600000}}


DAMAGE: list[Any] = [
    None,
    7,
    "text",
    [],
    ["c1"],
    {"toolCallIds": 5, "rules": 5, "allow": 5, "id": 5, "direct": 5, "deny": 5},
]


def damaged_session(folder: Path, types: list[str]) -> tuple[Path, int]:
    entries = [custom(type, data) for type in types for data in DAMAGE]
    header = {"type": "session", "version": 3, "id": "damaged-1", "timestamp": "2025-01-01T00:00:00.000Z"}
    path = write_session(
        folder / "s.jsonl", chain({**_user(), "type": "message"}, *entries), header | {"cwd": str(folder)}
    )
    return path, len(entries)


def test_damaged_facts_are_passed_over_and_told_once_and_every_prompt_is_answered(tmp_path: Path) -> None:
    types = sorted({type for _, type, _ in EARLIER if type not in ("spindle.exec", "spindle.mcp")})  # no servers
    file, count = damaged_session(tmp_path, types)
    before = file.read_bytes()
    with AgentProcess(
        [reply("one"), reply("two")], args=["--session", str(file)], session=True, base=tmp_path
    ) as agent:
        for wanted in ("one", "two"):
            agent.run("and now?")
            assert agent.data("get_last_assistant_text")["text"] == wanted
        told = [frame["message"] for frame in agent.frames if frame["type"] == "notice"]
        assert len(told) == 1 and told[0].startswith("Damaged entry of the session is passed over: e1: checkpoint:")
        assert f"and {count - 1} more" in told[0]
        assert agent.data("list_checkpoints")["checkpoints"] == []
        agent.close_stdin()
    assert file.read_bytes().startswith(before), "no line of the file changes"


def test_a_session_that_worked_elsewhere_does_not_quietly_work_here(tmp_path: Path) -> None:
    file, _ = damaged_session(tmp_path, ["spindle.exec"])
    given = ["--session", str(file), "-p", "hi", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"]
    done = run(
        [*SPINDLE, *given], capture_output=True, text=True, timeout=60, cwd=tmp_path, env=agent_environment(tmp_path)
    )
    assert done.returncode == 1 and "its note of where is damaged" in done.stderr and "--exec ''" in done.stderr
    assert '"hi"' not in file.read_text(), "the prompt was not taken"
