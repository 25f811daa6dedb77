"""Subagents: what they are given, what they borrow, how their work ends, and what clients are told."""

import json
from pathlib import Path
from typing import Any

import pytest

from spindle.agent.hooks import Blocked, Hooks
from spindle.agent.run.options import RunOptions
from spindle.sessions import open as sessions
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Usage
from spindle.shapes.model import Model, ModelCost
from spindle.testing import Pause
from spindle.tools.base import Tool
from tests.agent.rig import Rig, run

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def task(prompt: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "task", "arguments": {"prompt": prompt, **arguments}}


def results(rig: Rig) -> list[dict[str, Any]]:
    return [{**end["result"], "isError": end["isError"]} for end in rig.of("tool_execution_end")]


def rig_of(folder: Path, *steps: Any, tools: tuple[str, ...] = ("task",), **options: Any) -> Rig:
    return Rig(folder, steps, tools=tools, **options)  # type: ignore[arg-type]


def test_three_at_once_are_told_of_and_paid_for(tmp_path):
    asked = {"calls": [task("one", agent="explore"), task("two"), task("three")], "usage": {"input": 10}}
    steps = [
        {"match": "^go$", **asked},
        {"match": "^one$", "calls": [{"name": "read", "arguments": {"path": "x"}}], "usage": {"input": 1, "output": 2}},
        {"match": "^two$", "text": "second", "usage": {"input": 3}},
        {"match": "^three$", "text": "third"},
        {"match": "^one$", "text": "first"},
        {"match": "^go$", "text": "all done"},
    ]

    async def main():
        async with rig_of(tmp_path, *steps, session=True) as rig:
            (rig.cwd / "x").write_text("content")
            frames = await rig.run("go")
            ends = results(rig)
            assert sorted(end["content"][0]["text"] for end in ends) == ["first", "second", "third"]
            first = next(end["details"] for end in ends if end["details"]["agent"] == "explore")
            assert (first["status"], first["turns"], first["toolCalls"]) == ("ok", 2, 1)
            assert first["tokens"]["total"] == 3

            told = [frame for frame in frames if frame["type"] == "subagent_event"]
            calls = {call["toolCallId"] for call in rig.of("tool_execution_start")}
            assert {frame["parentToolCallId"] for frame in told} == calls and len(calls) == 3
            kinds = [frame["event"]["type"] for frame in told if frame["agent"] == "explore"]
            assert {"agent_start", "message_update", "tool_execution_start", "agent_settled"} <= set(kinds)
            assert not any("message" in f["event"] for f in told if f["event"]["type"] == "message_update")
            assert [frame["type"] for frame in frames].count("agent_end") == 1
            lines = [f["partialResult"]["content"][0]["text"] for f in rig.of("tool_execution_update")]
            assert "explore: 1 call, read x" in lines

            stats = await rig.data("get_session_stats")
            assert stats["subagents"]["runs"] == 3 and stats["subagents"]["tokens"]["total"] == 6
            assert stats["tokens"]["total"] == 16
            result = rig.agent.last_result()
            assert result is not None and result.tokens.total == 16 and result.turns == 6 and result.tool_calls == 4

            parent = rig.agent.session
            assert first["sessionFile"].startswith(str(parent.path.with_suffix(".subagents")))
            head, *rest = [json.loads(line) for line in Path(first["sessionFile"]).read_text().splitlines()]
            assert head["parentSession"] == str(parent.path)
            whose = next(entry["data"] for entry in rest if entry["type"] == "custom")
            assert whose["parentSessionId"] == parent.id and whose["parentToolCallId"] in calls
            assert [e["message"]["role"] for e in rest if e["type"] == "message"][-1] == "assistant"

            first_request = rig.script.requests[0]
            explorer = next(r for r in rig.script.requests if r.messages[-1].content[0].text == "one")
            assert "task" in [tool.name for tool in first_request.tools]
            assert [tool.name for tool in explorer.tools] == ["read"]  # the user named the tools, so there is no grep
            assert "You explore" in explorer.system_prompt

    run(main())


