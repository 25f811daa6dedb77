"""The RPC process from outside: lanes, rubbish, back-pressure, endings, crashes."""

import json
import os
import random
import signal
import time
from pathlib import Path

import msgspec
import pytest

from spindle.protocol.commands import COMMANDS
from tests.support import nursery
from tests.support.agent_process import AgentProcess
from tests.support.images import PIXEL
from tests.support.mock_model import call, cut, dropped, failure, gate, reply, silent, stall


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, timeout: float = 10.0) -> bool:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def types(frames) -> list[str]:
    return [frame["type"] for frame in frames if frame["type"] not in ("message_update", "ready")]


# -- the life of a prompt -----------------------------------------------------------------------------


def test_a_prompt_from_acceptance_to_settled():
    with AgentProcess([reply("Hel", "lo")]) as agent:
        frames = agent.run("hi")
        assert types(frames) == [
            "response", "agent_start", "turn_start", "message_start", "message_end",
            "message_start", "message_end", "turn_end", "agent_end", "agent_settled",
        ]  # fmt: skip
        assert agent.data("get_last_assistant_text") == {"text": "Hello"}
        assert agent.frames[0]["type"] == "ready"


def test_each_command_gets_exactly_one_response():
    with AgentProcess([reply("a", gate("go"), "b")]) as agent:
        agent.prompt("go", id="p1")
        agent.wait_delta("a")
        agent.prompt("again", id="p2")
        agent.mock.release("go")
        agent.wait("agent_settled")
        ids = [frame["id"] for frame in agent.frames if frame["type"] == "response"]
        assert sorted(ids) == ["p1", "p2"]


def test_two_prompts_at_once_start_one_run():
    with AgentProcess([reply("x")]) as agent:
        agent.write(b'{"id":1,"type":"prompt","message":"a"}\n{"id":2,"type":"prompt","message":"b"}\n')
        answers = [agent.wait(lambda f, id=id: f.get("id") == id) for id in (1, 2)]
        assert [answer["success"] for answer in answers] == [True, False]
        agent.wait("agent_settled")
        assert types(agent.frames).count("agent_settled") == 1


# -- two lanes ----------------------------------------------------------------------------------------


def test_control_commands_answer_at_once_whatever_else_runs():
    with AgentProcess([reply("w", stall())]) as agent:
        agent.prompt("go")
        agent.wait_delta("w")
        agent.send("bash", id="b", command="sleep 60")
        for name, fields in [
            ("get_state", {}),
            ("steer", {"message": "s"}),
            ("clear_queue", {}),
            ("set_steering_mode", {"mode": "all"}),
            ("get_messages", {}),
        ]:
            times = []
            for _ in range(5):
                start = time.perf_counter()
                assert agent.call(name, **fields)["success"]
                times.append(time.perf_counter() - start)
            assert min(times) < 0.05, f"{name}: a busy machine may delay some answers, but not all"
        assert agent.call("abort_bash")["success"] and agent.call("abort")["success"]
        assert agent.wait(lambda f: f.get("id") == "b")["data"]["cancelled"] is True


def test_state_is_answered_while_a_compaction_hangs():
    text = "lorem ipsum " * 200
    small = {"compaction": {"keepRecentTokens": 100, "reserveTokens": 500}}
    with AgentProcess([reply(text), reply(text), silent()], settings=small) as agent:
        agent.run("a " + text)
        agent.run("b " + text)
        agent.send("compact", id="c")
        agent.wait("compaction_start")
        assert agent.data("get_state")["isCompacting"] is True
        assert "compaction is in progress" in agent.prompt("now")["error"]
        assert agent.call("abort")["success"]
        assert agent.wait(lambda f: f.get("id") == "c")["error"] == "Compaction cancelled"
        assert agent.data("get_state")["isCompacting"] is False


