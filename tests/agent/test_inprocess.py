"""`spindle.Agent`: the agent as an object of a Python program."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from spindle import Agent
from spindle.agent import AgentError
from spindle.testing import Script

from .rig import run


def test_a_prompt_at_the_end_of_a_run_gets_its_own_answer(home):
    """The first run settles while the second prompt is already waiting."""

    async def main():
        ending, go = asyncio.Event(), asyncio.Event()

        def extension(agent):
            async def hold(*_):
                ending.set()
                await go.wait()

            agent.on("agent_before_settle", hold)

        script = Script(["first", "second"])
        async with await Agent.create(cwd=home, model=script.model(), persist=False, extensions=[extension]) as agent:
            first = asyncio.create_task(agent.ask("one"))
            await ending.wait()
            second = asyncio.create_task(agent.ask("two"))
            for _ in range(20):  # it gets as far as it can
                await asyncio.sleep(0)
            go.set()
            assert (await first, await second) == ("first", "second")

    run(main())


def test_a_command_that_needs_no_model_has_no_answer(home):
    async def main():
        def extension(agent):
            @agent.command("quiet")
            async def quiet(*_):
                """Do nothing."""

        script = Script(["hello"])
        async with await Agent.create(cwd=home, model=script.model(), persist=False, extensions=[extension]) as agent:
            assert await agent.ask("hi") == "hello"
            assert await agent.ask("/quiet") == ""

    run(main())


def test_a_session_that_could_not_be_opened_may_be_opened_again(home):
    async def main():
        script = Script(["one", "two"])
        async with await Agent.create(cwd=home, model=script.model()) as agent:
            await agent.ask("hi")
            file = agent.session.session.path
        with pytest.raises(AgentError, match="not found"):
            await Agent.open(file, model="no/such-model")
        async with await Agent.open(file, model=script.model()) as agent:
            assert await agent.ask("again") == "two"

    run(main())


@pytest.mark.parametrize("told", ["environment", "settings"])
def test_sessions_go_where_the_user_wants_them(home, monkeypatch, told):
    place = home / "elsewhere"
    settings: dict[str, str] = {"fsync": "never"}
    if told == "environment":
        monkeypatch.setenv("PI_CODING_AGENT_SESSION_DIR", str(place))
    else:
        settings["sessionDir"] = str(place)
    agent_dir = Path(os.environ["SPINDLE_DIR"])
    agent_dir.mkdir(exist_ok=True)
    (agent_dir / "settings.json").write_text(json.dumps(settings))
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)

    async def main():
        async with await Agent.create(cwd=home, model=Script(["ok"]).model()) as agent:
            await agent.ask("hi")
            assert agent.session.session.path.parent == place
        assert not synced

    run(main())
