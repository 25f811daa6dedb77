"""What was told is saved: processes killed with messages waiting, slow disks, many processes on one new file."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import images
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, failure, gate, pause, reply

PIXEL = {"type": "image", "data": images.PIXEL, "mimeType": "image/png"}
LONG = [reply("begins", pause(30), "ends")]
NO_EXTENSION = "def extension(agent): pass"
SLOW_INPUT = """
import asyncio

def extension(agent):
    @agent.on("input")
    async def look(event, ctx):
        if "slow" in event.text and not agent_is_back():
            await asyncio.sleep(60)

def agent_is_back():
    import os
    return os.path.exists("back")
"""


def opened(base: Path, steps: Any = (), *args: str) -> AgentProcess:
    return AgentProcess(steps, base=base, session=True, args=["--session", str(base / "s.jsonl"), *args])


def side_files(base: Path) -> list[str]:
    return sorted(path.name for path in base.glob("s.jsonl*") if not path.name.endswith(".lock"))


def users(request: Any) -> list[Any]:
    return [message["content"] for message in request.body["messages"] if message["role"] == "user"]


def killed_with_messages(base: Path) -> None:
    with opened(base, LONG) as agent:
        agent.prompt("first")
        agent.wait_delta("begins")
        assert agent.call("steer", message="s1")["success"]
        assert agent.call("follow_up", message="f1", images=[PIXEL])["success"]
        assert agent.call("steer", message="s2")["success"]
        assert agent.prompt("p", streamingBehavior="followUp")["success"]
        agent.kill()


def test_messages_that_wait_survive_a_kill_in_order_with_images_and_are_delivered_with_the_next_prompt(tmp_path):
    killed_with_messages(tmp_path)
    kept = tmp_path / "s.jsonl.queue"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with opened(tmp_path, [reply("ok")] * 6) as agent:
        state = agent.data("get_state")
        assert state["queue"] == {"steering": ["s1", "s2"], "followUp": ["f1", "p"]}
        assert state["pendingMessageCount"] == 4 and not state["isStreaming"]
        agent.run("next")
        sent = json.dumps(users(agent.mock.requests[-1]))
        places = [sent.index(f'"{text}"') for text in ("first", "next", "s1", "s2", "f1", "p")]
        assert places == sorted(places)
        assert images.PIXEL in sent
        assert agent.data("get_state")["pendingMessageCount"] == 0
        assert side_files(tmp_path) == ["s.jsonl"]
        agent.kill()
    with opened(tmp_path) as agent:
        assert agent.data("get_state")["pendingMessageCount"] == 0


def test_the_kept_file_disturbs_neither_listing_nor_check(tmp_path):
    killed_with_messages(tmp_path)
    check = subprocess.run(
        [sys.executable, "-m", "spindle", "sessions", "check", str(tmp_path / "s.jsonl")], capture_output=True
    )
    assert check.returncode == 0, check.stdout
    from spindle.sessions.index import list_sessions

    assert [Path(info.path).name for info in list_sessions(tmp_path / "work", tmp_path)] == ["s.jsonl"]


def test_check_agrees_with_a_line_that_the_next_prompt_has_mended(tmp_path):
    path = tmp_path / "s.jsonl"

    def checked():
        done = subprocess.run([sys.executable, "-m", "spindle", "sessions", "check", str(path)], capture_output=True)
        return done.returncode, done.stdout.decode()

    with opened(tmp_path, [reply("one")]) as agent:
        agent.run("first")
    path.write_bytes(path.read_bytes()[:-30])  # as a full disk leaves it
    code, said = checked()
    assert code == 1 and "torn line" in said
    with opened(tmp_path, [reply("two")]) as agent:
        agent.run("second")
    code, said = checked()
    assert code == 0, said
    assert all(json.loads(line) for line in path.read_bytes().splitlines()) and b'"second"' in path.read_bytes()


def test_clear_queue_removes_what_a_killed_process_had_kept(tmp_path):
    killed_with_messages(tmp_path)
    with opened(tmp_path) as agent:
        assert agent.data("clear_queue")["steering"] == ["s1", "s2"]
        assert side_files(tmp_path) == ["s.jsonl"]
        agent.kill()
    with opened(tmp_path) as agent:
        assert agent.data("get_state")["pendingMessageCount"] == 0


def test_a_message_that_is_in_the_session_is_not_offered_again(tmp_path):
    """As after a kill between the delivery of a message and the change of the kept file."""
    killed_with_messages(tmp_path)
    kept = tmp_path / "s.jsonl.queue"
    before = kept.read_bytes()
    with opened(tmp_path, [reply("one", pause(30))]) as agent:
        agent.prompt("next")
        agent.wait_delta("one")  # `s1` is delivered
        agent.kill()
    kept.write_bytes(before)
    with opened(tmp_path) as agent:
        assert agent.data("get_state")["queue"] == {"steering": ["s2"], "followUp": ["f1", "p"]}


def test_messages_wait_where_they_were_sent_when_the_session_is_left_and_entered_again(tmp_path):
    killed_with_messages(tmp_path)
    with opened(tmp_path, [reply("ok")] * 3) as agent:
        first = agent.data("get_state")["sessionFile"]
        agent.data("clone")
        assert agent.data("get_state")["pendingMessageCount"] == 0
        copy = agent.data("get_state")["sessionFile"]
        assert copy != first and not os.path.exists(f"{copy}.queue")
        agent.data("switch_session", sessionPath=first)
        assert agent.wait("queue_update")["steering"] == ["s1", "s2"]
        assert agent.data("get_state")["queue"] == {"steering": ["s1", "s2"], "followUp": ["f1", "p"]}
        agent.data("switch_session", sessionPath=first)  # the file that is open
        assert agent.data("get_state")["queue"] == {"steering": ["s1", "s2"], "followUp": ["f1", "p"]}


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"sessionId":"other","waiting":[]}', b"\xff\xfe"])
def test_a_kept_file_that_is_something_else_is_no_reason_not_to_open(tmp_path, garbage):
    killed_with_messages(tmp_path)
    (tmp_path / "s.jsonl.queue").write_bytes(garbage)
    with opened(tmp_path) as agent:
        assert agent.data("get_state")["pendingMessageCount"] == 0


def test_a_prompt_and_a_message_that_hooks_still_look_at_survive_a_kill(tmp_path):
    extension = tmp_path / "slow.py"
    extension.write_text(SLOW_INPUT)
    with opened(tmp_path, [reply("ok")], "-e", str(extension)) as agent:
        agent.run("first")
        assert agent.prompt("slow prompt")["success"]
        assert agent.call("steer", message="slow steer")["success"]
        agent.kill()
    (tmp_path / "work" / "back").touch()
    with opened(tmp_path, [reply("ok")] * 4, "-e", str(extension)) as agent:
        agent.run("next")
        sent = json.dumps(users(agent.mock.requests[-1]))
        assert "slow prompt" in sent and "slow steer" in sent
    assert side_files(tmp_path) == ["s.jsonl"]


def test_the_very_first_prompt_survives_a_kill_while_a_hook_still_looks_at_it(tmp_path):
    extension = tmp_path / "slow.py"
    extension.write_text(SLOW_INPUT)
    with opened(tmp_path, [], "-e", str(extension)) as agent:
        assert agent.prompt("slow one")["success"]
        agent.kill()
    (tmp_path / "work" / "back").touch()
    with opened(tmp_path, [reply("ok")] * 2, "-e", str(extension)) as agent:
        agent.run("next")
        assert "slow one" in json.dumps(users(agent.mock.requests[-1]))


def test_a_message_that_waits_before_the_first_prompt_survives_a_kill(tmp_path):
    with opened(tmp_path) as agent:
        agent.data("get_state")
        assert side_files(tmp_path) == []
        assert agent.call("follow_up", message="later")["success"]
        agent.kill()
    with opened(tmp_path) as agent:
        assert agent.data("get_state")["queue"]["followUp"] == ["later"]


# -- the disk -------------------------------------------------------------------------------------------


def test_the_state_says_whether_the_session_is_saved(tmp_path):
    with AgentProcess() as agent:
        state = agent.data("get_state")
        assert state["sessionSaved"] is False and "saveError" not in state
    with opened(tmp_path, [reply("ok")]) as agent:
        assert agent.data("get_state")["sessionSaved"] is True
        agent.run("hi")
        (tmp_path / "s.jsonl").unlink()
        (tmp_path / "s.jsonl").mkdir()  # something else has its name
        agent.run("there")
        state = agent.data("get_state")
        assert state["sessionSaved"] is False and "s.jsonl" in state["saveError"]


def with_disk(base: Path, patch: str) -> list[str]:
    extension = base / "disk.py"
    extension.write_text(f"import os, time\nfrom spindle.base import limits\nreal = os.fsync\n{patch}\n{NO_EXTENSION}")
    return ["-e", str(extension)]


def test_a_prompt_that_starts_at_once_is_in_the_session_when_it_is_accepted_and_nowhere_else(tmp_path):
    with opened(tmp_path, [reply("ok", pause(30))]) as agent:
        assert agent.prompt("told at once")["success"]
        agent.kill()
        assert "told at once" in (tmp_path / "s.jsonl").read_text()
        assert side_files(tmp_path) == ["s.jsonl"]


def test_prompts_of_many_sessions_at_once_are_in_their_sessions_and_nowhere_else(tmp_path):
    """While others stream: what is written for them in the same turn of the event loop must not come in between."""
    stream = [step for _ in range(500) for step in ("a", pause(0.005))]
    with AgentProcess([reply(*stream, pause(30), "b")], session=True, base=tmp_path) as agent:
        ids = [agent.data("open_session")["id"] for _ in range(90)]
        for some in (ids[:10], ids[10:]):
            frames = [{"id": id, "type": "prompt", "message": f"told {id}", "sessionId": id} for id in some]
            agent.write(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
            for id in some:
                assert agent.wait(lambda frame, id=id: frame["type"] == "response" and frame["id"] == id)["success"]
            agent.wait_delta("a")
        agent.kill()
        stored = list(tmp_path.rglob("*.jsonl"))
        late = {file for file in stored if f"told {file.stem[-36:]}" not in file.read_text()}
        beside = {file.with_name(file.name.removesuffix(".queue")) for file in tmp_path.rglob("*.queue")}
        assert len(stored) == 90 and late == beside
        assert len(late) < 5  # of a session that was still beginning


STALLED = """
def stalled(fd):
    open("stalls", "a").close()
    while not os.path.exists("goes on"):
        time.sleep(0.01)
    real(fd)