# -- never hang ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [dropped(), reply("part", cut()), failure(503, "down")], ids=["dropped", "cut", "503"])
def test_a_broken_server_ends_in_an_error_after_the_retries(step):
    with AgentProcess([step], settings={"retry": {"baseDelayMs": 1, "maxRetries": 2}}) as agent:
        frames = agent.run("hi")
        assert [f["attempt"] for f in frames if f["type"] == "auto_retry_start"] == [1, 2]
        assert [f["success"] for f in frames if f["type"] == "auto_retry_end"] == [False]
        settled, last = frames[-1], [f for f in frames if f["type"] == "message_end"][-1]["message"]
        assert (settled["type"], settled["aborted"], settled["stopReason"]) == ("agent_settled", False, "error")
        assert settled["errorMessage"] == last["errorMessage"]


def test_a_server_that_says_nothing_runs_into_the_idle_timeout():
    settings = {"httpIdleTimeoutMs": 200, "retry": {"enabled": False}}
    with AgentProcess([silent()], settings=settings) as agent:
        end = [f for f in agent.run("hi") if f["type"] == "message_end"][-1]["message"]
        assert end["stopReason"] == "error" and "timed out" in end["errorMessage"]


def test_abort_before_the_first_byte():
    with AgentProcess([silent(), reply("fine")]) as agent:
        agent.prompt("hi")
        agent.mock.wait_requests(1)
        assert agent.call("abort")["success"]
        agent.mock.wait_hangups(1)
        assert agent.wait("agent_settled")["aborted"] is True
        agent.run("again")
        assert agent.data("get_last_assistant_text")["text"] == "fine"


def test_a_grandchild_that_holds_the_pipe_does_not_hold_the_run(tmp_path):
    with AgentProcess([reply(call("bash", {"command": "sleep 30 & echo $! > pid; echo done"})), reply("ok")]) as agent:
        start = time.monotonic()
        agent.run("go")
        assert time.monotonic() - start < 25
        pid = int((agent.cwd / "pid").read_text())
        os.kill(pid, signal.SIGKILL)


def test_switching_sessions_during_a_run_reports_its_end_first():
    with AgentProcess([reply("w", stall()), reply("later")], session=True) as agent:
        agent.prompt("go")
        agent.wait_delta("w")
        target = str(agent.base / "other.jsonl")
        assert agent.call("switch_session", sessionPath=target)["data"] == {"cancelled": False, "created": True}
        order = types(agent.frames)
        assert order.index("agent_settled") < len(order) - 1 and order[-1] == "response"
        assert agent.data("get_state")["sessionFile"] == target
        agent.run("here")
        assert Path(target).exists()


# -- rubbish ------------------------------------------------------------------------------------------


def test_a_thousand_random_and_mutated_lines_never_kill_it():
    rng = random.Random(20261115)
    commands = [
        {"id": 1, "type": "get_state"},
        {
            "id": 2,
            "type": "prompt",
            "message": "hi",
            "images": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}],
        },
        {"id": 3, "type": "set_model", "provider": "mock", "modelId": "m2"},
        {"id": 4, "type": "fork", "entryId": "aaaaaaaa"},
        {"id": 5, "type": "set_host_tools", "tools": [{"name": "x", "description": "y", "parameters": {}}]},
        {"id": 6, "type": "set_todos", "phases": [{"name": "a", "tasks": [{"content": "b"}]}]},
        {"id": 7, "type": "extension_ui_response", "id2": "x", "value": "y"},
        {"id": 8, "type": "host_tool_result", "result": {"content": [{"type": "text", "text": "x"}]}},
        {"id": 9, "type": "set_thinking_level", "level": "high"},
    ]
    with AgentProcess([reply("x")]) as agent:
        agent.wait("ready")
        for number in range(1000):
            line = bytearray(json.dumps(rng.choice(commands)).encode())
            for _ in range(rng.randrange(1, 6)):
                place = rng.randrange(len(line))
                kind = rng.randrange(4)
                if kind == 0:
                    line[place] = rng.randrange(256)
                elif kind == 1:
                    del line[place : place + rng.randrange(1, 9)]
                    line = line or bytearray(b"x")
                elif kind == 2:
                    line[place:place] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
                else:
                    line[place:place] = rng.choice([b"null", b"{", b"]", b'"', b"\\ud800", b"1e999", b"[" * 50])
            agent.write(bytes(line).replace(b"\n", b" ") + b"\n")
            if number % 200 == 199:
                assert agent.call("get_state", id=f"alive{number}")["success"]
        assert agent.process.poll() is None


