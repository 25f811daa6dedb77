# mypy: disable-error-code="call-arg,call-overload"
"""Mistakes of newcomers: each is an error or a warning in words of Python, and none is accepted in silence."""

import asyncio
import gc
import warnings
from dataclasses import dataclass

import pytest

import spindle
from spindle import Agent, AgentError, Allow, Budget, Context, Deny, Hook, Model, Subagent
from spindle.testing import Script

from .rig import run


@dataclass
class Shop:
    orders: int


def made(home, *steps, **options):
    return Agent.create(**{"cwd": home, "model": Script(steps or ["ok"]).model(), "persist": False, **options})


def call(name, /, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


class Tools:
    def sell(self, number: int) -> str:
        """Sell."""
        return str(number)

    def __call__(self, number: int) -> str:
        """Do."""
        return str(number)


def yields(number: int):
    """Yield."""
    yield number


def of_shop(shop: Shop | asyncio.Lock) -> str:
    """Show."""
    return str(shop)


RAW = ("msgspec", "schema_hook", "NoneType", "has no attribute", "streamingBehavior", "maxCost", "list_checkpoints")
"""Words that no newcomer should read."""


async def raised(work):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((AgentError, TypeError, ValueError, AttributeError, UserWarning)) as caught:
            made = work()
            if asyncio.iscoroutine(made) or hasattr(made, "__await__"):
                await made
    return caught.value


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"model": ""}, "model is empty"),
        ({"api_key": ""}, "api_key is empty"),
        ({"cwd": ""}, "cwd is empty"),
        ({"store": ""}, "store is empty"),
        ({"store": 5}, "store must be an address, or a SessionStore, not 5"),
        ({"model": "anthropic/claude-sonet-4-5"}, 'Model "claude-sonet-4-5" not found'),
        ({"max_turns": 2.5}, "max_turns must be a whole number, not 2.5"),
        ({"max_total_tokens": 1e6}, "max_total_tokens must be a whole number"),
        ({"max_session_cost": 0}, "max_session_cost must be a number above 0"),
        ({"max_session_cost": True}, "max_session_cost must be a number above 0"),
        ({"budget": 5}, "budget must be a Budget, as Budget(max_cost=5.0), not 5"),
        ({"allow": ["Bsh(ls)"]}, 'Not a permission rule: "Bsh(ls)"'),
        ({"allow": [1]}, "but allow[0] is 1"),
        ({"append_system_prompt": [5]}, "append_system_prompt[0] is 5"),
        ({"skills": ["/nope"]}, "skills: there is no /nope"),
        ({"skills": [5]}, "skills[0] is 5"),
        ({"add_dirs": ["/nope"]}, "add_dirs: not a directory: /nope"),
        ({"add_dirs": [5]}, "add_dirs[0] is 5"),
        ({"extensions": [5]}, "extensions[0] is 5"),
        ({"fallback": [5]}, "fallback[0] is 5"),
        ({"ui": 5}, "ui must be an object with ask, tell"),
        ({"exec_cwd": "/x"}, "exec_cwd is a directory at the far side: it needs exec"),
        ({"env": ["A=b"]}, "env must be a dict of texts by name"),
        ({"env": {"A": 5}}, "env must be a dict of texts by name"),
        ({"env": {"HOME": "/x"}}, "env cannot change HOME"),
        ({"checkpoints": "no"}, "checkpoints must be a bool"),
        ({"session_file": "x.jsonl"}, "persist=False and session_file exclude each other"),
        ({"agents": {5: Subagent(description="x")}}, "the name of a subagent must be a str"),
        ({"agents": {"a": Subagent(description=" ")}}, "agents['a'] needs a name and a description"),
        ({"agents": {"a": Subagent(description="x", tools="read")}}, "agents['a']: tools must be a list of names"),
        ({"agents": {"a": Subagent(description="x", tools=["rea"])}}, "agents['a']: Unknown tool \"rea\". Did you"),
        ({"agents": {"a": Subagent(description="x", model="no/such")}}, "agents['a']: model: Model \"no/such\" not"),
        ({"agents": {"a": Subagent(description="x", thinking="hard")}}, "there is no thinking level 'hard'"),
        ({"hooks": {"PreToolUse": print}}, "hooks['PreToolUse']: there is no such event. Did you mean tool_call?"),
        ({"hooks": {"tool_call": lambda a, b, c: None}}, "must take the event, or the event and ctx"),
        ({"hooks": {"tool_call": Hook(print, matcher="Write")}}, 'Unknown tool "Write". Did you mean write'),
        ({"hooks": {"tool_call": Hook(print, matcher=["write"])}}, "matcher must be names of tools with | between"),
        ({"hooks": {"agent_end": Hook(print, matcher="write")}}, "agent_end is none"),
        ({"hooks": {"tool_call": Hook(print, timeout=0)}}, "timeout must be a number above 0"),
        ({"tools": [Tools]}, "Tools is a class, and a tool must be a function"),
        ({"tools": [Tools()]}, "has no name: write a function around it"),
        ({"tools": [Tools.sell]}, "Tool sell is a method of no object"),
        ({"tools": [yields]}, "Tool yields yields, and a tool must return"),
        ({"tools": [of_shop]}, "of_shop: JSON Schema cannot describe shop: "),
        ({"schema": Shop}, "'schema'. It belongs elsewhere: give it to run() or ask()"),
        ({"output_type": Shop}, "Here it is schema, which belongs elsewhere: give it to run() or ask()"),
        *(({name: 1}, f"Did you mean {other}?") for name, other in (
            ("system_message", "system_prompt"), ("working_dir", "cwd"), ("message_history", "session"),
            ("fallback_model", "fallback"), ("disallowed_tools", "deny"), ("setting_sources", "sources"),
        )),
    ],
)  # fmt: skip
def test_an_agent_is_not_made_of_mistakes(home, options, text):
    async def main():
        error = await raised(lambda: made(home, **options))
        assert text in str(error) and not any(word in str(error) for word in RAW), error

    run(main())


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda agent: agent.run("hi", "a.png"), "images must be a list of Images, paths or bytes. Did you mean"),
        (lambda agent: agent.run("hi", ["no.png"]), "images[0]: cannot read 'no.png': No such file"),
        (lambda agent: agent.run("hi", [b"text"]), "images[0]: its content is not an image"),
        (lambda agent: agent.run("hi", [5]), "images[0] must be an Image, a path or bytes, not 5"),
        (lambda agent: agent.run("hi", max_turns=1.5), "max_turns must be a whole number"),
        (lambda agent: agent.run("hi", tools=[]), "It belongs elsewhere: give it to Agent.create()"),
        (lambda agent: agent.run("hi", fallback="a/b"), "Did you mean fallback=['a/b']?"),
        (lambda agent: agent.run("hi", fallback=["no/such"]), 'Model "no/such" not found'),
        (lambda agent: agent.run("hi", schema={"title": "x", "bugs": 3}), "is it an example?"),
        (lambda agent: agent.run("hi", schema={"properties": {"a": "int"}}), "properties.a must be a schema"),
        (lambda agent: agent.run("hi", schema={"required": "a"}), "required must be a list of names"),
        (lambda agent: agent.set_name(5), "set_name(): name must be str, not 5"),
        (lambda agent: agent.set_model(5), "set_model(): model must be str or Model, not 5"),
        (lambda agent: agent.set_model(""), "model is empty"),
        (lambda agent: agent.set_model("anthropic/claude-sonnet-4-5"), "No API key found for anthropic"),
        (lambda agent: agent.restore("nope"), "There is no checkpoint nope in this session: checkpoints() has them"),
        (lambda agent: agent.restore("nope", "a.txt"), "files must be a list of paths"),
        (lambda agent: agent.subscribe(5), "A listener must be a plain function of one argument"),
        (lambda agent: agent.subscribe(asyncio.sleep), "A listener must be a plain function of one argument"),
        (lambda agent: agent.subscribe(lambda: None), "A listener must be a plain function of one argument"),
        (lambda agent: agent.session_id, "no attribute 'session_id'. Did you mean id?"),
        (lambda agent: agent.query("hi"), "no attribute 'query'. Did you mean run()?"),
        (lambda agent: agent.mesages, "no attribute 'mesages'. Did you mean messages?"),
        (lambda agent: setattr(agent, "modle", "x"), "modle"),
        (lambda agent: Agent.open(None), "Agent.open(): session must be str or Path, not None"),
        (lambda agent: Agent.list(limit="5"), "list(): limit must be int, not '5'"),
        (lambda agent: Agent.list(cursor=5), "list(): cursor must be str or None, not 5"),
        (lambda agent: Agent.search(5), "search(): text must be str, not 5"),
        (lambda agent: Agent.delete(None), "delete(): session must be str or Path, not None"),
        (lambda agent: Agent.rename("x", 5), "rename(): name must be str, not 5"),
        (lambda agent: Subagent(), "Subagent() needs description"),
        (lambda agent: Subagent("x"), "Subagent() takes its fields by name, as Subagent(description='x')"),
        (lambda agent: Subagent(description="x", instructions="y"), "'instructions'. Did you mean prompt?"),
        (lambda agent: Hook(hooks=[print]), "'hooks'. Did you mean function?"),
        (lambda agent: Allow(updated_input={}), "'updated_input'. Did you mean input?"),
        (lambda agent: Deny(message="no"), "'message'. Did you mean reason?"),
        (lambda agent: Model(id="x"), "Model() needs name and api"),
        (lambda agent: Budget("5"), "max_cost must be a number above 0, not '5'"),
    ],
)
def test_a_call_that_makes_no_sense(home, monkeypatch, do, text):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)

    async def main():
        async with made(home) as agent:
            error = await raised(lambda: do(agent))
            assert text in str(error), error
            is_python = isinstance(error, AttributeError)
            assert is_python or not any(word in str(error) for word in RAW), error
            assert await agent.ask("hi") == "ok"

    run(main())


