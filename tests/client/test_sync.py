"""The same client for programs without an event loop."""

import threading

import pytest

from spindle.client import AgentCrashed, ClientClosed, CommandFailed, SyncRpcClient

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