os.fsync = stalled
limits.DISK_SYNC = 60
"""


@pytest.mark.parametrize(
    "step", [reply(call("bash", {"command": "touch ran"})), failure(400, "no")], ids=["call", "error"]
)
def test_the_request_leaves_at_once_and_its_answer_waits_until_the_message_is_on_the_disk(tmp_path, step):
    with opened(tmp_path, [step, reply("done")], *with_disk(tmp_path, STALLED)) as agent:
        work = tmp_path / "work"
        agent.prompt("hi")
        agent.mock.wait_requests(1)
        agent.wait(lambda frame: frame["type"] == "message_end" and frame["message"]["role"] == "user")
        told = len(agent.frames)
        for _ in range(20):  # the whole answer has come long before these are answered
            assert agent.data("get_state")["isStreaming"]
        assert (work / "stalls").exists() and not (work / "ran").exists()
        assert [frame["type"] for frame in agent.frames[told:] if frame["type"] != "response"] == []
        (work / "goes on").touch()
        agent.wait("agent_settled")
        assert (work / "ran").exists() == (len(agent.mock.requests) == 2)


def test_an_abort_does_not_wait_for_the_disk(tmp_path):
    with opened(tmp_path, [reply("ok")], *with_disk(tmp_path, STALLED)) as agent:
        agent.prompt("hi")
        agent.mock.wait_requests(1)
        agent.call("abort")
        assert agent.wait("agent_settled")["aborted"]
        (tmp_path / "work" / "goes on").touch()


def test_a_disk_that_hangs_does_not_hang_the_run(tmp_path):
    hangs = "limits.DISK_SYNC = 0.2\nos.fsync = lambda fd: time.sleep(3600)"
    with opened(tmp_path, [reply("ok", gate("seen"))], *with_disk(tmp_path, hangs)) as agent:
        agent.prompt("hi")
        agent.wait_delta("ok")
        state = agent.data("get_state")
        assert state["sessionSaved"] is False and "the disk does not answer" in state["saveError"]
        agent.mock.release("seen")
        agent.wait("agent_settled")
        agent.kill()


# -- one new file, many processes -----------------------------------------------------------------------


def test_of_six_processes_on_one_new_file_one_accepts_a_prompt(tmp_path):
    agents = [opened(tmp_path, LONG) for _ in range(6)]
    try:
        for agent in agents:
            agent.data("get_state")
        assert side_files(tmp_path) == [] and not (tmp_path / "s.jsonl.lock").exists()
        ids = [agent.send("prompt", message=f"from {number}") for number, agent in enumerate(agents)]
        answers = [
            agent.wait(lambda frame, id=id: frame.get("id") == id) for agent, id in zip(agents, ids, strict=True)
        ]
        assert sum(answer["success"] for answer in answers) == 1
        refusals = [answer["error"] for answer in answers if not answer["success"]]
        assert all("Session is in use by" in text for text in refusals), refusals
        winner = next(agent for agent, answer in zip(agents, answers, strict=True) if answer["success"])
        winner.wait_delta("begins")
        winner.kill()
        late = next(agent for agent, answer in zip(agents, answers, strict=True) if not answer["success"])
        assert "Another session is in this file now" in late.prompt("again")["error"]
    finally:
        for agent in agents:
            agent.__exit__(None, None, None)
