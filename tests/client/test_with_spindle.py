"""The client and the real agent, with a scripted model behind it."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spindle.client import AgentCrashed, CommandFailed, RpcClient, SyncRpcClient, Update
from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, Step, call, gate, reply

SPINDLE = [sys.executable, "-m", "spindle", "--mode", "rpc", "--model", "mock/m1"]


def options(base: Path, mock: MockModel) -> dict[str, Any]:
    write_models(base / "agent", mock.openai_url)
    (base / "work").mkdir()
    return {"cwd": base / "work", "env": agent_environment(base / "agent"), "request_timeout": 40.0}


@contextlib.asynccontextmanager
async def agents(base: Path, *steps: Step, args: tuple[str, ...] = ("--no-session",)) -> AsyncIterator[Any]:
    """Give a client that is not started yet, and its model."""
    with MockModel(list(steps)) as mock:
        async with asyncio.timeout(55):
            agent = RpcClient([*SPINDLE, *args], **options(base, mock))
            try:
                yield agent, mock
            finally:
                await agent.close()


@pytest.mark.parametrize("updates", ["full", "delta"])
def test_a_conversation(tmp_path: Path, updates: Any) -> None:
    async def scene() -> None:
        async with agents(tmp_path, reply("Hel", "lo"), reply("again")) as (agent, _):
            await agent.start()
            await agent.set_update_mode(updates)
            pieces: list[str] = []
            run = await agent.prompt_and_wait("hi", on_event=lambda event: pieces.append(event.text_delta))
            assert (run.text, run.error, run.aborted) == ("Hello", None, False)
            assert [message["role"] for message in run.messages] == ["user", "assistant"]
            assert "".join(pieces) == "Hello"
            assert (await agent.prompt_and_wait("more")).text == "again"
            assert await agent.get_last_assistant_text() == "again"
            assert len(await agent.get_messages()) == 4
            assert (await agent.get_state())["model"]["id"] == "m1"

    asyncio.run(scene())


def test_a_host_tool_from_the_call_to_the_answer(tmp_path: Path) -> None:
    async def scene() -> None:
        steps = reply(call("weather", {"city": "Oslo"})), reply("It rains.")
        async with agents(tmp_path, *steps) as (agent, mock):

            @agent.tool
            async def weather(city: str, update: Update, days: int = 1) -> dict[str, Any]:
                """Tell the weather."""
                update(f"asking about {city}")
                return {"content": [{"type": "text", "text": f"{days} day of rain"}], "details": {"wet": True}}

            await agent.start()
            seen: dict[str, Any] = {}
            run = await agent.prompt_and_wait("Weather?", on_event=lambda event: seen.update({event.type: event}))
            assert run.text == "It rains."
            assert seen["tool_execution_update"]["partialResult"]["content"][0]["text"] == "asking about Oslo"
            assert seen["tool_execution_end"]["result"]["details"] == {"wet": True}
            declared = {tool["function"]["name"]: tool["function"] for tool in mock.requests[0].body["tools"]}
            assert declared["weather"]["description"] == "Tell the weather."
            assert declared["weather"]["parameters"]["required"] == ["city"]

    asyncio.run(scene())


def test_an_aborted_run_cancels_its_host_tool(tmp_path: Path) -> None:
    async def scene() -> None:
        async with agents(tmp_path, reply(call("forever", {})), reply("never")) as (agent, _):
            begun, ended = asyncio.Event(), asyncio.Event()

            @agent.tool
            async def forever() -> None:
                """Wait."""
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

            await agent.start()
            running = asyncio.create_task(agent.prompt_and_wait("go"))
            await begun.wait()
            await agent.abort()
            await ended.wait()
            assert (await running).aborted

    asyncio.run(scene())


def test_queues_bash_and_refusals(tmp_path: Path) -> None:
    async def scene() -> None:
        async with agents(tmp_path, reply("a", gate("go"), "b"), reply("c")) as (agent, mock):
            await agent.start()
            running = asyncio.create_task(agent.prompt_and_wait("one"))
            await asyncio.to_thread(mock.wait_gate, "go")
            with pytest.raises(CommandFailed, match="already processing"):
                await agent.prompt("two")
            assert (await agent.follow_up("three"))["disposition"] == "queued"
            assert await agent.clear_queue() == {"steering": [], "followUp": ["three"]}
            await agent.follow_up("four")
            mock.release("go")
            assert (await running).text == "c"
            assert (await agent.bash("echo $((6*7))"))["output"] == "42\n"
            with pytest.raises(CommandFailed, match="Model not found: mock/m9"):
                await agent.set_model("mock", "m9")

    asyncio.run(scene())


def test_sessions_fork_and_switch(tmp_path: Path) -> None:
    async def scene() -> None:
        async with agents(tmp_path, reply("one"), reply("two"), args=()) as (agent, _):
            await agent.start()
            await agent.prompt_and_wait("first")
            await agent.prompt_and_wait("second")
            file = (await agent.get_state())["sessionFile"]
            (_, second) = await agent.get_fork_messages()
            assert await agent.fork(second["entryId"]) == {"text": "second", "cancelled": False}
            assert len(await agent.get_messages()) == 2
            assert (await agent.switch_session(file))["cancelled"] is False
            assert [message["role"] for message in await agent.get_messages()] == ["user", "assistant"] * 2
            assert len((await agent.get_entries())["entries"]) >= 4

    asyncio.run(scene())


def test_a_killed_agent_is_a_crash(tmp_path: Path) -> None:
    async def scene() -> None:
        async with agents(tmp_path, reply("ok")) as (agent, _):
            await agent.start()
            await agent.get_state()
            with pytest.raises(AgentCrashed, match="signal 9"):
                await agent.bash("up() { awk '/^PPid/ {print $2}' /proc/$1/status; }; kill -9 $(up $(up $PPID))")

    asyncio.run(scene())


class Sum(msgspec.Struct):
    total: int


def test_what_came_of_a_run(tmp_path: Path) -> None:
    """The whole result, with or without a look at the events; limits and a schema go along."""

    async def scene() -> None:
        steps = reply(call("final_result", {"total": 4})), reply(call("bash", {"command": "true"}))
        async with agents(tmp_path, *steps) as (agent, mock):
            await agent.start()
            events = agent.run("2 + 2?", schema=Sum)
            seen = [event.type async for event in events]
            result = await events.result()
            assert (seen[-1], result.status, result.value) == ("agent_settled", "ok", {"total": 4})
            tools = {tool["function"]["name"]: tool["function"] for tool in mock.requests[0].body["tools"]}
            assert tools["final_result"]["parameters"]["required"] == ["total"]
            result = await agent.run("go", max_turns=1).result()
            assert (result.status, result.stop_reason, result.turns) == ("limit", "maxTurns", 1)
            with pytest.raises(CommandFailed, match="maxTurns must be above 0"):
                await agent.run("go", max_turns=0).result()

    asyncio.run(scene())


def test_the_sync_face(tmp_path: Path) -> None:
    with (
        MockModel([reply("Hel", "lo")]) as mock,
        SyncRpcClient([*SPINDLE, "--no-session"], updates="delta", **options(tmp_path, mock)) as agent,
    ):
        assert "".join(event.text_delta for event in agent.run("hi")) == "Hello"
        assert agent.get_session_stats()["assistantMessages"] == 1
        result = agent.run("again").result()
        assert (result.text, result.turns, result.tokens.output) == ("Hello", 1, 5)
        agent.shutdown()


def test_a_long_session_as_a_tree(tmp_path: Path) -> None:
    """Nested, 3,000 entries in a row are too deep for Python's JSON reader; the flat form has the same in it."""
    stored = tmp_path / "long.jsonl"
    time = "2026-01-01T00:00:00.000Z"
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": "long", "timestamp": time, "cwd": str(tmp_path)}
    ]
    for number in range(3000):
        parent = f"e{number - 1:07d}" if number else None
        message = {"role": "user", "content": [{"type": "text", "text": str(number)}], "timestamp": number}
        entry = {"type": "message", "id": f"e{number:07d}", "parentId": parent, "timestamp": time, "message": message}
        lines.append(entry)
    lines.append({**lines[2], "id": "side", "timestamp": "2026-01-02T00:00:00.000Z"})
    label = {
        "type": "label",
        "id": "label",
        "parentId": "e0002999",
        "targetId": "e0000005",
        "label": "here",
        "timestamp": time,
    }
    lines.append(label)
    stored.write_text("".join(json.dumps(line) + "\n" for line in lines))

    async def scene() -> None:
        async with agents(tmp_path, reply("x"), args=("--session", str(stored))) as (agent, _):
            await agent.start()
            answer = await agent.get_tree()
            level, seen, labels = answer["tree"], [], {}
            assert [node["entry"]["id"] for node in level[0]["children"]] == ["e0000001", "side"]
            while level:
                node = level[0]
                assert node.keys() <= {"entry", "children", "label", "labelTimestamp"}
                seen.append(node["entry"]["id"])
                if "label" in node:
                    labels[node["entry"]["id"]] = node["label"]
                level = node["children"]
            assert seen[:3001] == [*(f"e{number:07d}" for number in range(3000)), "label"]
            assert answer["leafId"] == seen[-1]
            assert labels == {"e0000005": "here"}
            flat = (await agent.request("get_tree", flat=True))["tree"]
            assert flat[0]["parentId"] is None and flat[1]["parentId"] == flat[0]["id"] == "e0000000"
            assert len(flat) == len(seen) + 1

    asyncio.run(scene())
