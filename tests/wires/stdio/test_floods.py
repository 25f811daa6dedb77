"""A client that does not read: the process neither grows nor becomes deaf, and it can be ended."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")

LIMIT_MIB = 200


def rss_mib(agent: AgentProcess) -> float:
    for line in Path(f"/proc/{agent.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def bytes_read(agent: AgentProcess) -> int:
    return _io(agent)["rchar"]


def _io(agent: AgentProcess) -> dict[str, int]:
    lines = Path(f"/proc/{agent.process.pid}/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def stuck_agent() -> AgentProcess:
    """An agent in mid-answer whose stdout is full."""
    agent = AgentProcess([reply(*["x" * 60_000] * 200)], read=False)
    agent.write(b'{"id":"p","type":"prompt","message":"go"}\n')
    end = time.monotonic() + 10
    while _io(agent)["wchar"] < 60_000:
        assert time.monotonic() < end
        time.sleep(0.01)
    return agent


def assert_stays_small(agent: AgentProcess, seconds: float = 1.5) -> None:
    """Watch the memory of a process that nobody reads from; there is nothing to wait for but time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert rss_mib(agent) < LIMIT_MIB
        time.sleep(0.05)


def frames(agent: AgentProcess) -> Iterator[dict]:
    for line in agent.process.stdout:
        yield json.loads(line)


def test_the_output_of_a_users_command_waits_in_the_command(tmp_path):
    command = "yes | head -c 300000000; echo > done"
    with AgentProcess(read=False, env={"TMPDIR": str(tmp_path)}) as agent:
        agent.write(json.dumps({"id": "b", "type": "bash", "command": command}).encode() + b"\n")
        before, deadline = -1, time.monotonic() + 30
        while bytes_read(agent) != before:
            assert time.monotonic() < deadline, "it goes on taking output from the command"
            before = bytes_read(agent)
            assert_stays_small(agent, 0.5)
        assert before < 50_000_000
        assert not (agent.cwd / "done").exists()
        agent.write(b'{"id":"k","type":"abort_bash"}\n')
        answered = [frame["id"] for frame in frames_until(agent, 2)]
        assert sorted(answered) == ["b", "k"]


def frames_until(agent: AgentProcess, responses: int) -> list[dict]:
    """Read on until so many responses have come; return them."""
    found = []
    for frame in frames(agent):
        if frame["type"] == "response":
            found.append(frame)
            if len(found) == responses:
                break
    return found


def test_short_questions_with_long_answers_are_asked_one_at_a_time():
    """One read of stdin holds thousands of commands; their answers together would be gigabytes."""
    text = "x" * 500_000
    with AgentProcess([reply(text)], read=False) as agent:
        agent.write(b'{"id":"p","type":"prompt","message":"go"}\n')
        for frame in frames(agent):
            if frame["type"] == "agent_settled":
                break
        count = 600
        agent.write(b'{"type":"get_messages"}\n' * count + b'{"id":"end","type":"get_state"}\n')
        assert_stays_small(agent)
        answers = frames_until(agent, count + 1)
        assert answers[-1]["id"] == "end"
        assert all(len(a["data"]["messages"][1]["content"][0]["text"]) == 500_000 for a in answers[:-1])


def test_progress_of_a_tool_is_left_out_but_its_result_is_not():
    command = "for i in $(seq 40); do seq 1000; sleep 0.05; done; echo the end"
    with AgentProcess([reply(call("bash", {"command": command})), reply("ok")], read=False) as agent:
        agent.write(b'{"id":"p","type":"prompt","message":"go"}\n')
        assert_stays_small(agent, 0.5)
        for frame in frames(agent):
            if frame["type"] == "tool_execution_end":
                assert "the end" in frame["result"]["content"][0]["text"]
            if frame["type"] == "agent_settled":
                break


@pytest.mark.parametrize("first", ["eof", "signal"])
def test_a_second_signal_ends_what_ends_too_slowly(first):
    with stuck_agent() as agent:
        start = time.monotonic()
        if first == "eof":
            agent.process.stdin.close()
        else:
            agent.process.send_signal(signal.SIGTERM)
        while agent.process.poll() is None and time.monotonic() - start < 20:
            time.sleep(0.02)
            agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(1) == 143


def test_a_signal_ends_a_process_that_nobody_reads():
    with stuck_agent() as agent:
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(20) == 143
