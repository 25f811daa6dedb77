"""Programs without asyncio, and notebooks, where a loop is running already."""

import asyncio
import threading
from dataclasses import dataclass

import pytest

import spindle
from spindle import Agent, AgentError, ModelError, SessionNotFound, SyncAgent
from spindle.testing import Pause, Script

from .rig import run


@dataclass
class Person:
    name: str


def made(home, *steps, **options):
    return {"cwd": home, "model": Script(steps or ["ok"]).model(), "persist": False, **options}


def call(name, /, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "spindle-agent"]


def test_one_question_also_inside_a_running_loop(home):
    async def notebook():
        assert spindle.ask_sync("hi", **made(home, "two")) == "two"
        with Agent.sync(**made(home, "three")) as agent:
            assert agent.ask("hi") == "three"

    assert spindle.ask_sync("hi", **made(home, "one")) == "one"
    assert spindle.ask_sync("hi", schema=Person, **made(home, call("final_result", name="Ada"))) == Person("Ada")
    run(notebook())
    with pytest.raises(ModelError):
        spindle.ask_sync("hi", **made(home, {"error": "broken"}))
    assert not threads()


def test_an_agent_with_tools_events_and_the_same_shapes(home):
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    steps = [call("double", number=4), call("bash", command="echo from-bash"), "done", "again"]
    with Agent.sync(**made(home, *steps, tools=[double, "bash"])) as agent:
        heard: list[str] = []
        stop = agent.subscribe(lambda event: heard.append(event.type))
        begun = agent.run("go")
        events = list(begun)
        results = [event.result.content[0].text for event in events if event.type == "tool_execution_end"]
        assert results[0] == "8" and "from-bash" in results[1]
        assert (begun.result().status, begun.result().turns, repr(begun)) == ("ok", 3, "<SyncRun ended>")
        assert heard[-1] == events[-1].type == "agent_settled"
        stop()
        assert agent.prompt("more").result().text == "again"
        agent.set_name("A talk")
        assert (agent.name, agent.busy, len(agent.messages)) == ("A talk", False, 8)
        assert agent.usage().session_id == agent.id and agent.id in repr(agent)
        with pytest.raises(TypeError, match="Did you mean max_turns"):
            agent.ask("hi", max_turn=1)  # type: ignore[call-overload]
    agent.close()
    assert not threads()


def test_another_thread_aborts_and_a_busy_agent_refuses(home):
    with Agent.sync(**made(home, {"text": ["a", Pause(gate="never")]}, "two")) as agent:
        begun = agent.run("go")
        while not next(begun).text_delta:
            pass
        with pytest.raises(AgentError, match="at work"):
            agent.run("again")
        other = threading.Thread(target=agent.abort)
        other.start()
        assert begun.result().status == "aborted"
        other.join()
        assert agent.ask("again") == "two"


def test_sessions_without_asyncio(home):
    with Agent.sync(**made(home, persist=True)) as agent:
        agent.ask("remember 42")
        known = agent.id
    SyncAgent.rename(known, "Numbers", home)
    assert [info.name for info in SyncAgent.list(home).sessions] == ["Numbers"]
    assert SyncAgent.search("remember", home).found[0].session.id == known
    with Agent.sync(session=known, cwd=home, model=Script(["ok"]).model()) as agent:
        assert len(agent.messages) == 2
    SyncAgent.delete(known, home)
    with pytest.raises(SessionNotFound):
        Agent.sync(session=known, cwd=home)
    with pytest.raises(TypeError, match="Did you mean model"):
        Agent.sync(modle="x")  # type: ignore[call-arg]
    assert not threads()


def test_its_own_thread_is_told_not_to_wait(home):
    found: list[str] = []

    async def ask_yourself() -> str:
        """Ask the agent from inside."""
        try:
            agent.ask("hi")
        except RuntimeError as error:
            found.append(str(error))
        return "no"

    with Agent.sync(**made(home, call("ask_yourself"), "done", tools=[ask_yourself])) as agent:
        assert agent.ask("go") == "done"
    assert "cannot wait" in found[0]
    with pytest.raises(AgentError, match="The agent is closed"):
        agent.ask("hi")
    assert agent.id and len(agent.messages) > 1  # what there was can still be read


def test_the_names_are_those_of_the_agent():
    names = {name for name in dir(Agent) if not name.startswith("_")}
    assert names - {name for name in dir(SyncAgent) if not name.startswith("_")} == {
        *("create", "open", "sync", "closed", "session")
    }
    for name in sorted(names - {"create", "open", "sync", "closed", "session"}):
        assert getattr(vars(SyncAgent)[name], "__doc__", None), name


def test_the_loop_of_the_caller_is_not_used(home):
    async def main():
        before = asyncio.all_tasks()
        agent = Agent.sync(**made(home))
        assert asyncio.all_tasks() == before
        agent.close()

    run(main())
