"""Extensions under the remote server: their commands, their dialogs, their beginning."""

import asyncio
import json
from unittest.mock import MagicMock

import pytest

from spindle.models.credentials import MissingCredentials

from .inside import run
from .test_races import CALL, noting


def test_a_command_of_an_extension_ends_its_request(tmp_path):
    def extension(agent):
        agent.command("hello")(lambda arguments, ctx: None)

    async def story(world):
        async with world.chat() as client:
            assert (await client.ask("a", {"Text": "/hello"}))["response"] == {"Text": ""}
            streamed = await client.ask("b", {"Text": "/hello"}, stream=True)
            assert streamed["response"]["Complete"]["interrupted"] is False
            assert (await client.ask("c", {"Text": "hi"}))["response"] == {"Text": "yes"}
            assert len(world.script.requests) == 1

    run(story, ["yes"], tmp_path, extension=extension)


def test_dialogs_that_nobody_can_answer_are_closed(tmp_path):
    done, answers = [], []

    def extension(agent):
        @agent.on("tool_call")
        async def ask(event, ctx):
            answers.append(await ctx.ui.confirm("Sure?"))
            return None if answers[-1] else agent.block("not sure")

    async def story(world):
        async with world.chat() as chat:
            assert (await chat.ask("a", {"Text": "go"}))["response"] == {"Text": "done"}
            assert answers == [False] and done == []
            async with world.rpc(f"?session={await chat.session_id()}") as rpc:
                await chat.send("b", {"Text": "go"})
                dialog = await rpc.wait("extension_ui_request")
                await rpc.socket.send(f'{{"type":"extension_ui_response","id":"{dialog["id"]}","confirmed":true}}')
                assert (await chat.read())["response"] == {"Text": "done"}
            assert answers == [False, True] and len(done) == 1
            # Somebody who could answer goes away without having done so.
            async with world.rpc(f"?session={await chat.session_id()}") as rpc:
                await chat.send("c", {"Text": "go"})
                await rpc.wait(lambda frame: frame.get("method") == "confirm")
            assert (await chat.read())["response"] == {"Text": "done"}
            assert answers == [False, True, False] and len(done) == 1

    run(story, [CALL, "done", CALL, "done", CALL, "done"], tmp_path, tools=[noting(done)], extension=extension)


def test_an_interrupt_while_an_extension_still_looks_at_the_request(tmp_path):
    looking, never = [], asyncio.Event

    def extension(agent):
        @agent.on("input")
        async def look(event, ctx):
            if event.text == "go":
                looking.append(event.text)
                await never().wait()

    async def story(world):
        async with world.chat() as client:
            await client.send("a", {"Text": "go"}, stream=True)
            while not looking:
                await client.ask("g", "GetCommands")
            await client.send("i", "Interrupt")
            end = await client.read()
            assert end["request_id"] == "a" and end["response"]["Complete"]["interrupted"] is True
            assert (await client.read())["request_id"] == "i"
            assert (await client.ask("b", {"Text": "hi"}))["response"] == {"Text": "yes"}

    run(story, ["yes"], tmp_path, extension=extension)


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_an_extension_deals_with_ends_without_an_answer(tmp_path, stream):
    def extension(agent):
        agent.on("input", lambda event, ctx: agent.handled() if event.text == "ping" else None)

    async def story(world):
        async with world.chat() as client:
            end = await client.ask("a", {"Text": "ping"}, stream=stream)
            if stream:
                assert end["response"]["Complete"]["interrupted"] is False
            else:
                assert end["response"] == {"Text": ""} and end["error"] is None
            assert (await client.ask("b", {"Text": "hi"}))["response"] == {"Text": "yes"}
            assert len(world.script.requests) == 1

    run(story, ["yes"], tmp_path, extension=extension)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "why, told", [(MissingCredentials("No key"), "No key"), (ZeroDivisionError("a bug"), "ZeroDivisionError: a bug")]
)
def test_a_request_that_cannot_start_after_all(tmp_path, stream, why, told):
    """It was accepted; what goes wrong while hooks look at it must still end it, once."""
    worlds = []

    def extension(agent):
        @agent.on("input")
        def lose_the_key(event, ctx):
            if event.text == "go":
                worlds[0].agents[0].resources.registry.require_credentials = MagicMock(side_effect=why)

    async def story(world):
        worlds.append(world)
        async with world.chat() as client:
            end = await client.ask("a", {"Text": "go"}, stream=stream)
            assert end["response"] == {"Text": ""}
            assert json.loads(end["error"]) == {"type": "processing_error", "message": told}
            if stream:
                assert "Complete" in (await client.read())["response"]
            del world.agents[0].resources.registry.require_credentials
            assert (await client.ask("b", {"Text": "hi"}))["response"] == {"Text": "yes"}

    run(story, ["yes"], tmp_path, extension=extension)


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_request_that_comes_while_the_session_changes(tmp_path, interrupted):
    """It waits, and then runs in the other session as it was wished for."""
    done, loads, loading, go_on = [], [], asyncio.Event(), asyncio.Event()

    async def extension(agent):
        loads.append(agent)
        if len(loads) > 1:
            loading.set()
            await go_on.wait()

    async def story(world):
        async with world.rpc() as rpc, world.chat(f"?session={rpc.ready['sessionId']}") as chat:
            await rpc.socket.send('{"type":"new_session"}')
            await loading.wait()
            config = {"ask_before_tool_execution": True, "prompt": "Be brief."}
            await chat.send("a", {"Text": "go"}, config=config, stream=True)
            await chat.ask("g", "GetCommands")
            if interrupted:
                await chat.send("i", "Interrupt")
                end = await chat.read()
                assert end["request_id"] == "a" and end["response"]["Complete"]["interrupted"] is True
                assert (await chat.read())["request_id"] == "i"
            # Another prompt that came meanwhile goes first.
            await rpc.socket.send('{"type":"prompt","message":"mine"}')
            await rpc.wait("queue_update")
            go_on.set()
            await rpc.wait("agent_settled")
            if interrupted:
                assert len(world.script.requests) == 1
                return
            assert "ToolConfirmationRequest" in (await chat.read())["response"]
            approve = {"ToolConfirmationResponse": {"name": "note", "arguments": {}, "approved": True}}
            assert "ToolCall" in (await chat.ask("c", approve))["response"]
            kinds = [next(iter((await chat.read())["response"])) for _ in range(3)]
            assert kinds == ["ToolResult", "Stream", "Complete"] and len(done) == 1
            assert await chat.session_id() != rpc.ready["sessionId"]
            prompts = [request.system_prompt.startswith("Be brief.") for request in world.script.requests]
            assert prompts == [False, True, True]

    run(story, ["other", CALL, "done"], tmp_path, tools=[noting(done)], extension=extension)


def test_a_broken_extension_costs_one_request(tmp_path):
    def extension(agent):
        @agent.on("before_agent_start")
        def broken(event, ctx):
            raise RuntimeError("broken")

    async def story(world):
        async with world.chat() as client:
            first = await client.ask("a", {"Text": "hi"})
            second = await client.ask("b", {"Text": "hi"})
            assert first["request_id"] == "a" and second["request_id"] == "b"

    run(story, ["yes"], tmp_path, extension=extension)


def test_extensions_begin_when_a_client_is_there_to_hear_them(tmp_path):
    def extension(agent):
        agent.on("session_start", lambda event, ctx: ctx.ui.notify("welcome"))

    async def story(world):
        async with world.rpc() as rpc:
            assert (await rpc.wait("extension_ui_request"))["message"] == "welcome"

    run(story, ["yes"], tmp_path, extension=extension)