HOSTILE = [True, 0, -1, 2**70, 1e308, "", "x", "\ud800", "a\u2028b", "nul\0", [], [None], {}, {"\ud800": "\ud800"}]


def test_whatever_stands_in_a_field_every_command_is_answered_once():
    """Every field of every command, with every value that is not what the field is for, and then some."""
    frames: list[dict] = [{"type": value} for value in HOSTILE]
    for name, spec in COMMANDS.items():
        for field in msgspec.structs.fields(spec.fields):
            frames += [{"type": name, field.encode_name: value} for value in HOSTILE]
        frames += [{"type": name}, {"type": name, "\ud800": 1}]
    frames = [frame for frame in frames if frame["type"] != "shutdown"]
    with AgentProcess([reply("x")], session=True) as agent:
        for number, frame in enumerate(frames):
            agent.send(**frame, id=number)
        for number in range(len(frames)):
            agent.wait(lambda f, number=number: f["type"] == "response" and f["id"] == number)
        assert agent.call("get_state", id="alive")["success"]
        assert len([f for f in agent.frames if f["type"] == "response"]) == len(frames) + 1
        assert b"Traceback" not in agent.stderr


@pytest.mark.parametrize(
    "line, error",
    [
        (b"[" * 100_000, "Failed to parse command: "),
        (b'{"type":"prompt","message":5}', "Invalid message: expected string, got integer"),
        (b'{"type":"prompt"}', "message is required"),
        (b'{"type":"set_auto_retry","enabled":"yes"}', "Invalid enabled: expected boolean, got string"),
        (
            b'{"type":"prompt","message":"x","images":[{"data":1}]}',
            "images[0] must have data (base64), or a source with a url",
        ),
        (b'{"type":"set_steering_mode","mode":"some"}', "Invalid mode: 'some' is none of all, one-at-a-time"),
        (b'{"type":"switch_session","sessionPath":"\\u0000"}', "A file cannot have this name: "),
    ],
    ids=["deep", "type", "missing", "bool", "image", "choice", "path"],
)
def test_errors_say_what_is_wrong(line, error):
    with AgentProcess() as agent:
        agent.write(line + b"\n")
        response = agent.wait("response")
        assert response["success"] is False and response["error"].startswith(error)


DEEP = b"[" * 5000 + b"]" * 5000


@pytest.mark.parametrize(
    "line, id",
    [
        (b'{"a":"xxx","b":1e999,"id":7}', 7),
        (b'{"a":{"id":1},"b":[1e999, {"id":2}], "id" : "s\\n" }', "s\n"),
        (b'{"b":1e999,"id":{"x":[1]}}', {"x": [1]}),
        (b' { "a" : [1,{"id":3}] , "id" : 7 , "b":' + DEEP + b"}", 7),
        (b'{"b":1e999}', None),
        (b'{"id":1e999}', None),
        (b'{"b":' + DEEP + b',"id":7}', None),
        (b'{"a":"' + b"x" * 5000 + b'","b":' + DEEP + b',"id":7}', None),
        (b"[1e999]", None),
    ],
    ids=["scalar", "escaped", "object", "before", "none", "unreadable", "behind", "far", "array"],
)
def test_the_id_of_a_frame_that_cannot_be_read(line, id):
    with AgentProcess() as agent:
        agent.write(line + b"\n")
        response = agent.wait("response")
        assert response["error"].startswith("Failed to parse command: ") and response.get("id") == id


