"""Several things at once: interrupts and confirmations, two clients on one session, sessions that end while joined."""

import asyncio
import json

import aiohttp
import pytest
from websockets.exceptions import ConnectionClosed

from spindle.shapes.messages import text_of

from .inside import listeners, run, tool, until

ASK = {"ask_before_tool_execution": True}
CALL = {"calls": [{"name": "note", "arguments": {"n": 1}}]}
APPROVE = {"ToolConfirmationResponse": {"name": "note", "arguments": {}, "approved": True}}
GATED = {"text": ["one ", {"gate": "go"}, "two"]}


def noting(done):
    async def note(arguments):
        done.append(arguments)
        return "noted"

    return tool("note", note)


def kind(frame):
    return next(iter(frame["response"]))


def said(request):
    """What the model was told by anybody, itself included."""
    return [text_of(message.content) for message in request.messages]


async def closed(client):
    with pytest.raises(ConnectionClosed) as caught:
        while True:
            await client.read()
    return caught.value.rcvd.code


# -- interrupts and confirmations -----------------------------------------------------------------------


def test_a_request_and_its_interrupt_in_one_breath(tmp_path):
    async def story(world):
        async with world.chat() as client:
            await client.send("a", {"Text": "go"}, stream=True)
            await client.send("i", "Interrupt")
            end = await client.read()
            assert end["request_id"] == "a" and end["response"]["Complete"]["interrupted"] is True
            assert (await client.read())["request_id"] == "i"
            assert (await client.ask("b", {"Text": "again"}))["response"] == {"Text": "fine"}

    run(story, [{"text": "late", "delay": 20, "match": "^go$"}, "fine"], tmp_path)


def test_an_answer_that_crosses_an_interrupt_runs_nothing(tmp_path):
    done = []

    async def story(world):
        async with world.chat() as client:
            asked = await client.ask("a", {"Text": "go"}, config=ASK, stream=True)
            assert kind(asked) == "ToolConfirmationRequest"
            await client.send("i", "Interrupt")
            await client.send("c", APPROVE)
            frames = {frame["request_id"]: frame for frame in [await client.read() for _ in range(3)]}
            assert frames["a"]["response"]["Complete"]["interrupted"] is True
            assert frames["c"]["error"] == "No pending tool confirmation found"
            assert (await client.ask("b", {"Text": "again"}))["response"] == {"Text": "fine"}
            assert done == []

    run(story, [CALL, "fine"], tmp_path, tools=[noting(done)])


def test_two_answers_to_one_question(tmp_path):
    async def story(world):
        async with world.chat() as client:
            await client.ask("a", {"Text": "go"}, config=ASK)
            await client.send("c1", APPROVE)
            await client.send("c2", APPROVE)
            frames = {frame["request_id"]: frame for frame in [await client.read() for _ in range(2)]}
            assert frames["c2"]["error"] == "No pending tool confirmation found"
            assert frames["a"]["response"] == {"Text": "done"}

    run(story, [CALL, "done"], tmp_path, tools=[noting([])])


def test_a_yes_sent_twice_does_not_allow_the_next_call(tmp_path):
    done = []
    both = {"calls": [{"name": "note", "arguments": {"n": 1}}, {"name": "note", "arguments": {"n": 2}}]}

    def approve(n):
        return {"ToolConfirmationResponse": {"name": "note", "arguments": {"n": n}, "approved": True}}

    async def story(world):
        async with world.chat() as client:
            await client.ask("a", {"Text": "go"}, config=ASK)
            second = await client.ask("c1", approve(1))
            assert second["response"]["ToolConfirmationRequest"]["arguments"] == {"n": 2}
            again = await client.ask("c2", approve(1))
            assert again["request_id"] == "c2" and "validation failed" in again["error"]
            assert (await client.ask("c3", approve(2)))["response"] == {"Text": "done"}
            assert done == [{"n": 1}, {"n": 2}]

    run(story, [both, "done"], tmp_path, tools=[noting(done)])


