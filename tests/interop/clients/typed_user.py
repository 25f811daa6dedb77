import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, assert_type

import spindle
from spindle import Agent, AgentError, AgentRun, Budget, Context, Hook, RunResult, Subagent
from spindle.client import Event, RpcClient, Run, SyncRpcClient
from spindle.events import AgentSettled, AnyEvent, MessageUpdate, TextDelta, ToolExecutionEnd, ToolExecutionStart


@dataclass
class Answer:
    colour: str
    count: int


def add(a: Annotated[int, "the first"], b: int = 0) -> dict[str, int]:
    """Add."""
    return {"sum": a + b}


async def in_process() -> None:
    async with await Agent.create(cwd=".", tools=[add, "read"], max_turns=3, persist=False) as agent:
        assert_type(await agent.ask("hi"), str)
        assert_type(await agent.ask("hi", schema=Answer), Answer)
        result = await agent.run("hi", max_cost=0.5)
        assert_type(result, RunResult)
        assert_type(result.text, str)
        async for event in agent.prompt("hi"):
            assert_type(event.text_delta, str)
    async with Agent.create(model="m", base_url="http://127.0.0.1:8000/v1", hermetic=True) as agent:
        run = agent.run("hi", schema=Answer)
        assert_type(run, AgentRun)
        async for event in run:
            assert_type(event.text_delta, str)
        assert_type(await run.result(), RunResult)
        assert_type(await spindle.run("hi"), RunResult)
    try:
        assert_type(await spindle.ask("hi"), str)
    except (spindle.ModelError, spindle.LimitReached, spindle.SchemaNotMet, AgentError):
        pass


def look(ctx: Context[Answer], key: str) -> str:
    """Look."""
    assert_type(ctx.deps, Answer)
    return key


async def declared() -> None:
    budget = Budget(max_cost=1.0)
    agents = {"reader": Subagent(description="Reads", tools=["read"])}
    hooks = {"tool_call": Hook(look, matcher="write")}
    deps = Answer("red", 1)
    async with Agent.create(tools=[look], deps=deps, agents=agents, hooks=hooks, budget=budget, sources=["skills"]):
        assert_type(budget.left, float)


async def events(agent: Agent) -> None:
    run = await agent.start("hi")
    assert_type(run, AgentRun)
    async for event in run:
        assert_type(event, AnyEvent)
        if event.type == "tool_execution_start":
            assert_type(event, ToolExecutionStart)
            assert_type(event.tool_name, str)
        elif event.type == "agent_settled":
            assert_type(event, AgentSettled)
        match event:
            case ToolExecutionEnd(is_error=failed):
                assert_type(failed, bool)
            case MessageUpdate(assistant_message_event=TextDelta(delta=delta)):
                assert_type(delta, str)
            case _:
                pass

    def listen(event: AnyEvent) -> None:
        print(event.text_delta)

    agent.subscribe(listen)
    assert_type((await Agent.list(limit=3)).cursor, str | None)


async def by_client() -> None:
    async with RpcClient(["spindle", "--mode", "rpc"]) as client:
        assert_type(await client.get_state(), dict[str, Any])
        assert_type(await client.prompt_and_wait("hi", max_turns=2), Run)
        assert_type(await client.run("hi"), RunResult)
        async for event in client.run("hi", schema=Answer):
            assert_type(event, Event)

        @client.tool
        async def look(path: str) -> str:
            return path


def in_a_notebook() -> None:
    assert_type(spindle.ask_sync("hi", max_turns=3), str)
    with Agent.sync(model="a/b") as agent:
        assert_type(agent.ask("hi", schema=Answer), Answer)
        for event in agent.run("hi", max_cost=0.5):
            assert_type(event, AnyEvent)
        assert_type(agent.run("hi").result(), RunResult)
        assert_type(agent.id, str)
        assert_type(agent.cost(), float | None)
        agent.steer("more")


def without_asyncio() -> None:
    with SyncRpcClient(["spindle", "--mode", "rpc"]) as client:
        assert_type(client.prompt_and_wait("hi", max_cost=1.0), Run)
        assert_type(client.get_messages(), list[dict[str, Any]])
        assert_type(client.events(), Iterator[Event])
        for event in client.run("hi"):
            assert_type(event, Event)
        assert_type(client.run("hi").result(), RunResult)
        client.set_model("p", "m")


asyncio.run(in_process())
