"""The same client for programs without an event loop."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spindle.client import AgentCrashed, ClientClosed, CommandFailed, Event, RpcClient, SyncRpcClient

from .test_client import FAKE


def test_commands_runs_and_errors() -> None:
    with SyncRpcClient(FAKE, request_timeout=20) as agent:
        assert agent.get_state()["sessionId"] == "s1"
        assert agent.get_messages() == [{"role": "user"}]
        with pytest.raises(CommandFailed, match="Unknown command: nope"):
            agent.request("nope")
        with pytest.raises(TimeoutError):
            agent.request("silence", timeout=0.05)
        assert agent.prompt_and_wait("hi").text == "Hello"
        assert "".join(event.text_delta for event in agent.run("hi")) == "Hello"


def test_events_are_collected_from_the_call_on() -> None:
    with SyncRpcClient(FAKE) as agent:
        agent.get_state()
        events = agent.events()
        heard: list[str] = []
        agent.subscribe(lambda event: heard.append(event.type))
        agent.prompt_and_wait("hi")
        types = []
        for event in events:
            types.append(event.type)
            if event.type == "agent_settled":
                break
        assert types == heard


def test_tools_run_in_the_host() -> None:
    agent = SyncRpcClient(FAKE)
    threads = []

    @agent.tool
    def where() -> str:
        """Tell the thread."""
        threads.append(threading.current_thread())
        return "here"

    with agent:
        assert agent.prompt_and_wait("tool where {}").text == "here"
    assert threads[0] is not threading.main_thread()


def test_a_call_may_be_answered_by_hand_from_any_thread() -> None:
    with SyncRpcClient(FAKE) as agent:
        for event in agent.run("tool manual {}"):
            if event.type == "host_tool_call":
                agent.host_tool_result(event["id"], {"content": [{"type": "text", "text": "mine"}]})
        assert agent.get_last_assistant_text() == "Hello"


def test_dialogs_are_answered_by_a_handler_that_came_later() -> None:
    with SyncRpcClient(FAKE) as agent:
        agent.on_ui_request = lambda request: True
        assert agent.prompt_and_wait('dialog {"method": "confirm"}').text == '{"confirmed": true}'


def test_a_listener_that_waits_for_the_agent_is_told_so_instead_of_hanging() -> None:
    told: list[Exception] = []
    with SyncRpcClient(FAKE) as agent:

        def careless(event: Event) -> None:
            try:
                agent.get_state()
            except Exception as error:
                told.append(error)

        agent.prompt_and_wait("hi", on_event=careless)
    assert told and "cannot wait for the agent" in str(told[0])


def test_it_works_where_a_loop_is_running_as_in_a_notebook() -> None:
    async def cell() -> None:
        with SyncRpcClient(FAKE) as agent:
            assert agent.prompt_and_wait("hi").text == "Hello"

    asyncio.run(cell())


def test_several_threads_may_share_it() -> None:
    with SyncRpcClient(FAKE) as agent, ThreadPoolExecutor(8) as pool:
        names = [f"command_{number}" for number in range(40)]
        assert [answer["echo"] for answer in pool.map(agent.request, names)] == names


def test_nobody_is_left_waiting_when_it_is_closed() -> None:
    agent = SyncRpcClient(FAKE)
    agent.start()

    def ask() -> str:
        try:
            while True:
                agent.get_state()
        except ClientClosed:
            return "closed"

    with ThreadPoolExecutor(9) as pool:
        asking = [pool.submit(ask) for _ in range(8)]
        listening = pool.submit(list, agent.events())
        agent.get_state()
        agent.close()
        assert {call.result(50) for call in asking} == {"closed"}
        assert [event.type for event in listening.result(50)] in (["ready"], [])


def test_several_threads_may_close_it_at_once() -> None:
    agent = SyncRpcClient(FAKE)
    agent.start()
    with ThreadPoolExecutor(8) as pool:
        for closing in [pool.submit(agent.close) for _ in range(8)]:
            closing.result(50)
    assert "spindle-client" not in {thread.name for thread in threading.enumerate()}


def test_completion_and_help_know_every_command() -> None:
    agent = SyncRpcClient(FAKE)
    assert {"get_state", "prompt_and_wait", "tool", "run"} <= set(dir(agent))
    assert agent.get_state.__doc__ == RpcClient.get_state.__doc__


def test_a_crash_is_raised() -> None:
    with SyncRpcClient(FAKE) as agent, pytest.raises(AgentCrashed, match="out of cheese"):
        agent.prompt_and_wait("crash")


def test_a_program_that_does_not_exist_leaves_no_thread() -> None:
    with pytest.raises(FileNotFoundError):
        SyncRpcClient(["no-such-agent-anywhere"]).start()
    assert "spindle-client" not in {thread.name for thread in threading.enumerate()}


def test_it_may_be_closed_twice_and_not_used_after() -> None:
    agent = SyncRpcClient(FAKE)
    agent.start()
    agent.start()
    agent.close()
    agent.close()
    with pytest.raises(ClientClosed):
        agent.get_state()