def test_one_call_approved_and_one_denied_ends_the_request(tmp_path):
    done = []
    both = {"calls": [{"name": "note", "arguments": {"n": 1}}, {"name": "note", "arguments": {"n": 2}}]}

    async def story(world):
        async with world.chat() as client:
            await client.ask("a", {"Text": "go"}, config=ASK)
            second = await client.ask("c", APPROVE)
            assert second["response"]["ToolConfirmationRequest"]["arguments"] == {"n": 2}
            deny = {"name": "note", "arguments": {}, "approved": False, "reason": "once is enough"}
            end = await client.ask("d", {"ToolConfirmationResponse": deny})
            assert end["response"] == {"Text": "Tool 'note' execution was not approved by user"}
            assert done == [{"n": 1}] and len(world.script.requests) == 1, "the model is not asked again"
            await client.ask("b", {"Text": "and?"})
            assert "once is enough" in str(world.script.requests[1].messages)

    run(story, [both, "fine"], tmp_path, tools=[noting(done)])


def test_clearing_while_a_confirmation_is_open_and_requests_wait(tmp_path):
    async def story(world):
        async with world.chat() as client:
            # The model holds the run, so that a request can be queued before the tool is asked for.
            await client.send("a", {"Text": "go"}, config=ASK, stream=True)
            await world.script.reached("there")
            await client.send("q", {"Text": "queued"})
            await client.ask("g", "GetCommands")
            world.script.release("there")
            assert kind(await client.read()) == "ToolConfirmationRequest"
            await client.send("x", "ClearContext")
            frames = [await client.read() for _ in range(3)]
            assert frames[0]["response"]["Complete"]["interrupted"] is True
            assert [f["request_id"] for f in frames] == ["a", "x", "q"] and frames[2]["response"] == {"Text": "queued?"}
            assert said(world.script.requests[1]) == ["queued"], "what came before is forgotten"

    first = {"text": [{"gate": "there"}], "calls": [{"name": "note"}]}
    run(story, [first, "queued?"], tmp_path, tools=[noting([])])


def test_requests_around_clear_context_are_served_in_order(tmp_path):
    async def story(world):
        async with world.chat() as client:
            for id, input in (("a", {"Text": "1"}), ("x", "ClearContext"), ("b", {"Text": "2"})):
                await client.send(id, input)
            frames = {frame["request_id"]: frame for frame in [await client.read() for _ in range(3)]}
            assert frames["x"]["error"] == "Cannot clear context while model is running"
            assert frames["a"]["error"] is None and frames["b"]["error"] is None

    run(story, ["yes"], tmp_path)


# -- two clients on one session -------------------------------------------------------------------------


def test_the_newer_connection_takes_over_in_mid_run(tmp_path):
    done, working = [], asyncio.Event()

    async def clings(arguments):
        working.set()
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.2)  # time enough for the next client to send its request

    async def story(world):
        async with world.chat() as one:
            id = await one.session_id()
            await one.send("a", {"Text": "go"}, config={"prompt": "Be the first."})
            await working.wait()
            async with world.chat(f"?session={id}") as two:
                # Sent at once: it must neither meet the old run nor be stopped with it, and must be asked for tools.
                asked = await two.ask("b", {"Text": "mine"}, config=ASK)
                assert kind(asked) == "ToolConfirmationRequest"
                assert (await two.ask("c", APPROVE))["response"] == {"Text": "done"}
                assert done == [{"n": 1}]
                assert "Be the first." not in world.script.requests[1].system_prompt
            assert await closed(one) == 4001

    steps = [{"calls": [{"name": "clings"}]}, CALL, "done"]
    run(story, steps, tmp_path, tools=[noting(done), tool("clings", clings)])


def test_of_many_connections_the_newest_has_the_session(tmp_path):
    async def story(world):
        async with world.chat() as first:
            await first.ask("a", {"Text": "hi"})
            query = f"?session={await first.session_id()}"
            async with world.chat(query) as two, world.chat(query) as three, world.chat(query) as four:
                assert (await four.ask("z", {"Text": "hi"}))["response"] == {"Text": "yes"}
                assert [await closed(client) for client in (first, two, three)] == [4001] * 3
        assert len(world.agents) == 1

    run(story, ["yes"], tmp_path)