@pytest.mark.parametrize(
    "do",
    [
        lambda agent: agent.run("hi"),
        lambda agent: agent.steer("hi"),
        lambda agent: agent.subscribe(print),
        lambda agent: agent.restore("x"),
        lambda agent: agent.set_name("x"),
        lambda agent: agent.__aenter__(),
    ],
)
def test_a_closed_agent_says_so_and_can_still_be_read(home, do):
    async def main():
        agent = await made(home)
        await agent.ask("hi")
        await agent.close()
        assert str(await raised(lambda: do(agent))) == "The agent is closed"
        assert len(agent.messages) == 2 and agent.id and (await agent.usage()).total_messages == 2

    run(main())


def test_a_tool_that_raises_a_key_error_says_more_than_the_key(home, caplog):
    def look_up(ctx: Context[Shop] | None = None) -> str:
        """Look something up."""
        return {"a": "b"}[str(ctx.deps.orders)]

    async def main():
        caplog.set_level("INFO", "spindle.tools")
        async with made(home, call("look_up"), "done", tools=[look_up], deps=Shop(7)) as agent:
            ends = [event async for event in agent.run("go") if event.type == "tool_execution_end"]
        assert ends[0].is_error and ends[0].result.content[0].text == "KeyError: '7'"
        (record,) = caplog.records
        assert "look_up" in record.getMessage() and record.exc_info[0] is KeyError

    run(main())