def test_those_above_the_bound_wait_for_their_turn(tmp_path):
    names = [f"task{number}" for number in range(5)]
    steps = [{"match": "^go$", "calls": [*map(task, names)]}]
    steps += [{"match": f"^{name}$", "text": f"answer {name}"} for name in names] + [{"match": "^go$", "text": "done"}]

    async def main():
        async with rig_of(tmp_path, *steps, settings={"maxSubagents": 2}) as rig:
            frames = await rig.run("go")
            assert sorted(end["content"][0]["text"] for end in results(rig)) == [f"answer {name}" for name in names]
            at_work, most = 0, 0
            for frame in frames:
                kind = frame["event"]["type"] if frame["type"] == "subagent_event" else ""
                at_work += (kind == "agent_start") - (kind == "agent_settled")
                most = max(most, at_work)
            assert (at_work, most) == (0, 2)

    run(main())


@pytest.mark.parametrize(
    ("steps", "arguments", "status", "text"),
    [
        ([{"text": "fine"}], {}, "ok", "fine"),
        ([{"error": "500 the server is ill"}], {}, "failed", "The subagent failed: 500"),
        ([{"text": "half", "stop": "length"}], {}, "failed", "The subagent failed: The answer was cut"),
        ([{"text": ""}], {}, "empty", "The subagent ended without an answer"),
        ([{"calls": [{"name": "final_result", "arguments": {"n": 3}}]}], {"schema": SCHEMA}, "ok", '{"n":3}'),
        ([{"text": "no data"}], {"schema": SCHEMA}, "schema", "no data that fits the schema"),
        ([{"calls": [{"name": "read", "arguments": {"path": "x"}}]}], {}, "limit", "by a limit: maxTurns"),
    ],
    ids=["ok", "failed", "cut", "empty", "value", "schema", "limit"],
)
def test_every_end_has_a_name(tmp_path, steps, arguments, status, text):
    script = [{"match": "^go$", "calls": [task("sub", **arguments)]}, {"match": "^go$", "text": "done"}]
    script += [*({"match": "^sub$", **step} for step in steps), {"text": "" if status == "empty" else "no data"}]

    async def main():
        async with rig_of(tmp_path, *script, settings={"retry": {"enabled": False}}) as rig:
            (rig.cwd / "x").write_text("content")
            assert (await rig.call("prompt", message="go", maxTurns=4))["success"]
            settled = await rig.until("agent_settled")
            (end,) = results(rig)
            assert end["details"]["status"] == status and end["isError"] is (status != "ok")
            assert text in end["content"][0]["text"]
            if status == "limit":  # the agent has no more than its subagent has left
                assert settled["stopReason"] == "maxTurns" and end["details"]["turns"] == 3
            else:
                assert settled["stopReason"] == "end"
            if arguments and status == "ok":
                assert end["details"]["value"] == {"n": 3}

    run(main())


def test_money_that_runs_out_in_the_middle_ends_all(tmp_path):
    """Three subagents share what the run may cost."""
    work = {"calls": [{"name": "read", "arguments": {"path": "x"}}], "usage": {"input": 1}}
    steps = [
        {"match": "^go$", "calls": [task("sub"), task("sub"), task("sub")], "usage": {"input": 1}},
        {"match": "^sub$", **work},
    ]

    async def main():
        async with rig_of(tmp_path, *steps, model={"cost": ModelCost(1_000_000, 0, 0, 0)}) as rig:
            (rig.cwd / "x").write_text("content")
            assert (await rig.call("prompt", message="go", maxCost=10))["success"]
            assert (await rig.until("agent_settled"))["stopReason"] == "maxCost"
            ends = [end["details"] for end in results(rig)]
            assert [end["status"] for end in ends] == ["limit"] * 3
            result = rig.agent.last_result()
            assert result is not None and result.cost == 1 + sum(end["cost"] for end in ends)
            assert 10 <= result.cost <= 12  # at most one call more for each

    run(main())


