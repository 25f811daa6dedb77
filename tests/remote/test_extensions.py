"""Extensions under the remote server: their commands, their dialogs, their beginning."""

import asyncio

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
