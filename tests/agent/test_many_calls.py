"""One answer with very many calls: not all at once, others have their turn, and what is told is what is stored."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spindle.agent.hooks import Hooks
from spindle.agent.run.options import RunOptions
from spindle.agent.tool_batch import _AT_ONCE
from spindle.inprocess import Agent
from spindle.shapes.events import ToolExecutionEnd
from spindle.shapes.messages import ToolResultMessage
from spindle.shapes.model import Model
from spindle.testing import Script


def calls(count: int, name: str = "wait", **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments or {"n": n}} for n in range(count)]}


def test_a_thousand_calls_run_some_at_a_time_in_order(tmp_path: Path) -> None:
    now, most, turns = 0, 0, 0

    def extension(agent: Any) -> None:
        @agent.tool
        async def ls(n: int) -> str:
            """Work here, as the tool of this name does."""
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1
            return str(n)

    async def work() -> None:
        nonlocal turns
        script = Script([calls(1000, "ls"), "done"])

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with Agent.create(model=script.model(), cwd=str(tmp_path), extensions=[extension]) as agent:
            task = asyncio.create_task(count_turns())
            await agent.run("go")
            task.cancel()
            results = [m for m in script.requests[-1].messages if isinstance(m, ToolResultMessage)]
            assert [result.content[0].text for result in results] == [str(n) for n in range(1000)]  # type: ignore[union-attr]

    asyncio.run(asyncio.wait_for(work(), 60))
    assert most <= _AT_ONCE and turns > 250


def test_calls_that_wait_for_each_other_are_not_held(tmp_path: Path) -> None:
    """Host tools, subagents and the like take no place: what they wait for may be a later call of the answer."""
    barrier = asyncio.Barrier(101)

    def extension(agent: Any) -> None:
        @agent.tool
        async def meet(n: int) -> str:
            """Wait for all others."""
            await barrier.wait()
            (tmp_path / "met").touch()
            return "met"

        @agent.tool
        async def ls(n: int) -> str:
            """Be the last of them, behind others that work here."""
            if n == 99:
                await barrier.wait()
            return "listed"

    async def work() -> None:
        answer = {"calls": calls(100, "meet")["calls"] + calls(100, "ls")["calls"]}
        until = {"name": "bash", "arguments": {"command": f"until [ -e {tmp_path}/met ]; do sleep 0.05; done; echo ok"}}
        script = Script([{"calls": [until, *answer["calls"]]}, "done"])
        async with Agent.create(model=script.model(), cwd=str(tmp_path), extensions=[extension]) as agent:
            await agent.run("go")
        results = [m.content[0].text for m in script.requests[-1].messages if isinstance(m, ToolResultMessage)]  # type: ignore[union-attr]
        assert results == ["ok\n", *["met"] * 100, *["listed"] * 100]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_an_event_has_the_result_as_it_is_stored_and_the_remark_follows(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("x")

    async def work() -> None:
        script = Script([*[calls(1, "read", path="f.txt")] * 4, "done"])
        told: list[Any] = []
        async with Agent.create(model=script.model(), cwd=str(tmp_path)) as agent:
            agent.subscribe(told.append)
            await agent.run("go")
        stored = [m.content for m in script.requests[-1].messages if isinstance(m, ToolResultMessage)]
        assert [end.result.content for end in told if isinstance(end, ToolExecutionEnd)] == stored
        assert len(stored[-1]) == 1, "no words of ours"
        assert "<remark>The call of read gave the same result" in str(script.requests[-1].messages[-1])

    asyncio.run(asyncio.wait_for(work(), 60))


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 -- nothing of ours tells
            await asyncio.sleep(0.02)


class _Counting(Hooks):
    def __init__(self) -> None:
        self.models, self.tools = 0, list[str]()

    def model_call(self, model: Model) -> None:
        self.models += 1

    async def tool_call(self, call_id: str, tool: Any, args: Any) -> Any:
        self.tools.append(tool.name)
        return args


def test_hooks_of_a_request_see_runs_that_follow_from_its_background_commands(tmp_path: Path) -> None:
    async def work() -> None:
        go = tmp_path / "go"
        script = Script(
            [
                calls(1, "bash", command=f"until [ -e {go} ]; do sleep 0.05; done", background=True),
                "first done",
                calls(1, "bash", command="true"),
                "second done",
            ]
        )
        seen = _Counting()
        tools = ["bash", "bash_output", "bash_kill"]
        async with Agent.create(model=script.model(), cwd=str(tmp_path), tools=tools) as agent:
            run = await agent.session.submit("go", options=RunOptions(hooks=seen))
            await _until(lambda: len(script.requests) == 2 and not agent.session.busy)
            assert (seen.models, seen.tools) == (2, ["bash"])
            go.touch()
            await _until(lambda: len(script.requests) == 4 and not agent.session.busy)
            await run.result()
            assert (seen.models, seen.tools) == (4, ["bash", "bash"])

    asyncio.run(asyncio.wait_for(work(), 60))


def test_the_end_of_an_agent_waits_until_its_commands_are_gone(tmp_path: Path) -> None:
    """Each killed group is waited for, and looked for among all processes only if something has left it."""
    count = 40
    (tmp_path / ".git").mkdir()

    async def work() -> tuple[list[int], float]:
        note = f"echo $$ >> {tmp_path}/pids"
        command = f"{note}; (setsid sh -c '{note}; exec sleep 600' &); sleep 600"
        script = Script([calls(count, "bash", command=command, background=True), "done"])
        tools = ["bash", "bash_output", "bash_kill"]
        agent = await Agent.create(model=script.model(), cwd=str(tmp_path), tools=tools)
        await agent.run("go")
        pids = tmp_path / "pids"
        most = 2 * min(count, 32)
        await _until(lambda: pids.exists() and len(pids.read_text().split()) == most)
        began = time.monotonic()
        await agent.close()
        return [int(pid) for pid in pids.read_text().split()], time.monotonic() - began

    pids, took = asyncio.run(asyncio.wait_for(work(), 100))
    assert not [pid for pid in pids if _is_alive(pid)] and took < 20


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