@pytest.mark.parametrize("way", ["abort", "close", "time", "steer"])
def test_the_end_of_the_agent_is_theirs(tmp_path, way):
    steps = [
        {"match": "^go$", "calls": [task("one"), task("two")]},
        *({"match": f"^{name}$", "text": ["begun", Pause(gate=name), "more"]} for name in ("one", "two")),
        {"match": "^stop$", "text": "stopped"},
    ]

    async def main():
        async with rig_of(tmp_path, *steps, session=True) as rig:
            limits = {"maxTime": 2} if way == "time" else {}
            assert (await rig.call("prompt", message="go", **limits))["success"]
            await rig.script.reached("one")
            await rig.script.reached("two")
            if way == "abort":
                await rig.call("abort")
            elif way == "close":
                await rig.agent.close()
            elif way == "steer":
                await rig.call("steer", message="stop")
                rig.script.release("one")
            await rig.until("agent_settled")
            if way != "close":
                ends = [end["details"] for end in results(rig)]
                expected = ["ok", "aborted"] if way == "steer" else ["limit" if way == "time" else "aborted"] * 2
                assert [end["status"] for end in ends] == expected
                assert (await rig.data("get_session_stats"))["subagents"]["runs"] == 2
            folder = rig.agent.session.path.with_suffix(".subagents")
            for file in folder.glob("*.jsonl"):
                assert '"begun' in file.read_text() and ('"aborted"' in file.read_text() or way == "steer")
            assert len(list(folder.glob("*.jsonl"))) == 2

    run(main())


def test_permissions_are_those_of_the_agent(tmp_path):
    """The client is asked, its yes holds for all, and a denial counts for the run."""
    write = {"calls": [{"name": "write", "arguments": {"path": "a.txt", "content": "x"}, "id": "w"}]}
    read = {"calls": [{"name": "read", "arguments": {"path": "secret"}}]}
    steps = [
        {"match": "^go$", "calls": [task("sub")]},
        {"match": "^go$", "text": "done"},
        {"match": "^sub$", **write},
        {"match": "^sub$", **read},
        {"match": "^sub$", "text": "tried"},
    ]

    async def main():
        async with rig_of(tmp_path, *steps) as rig:
            (rig.cwd / "secret").write_text("hidden")
            await rig.data("set_permissions", mode="default", deny=["Read(secret)"])
            assert (await rig.call("prompt", message="go"))["success"]
            question = await rig.until("permission_request")
            assert (question["subagent"], question["preview"]["newFile"]) == ("general", True)
            asked = await rig.until("extension_ui_request")
            assert "a.txt" in asked["title"] and asked["toolCallId"] == "w"
            rig.dispatcher.receive_value({"type": "extension_ui_response", "id": asked["id"], "value": "Allow once"})
            await rig.until("agent_settled")
            assert (rig.cwd / "a.txt").read_text() == "x"
            (denied,) = rig.of("permission_denied")
            assert denied["toolName"] == "read"
            result = rig.agent.last_result()
            assert result is not None and result.status == "denied" and result.files_changed == ["a.txt"]

    run(main())


def test_an_extension_sees_the_calls_of_subagents(tmp_path):
    def careful(agent):
        @agent.on("tool_call")
        def look(event, ctx):
            return {"block": True, "reason": "not this file"} if event.input.get("path") == "x" else None

    steps = [
        {"match": "^go$", "calls": [task("sub")]},
        {"match": "^go$", "text": "done"},
        {"match": "^sub$", "calls": [{"name": "read", "arguments": {"path": "x"}}]},
        {"match": "^sub$", "text": "tried"},
    ]

    async def main():
        async with rig_of(tmp_path, *steps, extensions=[careful]) as rig:
            await rig.run("go")
            ends = [f["event"] for f in rig.of("subagent_event") if f["event"]["type"] == "tool_execution_end"]
            assert ends[0]["isError"] and "not this file" in ends[0]["result"]["content"][0]["text"]
            result = rig.agent.last_result()
            assert result is not None and [one.by for one in result.denials] == ["extension"]

    run(main())