def test_a_long_frame_that_cannot_be_read_takes_little_memory():
    with AgentProcess() as agent:
        agent.wait("ready")
        agent.write(b'{"a":"' + b"x" * (15 << 20) + b'","b":1e999,"id":7}\n')
        assert agent.wait("response")["id"] == 7
        status = Path(f"/proc/{agent.process.pid}/status").read_text()
        assert int(status.partition("VmHWM:")[2].split()[0]) < 200 << 10


def test_null_stands_for_what_is_left_out():
    with AgentProcess([reply("ok")]) as agent:
        assert agent.call("prompt", message="x", images=None, streamingBehavior=None)["success"]
        agent.wait("agent_settled")
        assert agent.call("bash", command="true", excludeFromContext=None)["success"]
        assert agent.call("prompt", message=None)["error"] == "message is required"
        assert agent.call("get_state", id=None)["id"] is None


def test_a_line_over_the_limit_is_refused_and_the_next_one_works():
    with AgentProcess() as agent:
        agent.wait("ready")
        for _ in range(65):
            agent.write(b"x" * (1 << 20))
        agent.write(b"\n")
        assert "longer than 67108864 bytes" in agent.wait("response")["error"]
        assert agent.call("get_state")["success"]


# -- stdout is sacred ---------------------------------------------------------------------------------


def test_nothing_but_frames_reaches_stdout(tmp_path):
    command = "echo noise; echo noise >&2; for pid in $PPID $(cat agent.pid); do echo sneaky > /proc/$pid/fd/1; done"
    with AgentProcess([reply(call("bash", {"command": command})), reply("ok")]) as agent:
        (agent.cwd / "agent.pid").write_text(str(agent.process.pid))  # the parent of a command is its supervisor
        agent.run("go")
        assert all(json.loads(line)["type"] for line in agent.lines)
        assert wait_until(lambda: b"sneaky" in agent.stderr)


def test_a_reader_that_stops_stalls_the_run_and_loses_nothing():
    big = [f"{n:06d} " * 40 for n in range(3000)]
    with AgentProcess([reply(*big)], read=False, args=["--updates", "full"]) as agent:
        out = agent.process.stdout
        agent.write(b'{"id":"p","type":"prompt","message":"go"}\n')
        time.sleep(1.0)  # the reader's pause itself is what is tested
        assert _rss_mib(agent.process.pid) < 200
        text, settled = "", False
        while not settled:
            frame = json.loads(out.readline())
            if frame["type"] == "message_update" and frame["assistantMessageEvent"]["type"] == "text_delta":
                text += frame["assistantMessageEvent"]["delta"]
            settled = frame["type"] == "agent_settled"
        assert text == "".join(big)


def _rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def test_a_reader_that_goes_away_ends_the_process():
    with AgentProcess([reply("a", gate("go"), "b")], read=False) as agent:
        agent.process.stdout.readline()
        agent.process.stdout.close()
        assert agent.process.wait(10) == 1, "nothing has to be written for that"


# -- endings ------------------------------------------------------------------------------------------


def test_end_of_input_answers_the_last_line_and_exits_with_0():
    with AgentProcess() as agent:
        agent.write(b'{"id":"last","type":"get_state"}')
        assert agent.close_stdin() == 0
        assert agent.wait(lambda f: f.get("id") == "last")["success"]


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130), (None, 0)])
def test_no_child_survives_the_end(number, code):
    command = "echo $$ > pid; sleep 60 & echo $! > pid2; wait"
    with AgentProcess([reply(call("bash", {"command": command}))]) as agent:
        agent.prompt("go")
        pids = [agent.cwd / "pid", agent.cwd / "pid2"]
        assert wait_until(lambda: all(path.exists() and path.read_text().strip() for path in pids))
        assert (agent.close_stdin() if number is None else agent.kill(number)) == code
        assert wait_until(lambda: not any(alive(int(path.read_text())) for path in pids))


def test_shutdown_answers_first():
    with AgentProcess() as agent:
        assert agent.call("shutdown")["success"]
        assert agent.process.wait(10) == 0


