"""Chains of models as users have them: a process on pipes, a session file, servers that are down."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import MockModel, failure, reply

CHAIN = ("--fallback", "mock/m2")


@contextmanager
def unreachable() -> Iterator[str]:
    """An address that accepts no connection and refuses none, as one without a network does."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"127.0.0.1:{full.getsockname()[1]}"


def test_a_client_is_told_and_the_session_goes_on_with_the_first_model(tmp_path):
    steps = [failure(402, "pay"), reply("two"), reply("three")]
    with AgentProcess(steps, args=CHAIN, session=True, base=tmp_path) as agent:
        agent.call("prompt", message="go")
        settled = agent.wait("agent_settled")
        assert (settled["stopReason"], [r.body["model"] for r in agent.mock.requests]) == ("end", ["m1", "m2"])
        told = [f["type"] for f in agent.frames if f["type"].startswith(("retry_fallback", "notice", "turn", "agent"))]
        turn = ["turn_start", "turn_end"]
        assert told == [
            *("agent_start", *turn, "retry_fallback_applied", "notice"),
            *("turn_start", "retry_fallback_succeeded", "turn_end", "agent_end", "agent_settled"),
        ]
        stats = agent.call("get_session_stats")["data"]
        (switch,) = stats["fallbacks"]
        assert (switch["from"], switch["to"], switch["role"], switch["cause"]) == (
            "mock/m1",
            "mock/m2",
            "main",
            "quota",
        )
        state = agent.call("get_state")["data"]
        assert state["model"]["id"] == "m1"
        path = state["sessionFile"]
    with AgentProcess([reply("again")], args=("--session", path), model=None, session=True, base=tmp_path) as agent:
        assert agent.call("get_state")["data"]["model"]["id"] == "m1"
        assert agent.call("get_session_stats")["data"]["fallbacks"] == stats["fallbacks"]


def test_a_request_has_a_chain_of_its_own():
    with AgentProcess([failure(402, "pay"), reply("two"), failure(402, "pay")]) as agent:
        agent.call("prompt", message="go", fallback=["mock/m2"])
        agent.wait("retry_fallback_succeeded")
        agent.wait("agent_settled")
        agent.call("prompt", message="go")
        assert agent.wait("agent_settled")["stopReason"] == "error"


@pytest.mark.parametrize(("dialect", "keys"), [("omp", {"type", "from", "to", "role"}), ("pi-1.5", None)])
def test_neighbours_get_what_they_know(dialect, keys):
    with AgentProcess([failure(402, "pay"), reply("two")], args=(*CHAIN, "--dialect", dialect)) as agent:
        agent.call("prompt", message="go")
        agent.wait(lambda f: f["type"] == "message_end" and f["message"].get("model") == "m2")
        (applied,) = [set(f) for f in agent.frames if f["type"] == "retry_fallback_applied"] or [None]
        assert applied == keys


@pytest.mark.parametrize(("down", "cause"), [("refused", "connection"), ("silent", "resting")])
def test_local_first_when_the_server_on_this_machine_is_down(down, cause):
    """A silent one is asked for its models at the start, for a second, and not waited for once more."""
    with unreachable() as silent:
        env = {"OLLAMA_HOST": "127.0.0.1:9" if down == "refused" else silent}
        settings = {"fallback": {"ollama/*": ["mock/m1"]}}
        with AgentProcess([reply("from afar")], model="ollama/qwen3", settings=settings, env=env) as agent:
            agent.call("get_state")
            agent.call("prompt", message="go")
            assert agent.wait("retry_fallback_applied")["cause"] == cause
            agent.wait("retry_fallback_succeeded")
            assert not [f for f in agent.frames if f["type"] == "auto_retry_start"]


def test_hosted_first_when_there_is_no_network():
    """Nothing answers and nothing is refused: a connection is waited for 1.5 s, not for 30."""
    with unreachable() as silent, MockModel([reply("from here")]) as local:
        env = {"OLLAMA_HOST": f"127.0.0.1:{local.port}"}
        settings = {"fallback": {"mock/*": ["ollama/qwen3"]}}
        with AgentProcess(url=f"http://{silent}/v1", settings=settings, env=env) as agent:
            agent.call("prompt", message="go")
            assert agent.wait("retry_fallback_applied", timeout=15)["cause"] == "connection"
            assert agent.wait("retry_fallback_succeeded")["model"] == "ollama/qwen3"


def test_a_chain_with_an_unknown_model_is_refused_at_the_start():
    with (
        pytest.raises(AssertionError, match='fallback: Model "nonsense-9000" not found'),
        AgentProcess(args=("--fallback", "mock/m2,nonsense-9000")) as agent,
    ):
        agent.wait("agent_settled")
