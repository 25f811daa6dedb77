"""What a model's server does wrong, seen from a client: nothing runs on half a sentence, retries follow facts."""

from pathlib import Path

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, failure, raw, reply, sse

QUICK = {"retry": {"baseDelayMs": 1}}


def result_text(frames) -> str:
    end = next(frame for frame in frames if frame["type"] == "tool_execution_end")
    assert end["isError"]
    return end["result"]["content"][0]["text"]


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages"])
@pytest.mark.parametrize(
    ("tool", "cut"),
    [
        ("bash", '{"command": "touch ran; rm -rf build/out'),
        ("write", '{"path": "kept.txt", "content": "short'),
        ("bash", '{"command": "touch ran"'),
        ("bash", '{"command": "touch ran"} x'),
    ],
)
def test_a_call_whose_arguments_are_cut_does_not_run(api, tool, cut):
    with AgentProcess([reply(call(tool, [cut[:9], cut[9:]])), reply("sorry")], api=api) as agent:
        (Path(agent.cwd) / "kept.txt").write_text("long text")
        frames = agent.run("go")
        assert "not complete JSON" in result_text(frames)
        assert not (Path(agent.cwd) / "ran").exists()
        assert (Path(agent.cwd) / "kept.txt").read_text() == "long text"


def test_no_arguments_at_all_are_none():
    with AgentProcess([reply(call("ls", [""])), reply("ok")], args=["--tools", "ls"]) as agent:
        end = next(frame for frame in agent.run("go") if frame["type"] == "tool_execution_end")
        assert not end["isError"]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 507, 522, 524, 529])
def test_a_passing_status_is_tried_again(status):
    with AgentProcess([failure(status, "later"), reply("ok")], settings=QUICK) as agent:
        assert any(frame["type"] == "auto_retry_start" for frame in agent.run("go"))


@pytest.mark.parametrize(
    ("status", "text"),
    [(401, "rate limit of wrong keys"), (400, "at most 4500 tokens, timeout"), (403, "overloaded"), (404, "503")],
)
def test_words_do_not_make_a_refusal_a_passing_trouble(status, text):
    with AgentProcess([failure(status, text)], settings=QUICK) as agent:
        frames = agent.run("go")
        assert not any(frame["type"] == "auto_retry_start" for frame in frames)
        assert frames[-1]["stopReason"] == "error" and str(status) in frames[-1]["errorMessage"]


@pytest.mark.parametrize("url", ["http://no-such-host.invalid/v1", "nonsense"])
def test_an_address_that_leads_nowhere_is_tried_once(url):
    with AgentProcess(settings=QUICK, url=url) as agent:
        assert not any(frame["type"] == "auto_retry_start" for frame in agent.run("go"))


def test_the_server_says_how_long_to_wait():
    steps = [failure(429, "slow down", {"retry-after": "0.3"}), reply("ok")]
    with AgentProcess(steps, settings=QUICK) as agent:
        (start,) = [frame for frame in agent.run("go") if frame["type"] == "auto_retry_start"]
        assert start["delayMs"] == 300


def test_a_wait_beyond_the_cap_ends_the_retrying():
    with AgentProcess([failure(429, "slow down", {"retry-after": "7200"})], settings=QUICK) as agent:
        frames = agent.run("go")
        assert not any(frame["type"] == "auto_retry_start" for frame in frames)
        assert "asks to wait 7200 s" in frames[-1]["errorMessage"]


def test_a_stream_of_pings_ends():
    pings = [sse(b": ping\n\n")] * 200
    with AgentProcess([raw(*pings)], settings={"runaway": {"stallSeconds": 0.001}, **QUICK}) as agent:
        frames = agent.run("go")
        assert frames[-1]["stopReason"] == "stalled" and "no progress" in frames[-1]["errorMessage"]


def test_an_answer_without_end_ends():
    with AgentProcess([reply(*["x" * 500] * 50)], settings={"runaway": {"maxAnswerChars": 5000}}) as agent:
        assert agent.run("go")[-1]["stopReason"] == "maxAnswer"