def test_a_chat_client_does_not_stop_the_run_of_another_client(tmp_path):
    async def story(world):
        async with world.rpc() as rpc:
            query = f"?session={rpc.ready['sessionId']}"
            await rpc.call("prompt", message="hi")
            await world.script.reached("go")
            async with world.chat(query) as chat:
                assert (await chat.ask("i", "Interrupt"))["error"] == "No active model output to interrupt"
                assert (await chat.ask("x", "ClearContext"))["error"] == "Cannot clear context while model is running"
                await chat.send("b", {"Text": "after you"})
                await chat.ask("g", "GetCommands")
            # It left with a request in the queue, which goes with it; the other's run does not.
            await until(lambda: len(world.server._peers) == 1)
            world.script.release("go")
            end = await rpc.wait("agent_end")
            assert end["messages"][-1]["stopReason"] == "stop"
            assert len(world.script.requests) == 1

    run(story, [GATED, "second"], tmp_path)


def test_a_chat_request_waits_for_the_run_of_another_client(tmp_path):
    async def story(world):
        async with world.rpc() as rpc, world.chat(f"?session={rpc.ready['sessionId']}") as chat:
            await rpc.call("prompt", message="hi")
            await world.script.reached("go")
            await chat.send("b", {"Text": "after you"}, stream=True)
            await chat.ask("g", "GetCommands")
            world.script.release("go")
            frames = [await chat.read(), await chat.read()]
            assert [kind(frame) for frame in frames] == ["Stream", "Complete"], "nothing of the other's answer"
            assert frames[0]["response"] == {"Stream": "second"}

    run(story, [GATED, "second"], tmp_path)


def test_approvals_of_an_rpc_client_stay_in_force(tmp_path):
    done = []

    async def story(world):
        async with world.rpc() as rpc, world.chat(f"?session={rpc.ready['sessionId']}") as chat:
            await rpc.call("set_approval", tools=True)
            asked = await chat.ask("a", {"Text": "go"})
            assert kind(asked) == "ToolConfirmationRequest" and done == [], "the one whose request it is"
            assert (await chat.ask("c", APPROVE))["response"] == {"Text": "done"}
            # And after the chat client has gone.
            await chat.ask("e", {"Instruction": {"command": "exit"}})
            assert await closed(chat) == 1000
            await rpc.call("prompt", message="once more")
            dialog = await rpc.wait("extension_ui_request")
            assert dialog["method"] == "confirm" and dialog["title"] == "Allow note?"

    run(story, [CALL, "done", CALL, "done"], tmp_path, tools=[noting(done)])


def test_a_chat_client_alone_is_asked_what_another_client_wanted(tmp_path):
    done = []

    async def story(world):
        async with world.rpc() as rpc:
            await rpc.call("set_approval", tools=True, maxTurns=2)
            id = rpc.ready["sessionId"]
        async with world.chat(f"?session={id}") as chat:
            asked = await chat.ask("a", {"Text": "go"})
            assert kind(asked) == "ToolConfirmationRequest" and done == []
            asked = await chat.ask("c", APPROVE)
            assert len(done) == 1 and kind(asked) == "ToolConfirmationRequest"
            asked = await chat.ask("c", APPROVE)
            assert asked["response"]["TurnConfirmationRequest"]["max_turns"] == 2
            end = await chat.ask("t", {"TurnConfirmationResponse": {"confirmed": False}})
            assert end["request_id"] == "a" and end["response"] == {"Text": "对话已结束，未重置轮次。"}
            assert end["error"] is None and len(world.script.requests) == 2

    run(story, [CALL, CALL, "done"], tmp_path, tools=[noting(done)])