def test_a_denial_whose_reason_is_no_text_is_a_failed_answer(home):
    async def main():
        def can_use_tool(request):
            return Deny(None)

        async with made(home, call("write", path="a", content="b"), "done", can_use_tool=can_use_tool) as agent:
            result = await agent.run("go")
        assert (result.status, result.denials[0].by) == ("denied", "error")

    run(main())


def test_an_agent_that_is_forgotten_is_a_warning(home):
    async def main():
        agent = await made(home)
        name = agent.id
        with pytest.warns(ResourceWarning, match=f"An agent was not closed: session {name}"):
            del agent
            gc.collect()

    run(main())
    opening = spindle.ask("hi", modle="x")
    with pytest.raises(TypeError, match="Did you mean model"):
        run(opening)


# -- what a program may give ---------------------------------------------------------------------


def test_variables_for_commands_and_no_checkpoints(home):
    async def main():
        steps = [call("bash", command="echo $COLOUR > told && cat told"), "done"]
        for kept in (True, False):
            options = {"env": {"COLOUR": "teal"}, "checkpoints": kept}
            async with made(home, *steps, **options) as agent:
                ends = [event async for event in agent.run("go") if event.type == "tool_execution_end"]
                assert "teal" in ends[0].result.content[0].text
                listed = await agent.checkpoints()
                assert (listed.enabled, bool(listed.checkpoints)) == (kept, kept)

    run(main())


def test_images_are_files_or_bytes(home, tmp_path):
    pixel = bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001"
        "5aa5d5870000000049454e44ae426082"
    )
    (tmp_path / "a.png").write_bytes(pixel)

    async def main():
        script = Script(["one"])
        async with Agent.create(cwd=home, model=script.model(), persist=False) as agent:
            await agent.ask("What is this?", [tmp_path / "a.png", str(tmp_path / "a.png"), pixel])
            kinds = [(block.type, block.mime_type) for block in agent.messages[0].content if block.type == "image"]
        assert kinds == [("image", "image/png")] * 3

    run(main())
