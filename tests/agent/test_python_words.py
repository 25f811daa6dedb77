# mypy: disable-error-code="attr-defined,call-arg"
"""What a newcomer does wrong, and what the agent can do without `agent.session`: words and names of Python."""

import asyncio
import inspect
from typing import get_args, get_type_hints

import pytest

import spindle
from spindle import Agent, AgentError, LimitReached, Model, ModelCost, events
from spindle.shapes.events import Event
from spindle.testing import Pause, Script

from .rig import run


def made(home, *steps, **options):
    return Agent.create(cwd=home, model=Script(steps or ["ok"]).model(), persist=False, **options)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: Agent(), TypeError, "Agent.create"),
        (lambda: Agent(model="a/b"), TypeError, "Agent.create"),
        (lambda: Agent.create().run("hi"), AttributeError, "not made yet"),
        (lambda: Agent.create().nothing, AttributeError, "no attribute 'nothing'"),
        (lambda: Agent.create(resume="x"), TypeError, "'resume'. Did you mean session?"),
        (lambda: Agent.create(system="x"), TypeError, "'system'. Did you mean system_prompt?"),
        (lambda: Agent.create(max_turn=3), TypeError, "'max_turn'. Did you mean max_turns"),
        (lambda: Agent.create(max_budget_usd=3), TypeError, "Did you mean max_cost?"),
        (lambda: Agent.create(cwd=5), TypeError, "cwd must be a path, not 5"),
        (lambda: spindle.run("hi", modle="x"), TypeError, "Did you mean model"),
        (lambda: Agent.create(model="no/such"), AgentError, "`spindle --list-models`"),
    ],
)
def test_what_cannot_be_made_says_what_can(call, error, text):
    async def main():
        with pytest.raises(error) as caught:
            await call()
        assert text in str(caught.value)

    run(main())


def test_an_agent_is_not_entered_without_async():
    opening = Agent.create()
    with pytest.raises(TypeError, match=r"async with Agent\.create.*Agent\.sync"), opening:
        pass
    opening.close()


@pytest.mark.parametrize(
    ("message", "options", "error", "text"),
    [
        (
            "hi",
            {"max_turn": 3},
            TypeError,
            "run() got an unexpected keyword argument 'max_turn'. Did you mean",
        ),
        ("hi", {"streaming_behavior": "steer"}, TypeError, "unexpected keyword argument 'streaming_behavior'"),
        ("hi", {"max_turns": "3"}, AgentError, "max_turns must be a number above 0, not '3'"),
        (["hi"], {}, TypeError, "A message must be a str, not ['hi']"),
        (" ", {}, AgentError, "The message is empty"),
        ("hi", {"schema": {1, 2}}, TypeError, "schema"),
        ("hi", {"schema": object}, TypeError, "schema"),
        ("hi", {"schema": lambda: 1}, TypeError, "schema"),
        ("hi", {"schema": {"type": "strin"}}, TypeError, "schema"),
    ],
)
def test_a_prompt_that_makes_no_sense(home, message, options, error, text):
    async def main():
        async with made(home) as agent:
            with pytest.raises(error) as caught:
                await agent.run(message, **options)
            assert text in str(caught.value) and "msgspec" not in str(caught.value)
            assert (await agent.run("hi")).text == "ok"

    run(main())


def test_a_busy_agent_names_what_queues(home):
    async def main():
        async with made(home, {"text": ["a", Pause(gate="go")]}, "two") as agent:
            first = await agent.start("hi")
            while not (await anext(first)).text_delta:
                pass
            with pytest.raises(AgentError, match=r"at work.*steer\(\) or follow_up\(\)"):
                await agent.start("again")
            assert agent.busy and f"<Agent {agent.id} " in repr(agent) and repr(first) == "<AgentRun started>"
            await agent.abort()
            assert (await first).status == "aborted" and repr(first) == "<AgentRun ended>"
            assert (await (await agent.start("again"))).text == "two"

    run(main())


def test_a_limit_that_cannot_be_kept_is_told_when_the_agent_is_made(home):
    async def main():
        unknown = Model(
            id="m", name="m", api="openai-completions", provider="p", base_url="http://127.0.0.1:1", reasoning=False,
            input=["text"], cost=ModelCost(0, 0, 0, 0), context_window=1000, max_tokens=100, cost_unknown=True,
        )  # fmt: skip
        with pytest.raises(AgentError, match="max_cost cannot be kept: the price of p/m is unknown"):
            await Agent.create(cwd=home, model=unknown, max_cost=1.0, persist=False)
        step = {"calls": [{"name": "read", "arguments": {"path": "x"}}]}
        async with made(home, step, step, max_turns=1) as agent:
            with pytest.raises(LimitReached, match="Stopped by a limit: max_turns"):
                await agent.ask("go")

    run(main())


def test_every_event_is_in_the_union_under_its_type(home):
    kinds, waiting = set(), [Event]
    while waiting:
        found = waiting.pop().__subclasses__()
        waiting += found
        kinds |= {kind for kind in found if kind.__module__.startswith("spindle.shapes.")}
    assert kinds == set(get_args(events.AnyEvent)) and len(kinds) > 40
    for kind in kinds:
        (literal,) = get_args(get_type_hints(kind)["type"])
        assert get_args(literal) == (kind.__struct_config__.tag,), kind
        assert getattr(events, kind.__name__) is kind and inspect.getdoc(kind), kind

    async def main():
        async with made(home) as agent:
            matched = [event async for event in agent.run("hi") if isinstance(event, get_args(events.AnyEvent))]
            assert [event.type for event in matched][:2] == ["agent_start", "turn_start"]

    run(main())


def test_what_an_agent_can_do_is_on_the_agent(home):
    async def main():
        async with made(home, {"text": "one", "usage": {"input": 7, "output": 2}}, "two") as agent:
            assert repr(agent).startswith(f"<Agent {agent.id} idle model=")
            assert (agent.name, agent.todos, agent.background_commands(), agent.cwd) == (None, [], [], str(home))
            await agent.ask("hi")
            agent.set_name("A talk")
            assert agent.name == "A talk"
            assert (await agent.usage()).tokens.output == 2 and await agent.cost() == 0
            (phase,) = agent.set_todos([{"name": "First", "tasks": [{"content": "look"}]}])
            assert agent.todos == [phase]
            assert isinstance(agent.commands(), list) and isinstance(agent.models(), list)
            assert await agent.set_thinking("high") == agent.thinking == "high"
            with pytest.raises(AgentError, match="Invalid thinking level"):
                await agent.set_thinking("hard")
            other = Script(["from the other"]).model()
            assert await agent.set_model(other) == agent.model == other
            assert await agent.ask("and now?") == "from the other"
            with pytest.raises(AgentError, match="not found"):
                await agent.set_model("no/such-model")
            first = agent.id
            await agent.new_session()
            assert agent.id != first and not agent.messages
            await asyncio.wait_for(agent.wait_idle(), 10)

    run(main())