def test_approvals_set_in_mid_request_do_not_disarm_the_chat_client(tmp_path):
    done = []

    async def story(world):
        async with world.rpc() as rpc, world.chat(f"?session={rpc.ready['sessionId']}") as chat:
            await chat.send("a", {"Text": "go"}, config=ASK)
            assert "ToolConfirmationRequest" in (await chat.read())["response"]
            await rpc.call("set_approval", tools=True)
            await rpc.call("set_approval", tools=False)
            await chat.send("c", APPROVE)
            # The next call is asked for as the first one was.
            assert "ToolConfirmationRequest" in (await chat.read())["response"]
            assert len(done) == 1
            await rpc.call("set_approval", tools=True)
            await chat.send("c", APPROVE)
            assert (await chat.read())["response"] == {"Text": "done"}

    run(story, [CALL, CALL, "done"], tmp_path, tools=[noting(done)])


def test_what_a_chat_client_asks_for_does_not_outlive_its_request(tmp_path):
    config = {"prompt": "Speak like a sailor.", "max_tokens": 77, **ASK}

    async def story(world):
        async with world.rpc() as rpc, world.chat(f"?session={rpc.ready['sessionId']}") as chat:
            await chat.ask("a", {"Text": "hi"}, config=config, use_tools=False)
            assert world.script.requests[0].system_prompt.startswith("Speak like a sailor.")
            assert world.script.requests[0].tools == []
            await rpc.call("prompt", message="hi")
            await rpc.wait("agent_settled")
            assert not world.script.requests[1].system_prompt.startswith("Speak")
            assert [tool.name for tool in world.script.requests[1].tools] == ["note"]

    run(story, ["yes"], tmp_path, tools=[noting([])])


def test_a_session_replaced_under_a_chat_client(tmp_path):
    async def story(world):
        async with world.rpc() as rpc, world.chat(f"?session={rpc.ready['sessionId']}") as chat:
            await chat.send("a", {"Text": "go"}, stream=True)
            assert (await chat.read())["response"] == {"Stream": "one "}
            assert (await rpc.call("new_session"))["success"]
            assert (await chat.read())["response"] == {"Complete": {"token_usage": None, "interrupted": True}}
            assert await chat.session_id() != rpc.ready["sessionId"]
            assert (await chat.ask("b", {"Text": "hello"}))["response"] == {"Text": "fresh"}
            assert said(world.script.requests[1]) == ["hello"]
            # Its old session is free again, the new one still has exactly one chat client.
            new = await chat.session_id()
            async with world.chat(f"?session={new}") as other:
                assert await closed(chat) == 4001
                assert (await other.ask("c", {"Text": "hello"}))["response"] == {"Text": "fresh"}
        assert len(world.agents) == 1

    run(story, [GATED, "fresh"], tmp_path)


# -- sessions that end ----------------------------------------------------------------------------------


def test_a_session_that_is_just_ending_is_opened_again(tmp_path):
    async def story(world):
        async with world.chat() as client:
            await client.ask("a", {"Text": "remember me"})
            id = await client.session_id()
        (agent,) = world.agents
        closing, hold = asyncio.Event(), asyncio.Event()
        close = agent.close

        async def slow_close():
            closing.set()
            await hold.wait()
            await close()

        agent.close = slow_close
        await closing.wait()  # its time is over (keep_seconds=0), and it still has the file
        joining = asyncio.create_task(_history(world, id))
        await asyncio.sleep(0.05)
        hold.set()
        assert "remember me" in await joining
        assert len(world.agents) == 2

    run(story, ["yes"], tmp_path, keep_seconds=0)


async def _history(world, id):
    async with world.chat(f"?session={id}") as client:
        return (await client.ask("h", {"Instruction": {"command": "history"}}))["response"]["Text"]


def test_two_clients_open_one_stored_session_together(tmp_path):
    async def story(world):
        async with world.chat() as client:
            await client.ask("a", {"Text": "hi"})
            id = await client.session_id()
        await until(lambda: len(world.pool._live) == 0 and not world.pool._closing)
        async with world.rpc(f"?session={id}") as one, world.rpc(f"?session={id}") as two:
            assert one.ready["sessionId"] == two.ready["sessionId"] == id
        assert len(world.agents) == 2

    run(story, ["yes"], tmp_path, keep_seconds=0)


def test_only_so_many_sessions_are_kept(tmp_path):
    async def story(world):
        for _ in range(5):
            async with world.chat() as client:
                await client.ask("a", {"Text": "hi"})
        await until(lambda: len(world.pool._live) == 2)
        assert not any(live.clients for live in world.pool)

    run(story, ["yes"], tmp_path, max_kept=2)