class Watching(Hooks):
    """Hooks of one request that note what they see, and let no command run."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def model_call(self, model: Model) -> None:
        self.seen.append("model")

    def spent(self, usage: Usage) -> None:
        self.seen.append(f"spent {usage.input}")

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        self.seen.append(f"call {tool.name}")
        if tool.name == "bash":
            raise Blocked("no commands today")
        return args

    async def tool_result(
        self, call_id: str, tool: Tool, args: Any, result: ToolResult, failed: bool
    ) -> tuple[ToolResult, bool]:
        self.seen.append(f"result {tool.name}")
        return result, failed


def test_hooks_of_the_request_see_every_call_of_every_subagent(tmp_path):
    bash = {"name": "bash", "arguments": {"command": "touch made"}}
    steps = [
        {"match": "^go$", "calls": [task("one"), task("two")], "usage": {"input": 1}},
        {"match": "^go$", "text": "done", "usage": {"input": 2}},
        {"match": "^one$", "calls": [{"name": "read", "arguments": {"path": "x"}}], "usage": {"input": 3}},
        {"match": "^one$", "text": "read", "usage": {"input": 4}},
        {"match": "^two$", "calls": [bash], "usage": {"input": 5}},
        {"match": "^two$", "text": "tried", "usage": {"input": 6}},
    ]

    async def main():
        async with rig_of(tmp_path, *steps, tools=("task", "read", "bash")) as rig:
            (rig.cwd / "x").write_text("content")
            watching = Watching()
            result = await (await rig.agent.submit("go", options=RunOptions(hooks=watching))).result()
            calls = ["call task", "call task", "call read", "call bash", "result task", "result task", "result read"]
            spent = [f"spent {number}" for number in range(1, 7)]
            assert sorted(watching.seen) == sorted([*calls, *spent, *(["model"] * 6)])
            assert not (rig.cwd / "made").exists()
            assert [(one.tool_name, one.by) for one in result.denials] == [("bash", "program")]

    run(main())


@pytest.mark.parametrize("reader", ["one", "go", None], ids=["the subagent", "its owner", "nobody"])
def test_a_subagent_replaces_files_that_it_has_read_itself(tmp_path, reader):
    read = {"name": "read", "arguments": {"path": "x"}}
    write = {"name": "write", "arguments": {"path": "x", "content": "new"}}
    steps = [
        *([{"match": "^go$", "calls": [read]}] if reader == "go" else []),
        {"match": "^go$", "calls": [task("one")]},
        *([{"match": "^one$", "calls": [read]}] if reader == "one" else []),
        {"match": "^one$", "calls": [write]},
        {"match": "^one$", "text": "tried"},
        {"match": "^go$", "text": "done"},
    ]

    async def main():
        settings = {"readBeforeWrite": True}
        async with rig_of(tmp_path, *steps, tools=("task", "read", "write"), settings=settings) as rig:
            (rig.cwd / "x").write_text("old")
            await rig.run("go")
            assert (rig.cwd / "x").read_text() == ("new" if reader == "one" else "old")

    run(main())


# -- definitions ---------------------------------------------------------------------------------

REVIEWER = """---
name: Reviewer
description: Reads code and says what is wrong. <example>
Context: the user has written: a function
user: "look at this: it is slow"
</example>
tools: Read, Glob, Bash(git log:*), WebFetch, mcp__other__thing
model: sonnet
color: red
---
You review code.
"""
FILES = {
    "agent/agents/reviewer.md": REVIEWER,
    "agent/agents/README.md": "# Agents\n\nA list.\n",
    "home/.claude/agents/deep/writer.md": "---\r\nname: writer\r\ndescription: Writes.\r\n"
    "disallowedTools: [Bash]\r\n---\r\nWrite.",
    "home/.claude/agents/reviewer.md": "---\nname: Reviewer\ndescription: Hidden by the first.\n---\nNo.",
    "work/.claude/agents/local.md": "---\ndescription: Of the project.\ntools: []\nmodel: 7\n---\nLocal.",
    "work/.pi/agents/explore.md": "---\nname: explore\ndescription: Another explorer.\n---\nExplore.",
}


@pytest.mark.parametrize("trusted", [True, False])
def test_definitions_of_other_programs(tmp_path, trusted):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    settings = {"defaultProjectTrust": "always" if trusted else "never"}
    git = {"calls": [{"name": "bash", "arguments": {"command": line}} for line in ("git log -1", "touch made")]}
    asks = [task("r", subagent_type="reviewer"), task("w", agent="writer"), task("l", agent="local")]
    steps = [
        {"match": "^go$", "calls": asks},
        {"match": "^go$", "text": "done"},
        {"match": "^r$", **git},
        {"match": "^[rwl]$", "text": "fine"},
        {"match": "^r$", "text": "fine"},
    ]

    async def main():
        async with rig_of(tmp_path, *steps, tools=("bash", "task"), settings=settings) as rig:
            await rig.run("go")
            offered = next(tool for tool in rig.script.requests[0].tools if tool.name == "task").description
            lines = [line for line in offered.splitlines() if line.startswith("- ")]
            project = ["- local: Of the project.", "- explore: Another explorer."] if trusted else []
            assert sorted(lines) == sorted(
                [*project, "- Reviewer: Reads code and says what is wrong.", "- writer: Writes."]
            )
            asked = {request.messages[0].content[0].text: request for request in rig.script.requests}
            assert [tool.name for tool in asked["r"].tools] == ["read", "bash"]
            assert asked["r"].system_prompt.startswith("You review code.")
            assert [tool.name for tool in asked["w"].tools] == ["read", "write"]
            ends = {end["content"][0]["text"]: end["isError"] for end in results(rig)}
            if trusted:
                assert asked["l"].tools == [] and ends == {"fine": False}
            else:
                assert any('no agent "local"' in text and failed for text, failed in ends.items())
                assert any("agents" in path for path in (await rig.data("get_state"))["untrustedResources"])
            assert not (rig.cwd / "made").exists()  # the definition allows git log alone
            result = rig.agent.last_result()
            assert result is not None and {one.by for one in result.denials} == {"definition"}

    run(main())


@pytest.mark.parametrize(
    ("listed", "tools"),
    [
        ("-Bash", ["read", "write"]),
        ("'-*', '+Bash'", ["bash"]),
        ("-Bash(touch *)", ["read", "write", "bash"]),
        ("web*", []),
    ],
)
def test_a_definition_changes_the_tools_of_the_agent(tmp_path, listed, tools):
    path = tmp_path / "agent" / "agents" / "own.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\nname: own\ndescription: Own.\ntools: [{listed}]\n---\nWork.")
    touch = {"calls": [{"name": "bash", "arguments": {"command": "touch made"}}]}
    steps = [{"match": "^go$", "calls": [task("sub", agent="own")]}, {"match": "^sub$", **touch}]
    steps += [{"match": "^sub$", "text": "tried"}, {"match": "^go$", "text": "done"}]

    async def main():
        async with rig_of(tmp_path, *steps, tools=("bash", "task")) as rig:
            frames = await rig.run("go")
            assert [tool.name for tool in rig.script.requests[1].tools] == tools
            told = [frame["message"] for frame in frames if frame["type"] == "notice"]
            assert told[-1:] == ([] if tools else ['The subagent "own" has no tools: its definition leaves none'])
            assert (rig.cwd / "made").exists() == (listed == "'-*', '+Bash'")

    run(main())


def test_it_is_there_only_if_it_is_asked_for_and_goes_with_its_session(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"calls": [task("sub")]}, "done"], session=True) as rig:
            await rig.run("go")
            assert "Tool task not found" in results(rig)[0]["content"][0]["text"]
            own = {"name": "task", "description": "Of the client", "parameters": {"type": "object"}}
            assert (await rig.data("set_host_tools", tools=[own]))["toolNames"] == ["task"]
            await rig.data("set_host_tools", tools=[])
            assert "task" not in [tool["name"] for tool in (await rig.data("get_state"))["dumpTools"]]
        steps = [
            {"match": "^go$", "calls": [task("sub")]},
            {"match": "^go$", "text": "x"},
            {"match": "^sub$", "text": "y"},
        ]
        async with rig_of(tmp_path / "b", *steps, session=True) as rig:
            await rig.run("go")
            path = rig.agent.session.path
            folder = path.with_suffix(".subagents")
            assert folder.is_dir() and (path.stat().st_mode | folder.stat().st_mode) & 0o077 == 0
        sessions.delete(path)
        assert not folder.exists()

    run(main())


def test_it_is_told_of_plan_mode(tmp_path):
    steps = [{"match": "^go$", "calls": [task("sub")]}, {"match": "^go$", "text": "x"}, {"match": "^sub$", "text": "y"}]

    async def main():
        async with rig_of(tmp_path, *steps) as rig:
            await rig.data("set_permissions", mode="plan")
            await rig.run("go")
            (asked,) = [one for one in rig.script.requests if one.messages[0].content[0].text == "sub"]
            assert "<plan_mode>" in asked.system_prompt and "<unattended>" in asked.system_prompt

    run(main())


def test_the_sandbox_holds_for_them(tmp_path):
    outside = tmp_path / "outside"
    steps = [
        {"match": "^go$", "calls": [task("sub")]},
        {"match": "^go$", "text": "x"},
        {"match": "^sub$", "calls": [{"name": "bash", "arguments": {"command": f"touch {outside}; touch inside"}}]},
        {"match": "^sub$", "text": "y"},
    ]

    async def main():
        async with rig_of(tmp_path, *steps, tools=("bash", "task")) as rig:
            await rig.data("set_permissions", sandbox="workspace-write")
            assert (await rig.call("prompt", message="go"))["success"]
            await rig.until("agent_settled")
            assert not outside.exists() and (rig.cwd / "inside").exists()

    run(main())


def test_files_are_kept_and_checked_once(tmp_path):
    """By the agent that they work for: its checkpoints have what they did."""
    edit = {"name": "edit", "arguments": {"path": "x.py", "edits": [{"oldText": "old", "newText": "new"}]}}
    steps = [
        {"match": "^go$", "calls": [task("sub")]},
        {"match": "^sub$", "calls": [edit]},
        {"match": "^sub$", "text": "y"},
        {"match": "^go$", "text": "x"},
    ]
    settings = {"checksAfterEdit": {"*.py": f"sh -c 'echo >> {tmp_path}/checks; cat x.py; exit 1'"}}

    async def main():
        async with rig_of(tmp_path, *steps, tools=("edit", "task"), session=True, settings=settings) as rig:
            (rig.cwd / "x.py").write_text("old\n")
            await rig.run("go")
            [checkpoint] = (await rig.data("list_checkpoints"))["checkpoints"]
            (answer,) = [m for m in rig.script.requests[2].messages if m.role == "toolResult"]
            assert "".join(block.text for block in answer.content).count("New findings") == 1
            assert (tmp_path / "checks").read_text() == "\n" * 2  # before and after the edit
            (file,) = tmp_path.rglob("*.subagents/*.jsonl")
            assert '"checkpoint"' not in file.read_text()
            await rig.data("restore", checkpoint=checkpoint["id"])
            assert (rig.cwd / "x.py").read_text() == "old\n"

    run(main())
