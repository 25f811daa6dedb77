"""What a program gives its agent in code: tools with a context, subagents, hooks, sources, budgets."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Literal

import pytest

from spindle import Agent, AgentError, Budget, Context, Hook, LimitReached, Model, ModelCost, Subagent
from spindle.testing import Script

from .rig import run


@dataclass
class Database:
    rows: dict[str, str]


def made(home, *steps, **options):
    return Agent.create(cwd=home, model=Script(steps or ["ok"]).model(), persist=False, **options)


def call(name, /, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


def results(events):
    return [event.result.content[0].text for event in events if event.type == "tool_execution_end"]


# -- tools with a context --------------------------------------------------------------------------


def test_a_tool_is_given_what_the_program_has(home):
    seen = []

    def look_up(ctx: Context[Database], key: str, how: Literal["exact", "near"] = "exact") -> str:
        """Look a row up."""
        seen.append((ctx.call_id, ctx.session_id, ctx.cwd, how))
        ctx.progress("looking")
        return ctx.deps.rows[key]

    async def store(key: str, value: str, *, context: Context[Database]) -> str:
        """Store a row."""
        context.deps.rows[key] = value
        return f"stored by {context.call_id}"

    async def main():
        script = Script([call("look_up", key="a"), call("store", key="b", value="2"), "done"])
        database = Database({"a": "1"})
        options = {"tools": [look_up, store], "deps": database, "persist": False}
        async with Agent.create(cwd=home, model=script.model(), **options) as agent:
            events = [event async for event in agent.run("go")]
            begun = [event.tool_call_id for event in events if event.type == "tool_execution_start"]
            assert results(events) == ["1", f"stored by {begun[1]}"] and database.rows["b"] == "2"
            assert seen == [(begun[0], agent.id, str(home), "exact")]
            told = [event.partial_result.content[0].text for event in events if event.type == "tool_execution_update"]
            assert told == ["looking"]
            tools = {tool.name: tool.parameters for tool in agent.session.toolbox.all()}
            assert tools["look_up"]["properties"]["how"] == {
                "enum": ["exact", "near"], "type": "string", "default": "exact",
            }  # fmt: skip
            assert set(tools["store"]["properties"]) == {"key", "value"}

    run(main())


def test_a_tool_learns_that_it_is_given_up(home):
    began, given_up = threading.Event(), threading.Event()

    def wait(ctx: Context[None]) -> str:
        """Wait for the end."""
        began.set()
        if ctx.cancelled.wait(20):
            given_up.set()
        return "late"

    async def main():
        async with made(home, call("wait"), "done", tools=[wait]) as agent:
            begun = await agent.start("go")
            await asyncio.to_thread(began.wait, 20)
            await agent.abort()
            assert (await begun).status == "aborted"
            assert await asyncio.to_thread(given_up.wait, 20)

    run(main())


def test_a_tool_that_wants_what_is_not_given_and_one_that_says_too_little(home):
    def look_up(key: str, ctx: Context[Database]) -> str:
        """Look a row up."""
        return key

    def bare(word, *, update):
        return word

    async def main():
        for deps in ({}, {"deps": "text"}):
            with pytest.raises(TypeError, match=r"look_up wants Context\[Database\]: give Agent.create\(deps="):
                await made(home, tools=[look_up], **deps)
        with pytest.warns(UserWarning, match="Tool bare lacks a docstring, .* and a type of word"):
            agent = await made(home, call("bare", word="x"), "done", tools=[bare])
        assert results([event async for event in agent.run("go")]) == ["x"]
        await agent.close()

    run(main())


# -- subagents, hooks ------------------------------------------------------------------------------


def test_a_subagent_of_the_program(home):
    async def main():
        reader = Subagent(description="Reads the books", prompt="You read books.", tools=["read"])
        script = Script([call("task", agent="reader", prompt="Read it"), "I have read it", "done"])
        async with Agent.create(cwd=home, model=script.model(), persist=False, agents={"reader": reader}) as agent:
            events = [event async for event in agent.run("go")]
            assert "I have read it" in results(events)[0]
        asked = script.requests[1]
        assert "You read books." in asked.system_prompt and [tool.name for tool in asked.tools] == ["read"]
        task = next(tool for tool in script.requests[0].tools if tool.name == "task")
        assert "- reader: Reads the books" in task.description
        with pytest.raises(TypeError, match=r"agents\['reader'\] must be a Subagent, not 'x'"):
            await made(home, agents={"reader": "x"})

    run(main())


def test_hooks_of_the_program(home):
    heard = []

    def gate(event):
        heard.append(event.tool_name)
        return {"block": True, "reason": "not today"}

    async def ended(event, ctx):
        heard.append(str(ctx.cwd))

    async def main():
        steps = [call("write", path="a", content="b"), call("read", path="x"), "done"]
        hooks = {"tool_call": Hook(gate, matcher="write|edit"), "agent_end": [ended]}
        async with made(home, *steps, hooks=hooks) as agent:
            found = results([event async for event in agent.run("go")])
        assert "not today" in found[0] and "not today" not in found[1]
        assert heard == ["write", str(home)] and not (home / "a").exists()
        with pytest.raises(AgentError, match="Did you mean tool_call"):
            await made(home, hooks={"tool_cal": gate})
        with pytest.raises(TypeError, match=r"hooks.*must be functions or Hooks, not 'x'"):
            await made(home, hooks={"tool_call": "x"})

    run(main())


# -- prompts, folders, sources ---------------------------------------------------------------------


def test_texts_folders_and_sources(home, tmp_path):
    skill = tmp_path / "skills" / "knit"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: knit\ndescription: Knitting patterns\n---\nKnit.\n")
    more = tmp_path / "more"
    more.mkdir()
    (home / "AGENTS.md").write_text("Context of the project.")

    async def prompt(**options):
        script = Script(["ok"])
        async with Agent.create(cwd=home, model=script.model(), persist=False, **options) as agent:
            await agent.ask("hi")
        return script.requests[0].system_prompt

    async def main():
        text = await prompt(append_system_prompt="Speak like a pirate.", skills=[skill.parent], add_dirs=[more])
        for part in ("Speak like a pirate.", "Knitting patterns", str(more), "Context of the project."):
            assert part in text
        assert "Context of the project." in await prompt(sources=["context"])
        for options in ({"sources": ["settings", "skills"]}, {"sources": []}, {"hermetic": True}):
            assert "Context of the project." not in await prompt(**options)
        with pytest.raises(AgentError, match=r"There is no source 'skils'\. Did you mean skills"):
            await made(home, sources=["skils"])
        with pytest.raises(AgentError, match="hermetic and sources exclude"):
            await made(home, sources=["skills"], hermetic=True)

    run(main())


# -- budgets ---------------------------------------------------------------------------------------


def dear(*steps) -> Model:
    """Return a model whose every answer costs one dollar."""
    from msgspec.structs import replace

    made = Script([{"usage": {"input": 0, "output": 1_000_000}, **step} for step in steps]).model()
    return replace(made, cost=ModelCost(input=0, output=1, cache_read=0, cache_write=0))


def test_agents_share_a_budget(home):
    async def main():
        budget = Budget(max_cost=2.5)
        step = call("read", path="x")
        for number in (1, 2):
            async with Agent.create(cwd=home, model=dear({"text": "ok"}), persist=False, budget=budget) as agent:
                await agent.ask("hi")
            assert (budget.used, budget.left) == (number, 2.5 - number)
        async with Agent.create(cwd=home, model=dear(step, step), persist=False, budget=budget) as agent:
            with pytest.raises(LimitReached, match="max_cost"):
                await agent.ask("hi")
            with pytest.raises(AgentError, match="Nothing is left of the budget of the program"):
                await agent.ask("hi")
        assert repr(budget) == "<Budget $3.0000 of $2.50 used>"
        with pytest.raises(ValueError, match="max_cost must be a number above 0"):
            Budget(0)

    run(main())


def test_a_session_has_a_budget(home):
    async def main():
        async with Agent.create(cwd=home, model=dear({"text": "ok"}), max_session_cost=1.5) as agent:
            await agent.ask("hi")
            known = agent.id
        async with Agent.open(known, model=dear({"text": "ok"}), max_session_cost=1.0) as agent:
            with pytest.raises(AgentError, match="Nothing is left of max_session_cost"):
                await agent.start("hi")

    run(main())