def test_a_client_that_leaves_while_its_agent_is_made_leaves_nothing_behind(tmp_path):
    async def story(world):
        world.opening.clear()
        async with world.chat(close_timeout=0.1):  # no one answers its farewell
            await until(lambda: world.server._peers)
        world.opening.set()
        await until(lambda: not world.server._peers and not world.pool._live)

    run(story, ["yes"], tmp_path, keep_seconds=0)


def test_a_client_that_leaves_while_it_opens_sessions_is_counted_nowhere(tmp_path):
    async def story(world):
        async with world.rpc() as client:
            stored = client.ready["sessionId"]
            await client.call("prompt", message="hi")
            await client.wait("agent_settled")
        await until(lambda: not world.pool._live)
        async with world.rpc() as client:
            world.opening.clear()
            for frame in ({"type": "open_session"}, {"type": "get_state", "sessionId": stored}):
                await client.socket.send(json.dumps(frame))
            await until(lambda: world.pool._opening == 2)
        world.opening.set()
        await until(lambda: not world.pool._opening and not world.server._peers)
        await until(lambda: not any(live.clients for live in world.pool))

    run(story, ["yes"], tmp_path, keep_seconds=0)


def test_nothing_is_left_after_a_busy_connection(tmp_path):
    async def story(world):
        async with world.chat() as client:
            await client.ask("warm", {"Text": "up"})
        await until(lambda: not world.server._peers)
        tasks, before = len(asyncio.all_tasks()), listeners(world.agents[0])
        for ending in ("close", "mid-run", "question"):
            async with world.chat(f"?session={world.agents[0].session.id}") as client:
                if ending == "mid-run":
                    await client.ask("a", {"Text": "gated"}, stream=True)
                elif ending == "question":
                    await client.ask("a", {"Text": "call"}, config=ASK)
                    await client.send("i", "Interrupt")
        await until(lambda: not world.server._peers)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)  # the disk may take its time
        assert listeners(world.agents[0]) == before

    steps = [{**GATED, "match": "gated"}, {**CALL, "match": "call"}, "yes"]
    run(story, steps, tmp_path, tools=[noting([])])


def test_a_request_while_the_run_of_another_client_ends_keeps_its_own_wishes(tmp_path):
    """It must not become part of that run: its confirmations would not be asked for."""
    done, ending, go = [], asyncio.Event(), asyncio.Event()

    def extension(agent):
        @agent.on("agent_end")
        def hold(event, ctx):
            loop.call_soon_threadsafe(ending.set)
            asyncio.run_coroutine_threadsafe(go.wait(), loop).result()

    async def story(world):
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with world.rpc() as rpc, world.chat(f"?session={rpc.ready['sessionId']}") as chat:
            await rpc.call("prompt", message="hi")
            await ending.wait()
            await chat.send("c", {"Text": "note it"}, config=ASK)
            assert not done
            go.set()
            assert kind(await chat.read()) == "ToolConfirmationRequest" and not done
            await chat.send("y", APPROVE)
            while kind(await chat.read()) != "Text":
                pass
            assert done == [{"n": 1}]

    loop = None
    run(story, ["one", CALL, "noted it"], tmp_path, tools=[noting(done)], extension=extension)


def test_over_http_a_command_is_not_waited_for_behind_the_run_of_another_client(tmp_path):
    def extension(agent):
        @agent.command("hi")
        async def hi(args, ctx):
            pass

    async def story(world):
        async with world.rpc() as rpc, aiohttp.ClientSession() as http:
            await rpc.call("prompt", message="long")
            await world.script.reached("go")
            address = f"http://{world.address}/v1/sessions/{rpc.ready['sessionId']}/prompt?wait=true"
            async with http.post(address, json={"message": "/hi"}) as answer:
                assert answer.status == 200 and (await answer.json())["stopReason"] == "handled"
            assert world.agents[0].busy
            world.script.release("go")

    run(story, [GATED], tmp_path, extension=extension)