def test_nothing_acknowledged_is_missing_after_a_kill():
    with AgentProcess([reply("one"), reply("two"), reply("w", stall())], session=True) as agent:
        agent.run("first")
        agent.run("second")
        file = Path(agent.data("get_state")["sessionFile"])
        agent.prompt("third")
        agent.wait_delta("w")
        told = [f["message"] for f in agent.frames if f["type"] == "message_end"]
        agent.kill()
        kept = [json.loads(line)["message"] for line in file.read_text().splitlines() if '"type":"message"' in line]
        assert [{**message, **({"attachments": []} if message["role"] == "user" else {})} for message in kept] == told
        with AgentProcess([reply("on")], base=agent.base, session=True, args=["--session", str(file)]) as again:
            assert again.data("get_messages")["messages"] == told
            again.run("go on")


# -- command line -------------------------------------------------------------------------------------


def test_file_arguments_are_refused():
    with AgentProcess(args=["@x"]) as agent:
        assert agent.process.wait(10) == 1
        assert wait_until(lambda: b"@file arguments are not supported in RPC mode" in agent.stderr)
        assert agent.lines == []


def test_bash_output_is_streamed_and_bounded():
    with AgentProcess() as agent:
        result = agent.data("bash", id="b", command="printf one; sleep 0.2; printf two")
        deltas = [f["delta"] for f in agent.frames if f["type"] == "bash_execution_update" and f["id"] == "b"]
        assert "".join(deltas) == "onetwo" and result["output"] == "onetwo" and result["exitCode"] == 0


def test_unknown_model_is_one_clear_line():
    with AgentProcess(model="mock/m1x", args=[]) as agent:
        assert agent.process.wait(10) == 2
        assert wait_until(
            lambda: b'Model "mock/m1x" not found.' in agent.stderr and b"mock/m1, mock/m2" in agent.stderr
        )
        assert agent.stderr.count(b"\n") == 1 and agent.lines == []


def test_help_names_the_modes():
    done = nursery.run([*nursery.SPINDLE, "--help"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and "--mode" in done.stdout


def test_an_unknown_dialect_in_the_environment_is_one_clear_line():
    with AgentProcess(env={"SPINDLE_DIALECT": "klingon"}) as agent:
        assert agent.process.wait(10) == 2
        assert wait_until(lambda: b"SPINDLE_DIALECT must be one of spindle, " in agent.stderr)
        assert b"Traceback" not in agent.stderr and agent.lines == []


# -- a session that somebody else writes --------------------------------------------------------------


def test_a_session_in_use_is_refused_at_the_start_and_may_be_forked():
    with AgentProcess([reply("one")], session=True) as agent:
        agent.run("first")
        file = agent.data("get_state")["sessionFile"]
        with AgentProcess(base=agent.base, session=True, args=["--session", file]) as second:
            assert second.process.wait(10) == 1
            assert wait_until(lambda: b"Session is in use by process" in second.stderr)
            assert b"Traceback" not in second.stderr
        with AgentProcess(base=agent.base, session=True, args=["--fork", file]) as fork:
            assert fork.data("get_state")["messageCount"] == 2
            assert fork.data("get_state")["sessionFile"] != file
        agent.run("still mine")


def test_a_file_that_cannot_be_written_is_told_on_both_ways():
    with AgentProcess([reply("one")], session=True, args=["--session-dir", "/proc/nowhere"]) as agent:
        agent.run("first")
        (told,) = [f for f in agent.frames if f["type"] == "extension_error"]
        assert told["event"] == "session_write" and "cannot be saved" in told["error"]
        assert wait_until(lambda: b"cannot be saved" in agent.stderr)
        assert agent.close_stdin() == 0


def test_blank_lines_are_ignored():
    with AgentProcess() as agent:
        agent.write(b"\n \t \r\n\r\n" + b'{"id":"a","type":"get_state"}\r\n' + b"   \n")
        assert agent.wait("response")["id"] == "a"
        agent.data("get_state")
        assert [frame["type"] for frame in agent.frames] == ["ready", "response", "response"]
