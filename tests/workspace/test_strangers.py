"""A far side that is hostile: every call ends, floods end the pipe, texts are bounded and are words of ours."""

import asyncio
import json
import os
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spindle.base import limits, strangers
from spindle.base.strangers import MAX_DEPTH, Patience, StrangerError, read_json, words
from spindle.tools.base import ToolError
from spindle.workspace.disk import list_folder, read_for_edit, read_stretch
from spindle.workspace.far import Far
from spindle.workspace.pipe import FarError, Pipe
from spindle.workspace.settings import ToolSettings
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, gate, reply

_HOSTILE = """
import json, os, re, struct, sys
def frame(id, kind, content=b""):
    return struct.pack(">IIc", len(content), id, kind) + content
def put(data):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]
def take(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            os._exit(0)
        data += part
    return data
script = b""
while b"; exit\\ndone" not in script and not script.endswith(b"; exit\\n"):
    script += os.read(0, 1 << 16)
mark = re.search(rb"spindle-[0-9a-f]{16}", script)[0]
put(b"\\n" + mark + b" ready\\n")
take(int(take(10)))
facts = {"cwd": os.getcwd(), "home": "/", "python": "3.12.0"}
def hello(**changes):
    put(frame(0, b"H", json.dumps({**facts, **changes}).encode()))
def calls():
    while True:
        length, id, kind = struct.unpack(">IIc", take(9))
        content = take(length)
        if kind == b"?":
            put(frame(0, b"!"))
        elif kind in (b"C", b"S"):
            yield id
"""


def hostile(folder: Path, text: str) -> str:
    """Return a command that leads to a helper with other ideas."""
    path = folder / "hostile.py"
    path.write_text(f"{_HOSTILE}\n{text}\n")
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(path))}"


def against(command: str, work: Callable[[Pipe, Far], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        pipe = Pipe(command, os.environ)
        async with asyncio.timeout(60):
            try:
                await work(pipe, Far(pipe, ToolSettings(far=pipe)))
            finally:
                await pipe.close()

    asyncio.run(main())


async def refusal(far: Far, work: Any = list_folder, *args: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await far.do(work, *(args or ("/", 10)))
    text = str(caught.value)
    assert not any(python in text for python in ("NoneType", "recursion", "subscriptable", "Traceback", "KeyError"))
    assert len(text) < 5000
    return text


BROKEN = [
    ('hello(); put(b"\\xff\\xff\\xff\\xff" + bytes(5))', "does not carry our bytes"),
    ('put(b"\\xff\\xff\\xff\\xff" + bytes(5))', "does not carry our bytes"),
    ('hello()\nwhile True: put(frame(77, b"O", b"x" * 60_000))', "a flood of messages that nobody waits for"),
    ('hello()\nwhile True: put(frame(0, b"!") * 5000)', "a flood of messages that nobody waits for"),
    ('hello()\nfor id in calls():\n  while True: put(frame(id, b"O") * 5000)', "a flood of messages"),
    ('hello()\nfor id in calls():\n  while True: put(frame(id, b"D") * 5000)', "a flood of messages"),
    ('hello()\nfor id in calls(): put(frame(id, b"R", b"[" * 200_000 + b"]" * 200_000))', f"deeper than {MAX_DEPTH}"),
    (
        'hello()\nfor id in calls(): put(frame(id, b"R", b"[" + b"[]," * 5_000_000 + b"1]"))',
        "more than 1,000,000 values",
    ),
    ('hello()\nfor id in calls(): put(frame(id, b"R", b"null"))', "something else than what was asked for"),
    ('hello()\nfor id in calls(): put(frame(id, b"F", b"[1]"))', "something else than what was asked for"),
    ('hello()\nfor id in calls(): put(frame(id, b"R", b\'{"$bytes": []}\'))', "a result that is no JSON of ours"),
    ('hello(cwd="x" * 5000)', "something else than what was asked for"),
    ('hello(home=["/"])', "something else than what was asked for"),
    ("hello(); os._exit(3)", "ended with exit code 3"),
]


@pytest.mark.parametrize(("text", "told"), BROKEN, ids=range(len(BROKEN)))
def test_what_cannot_be_taken_ends_the_call_and_the_pipe(tmp_path: Path, text: str, told: str) -> None:
    async def work(pipe: Pipe, far: Far) -> None:
        assert told in await refusal(far)
        assert pipe._process is None and not pipe._calls

    against(hostile(tmp_path, text + "\nfor id in calls(): pass"), work)


def test_a_call_that_is_never_answered_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FAR_CALL", 0.3)
    monkeypatch.setattr(limits, "FAR_BEAT", 0.05)

    async def work(pipe: Pipe, far: Far) -> None:
        assert "did not answer within 0.3 s" in await refusal(far)
        with pytest.raises(FarError, match="did not begin the program within"):
            await far.shell("true", "/", {}, lambda data: None, far.kept())

    against(hostile(tmp_path, "hello()\nfor id in calls(): pass"), work)


def test_a_long_failure_is_cut(tmp_path: Path) -> None:
    text = """
hello()
for id in calls():
    failure = {"tool": "why " * 800_000} if id % 2 else {"code": "EIO", "text": "no " * 800_000}
    put(frame(id, b"F", json.dumps(failure).encode()))
"""

    async def work(pipe: Pipe, far: Far) -> None:
        assert "characters cut" in await refusal(far)
        with pytest.raises(OSError, match="characters cut") as caught:
            await far.do(list_folder, "/", 10)
        assert len(str(caught.value)) < 5000

    against(hostile(tmp_path, text), work)


def test_a_large_result_costs_little_more_than_its_bound(tmp_path: Path) -> None:
    text = """
hello()
for id in calls():
    for _ in range(450 << 2): put(frame(id, b"D", bytes(1 << 18)))
"""

    async def work(pipe: Pipe, far: Far) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert "more than 64 MB with one result" in await refusal(far, read_for_edit, "/a", "a", "/", 1 << 28)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000

    against(hostile(tmp_path, text), work)


def test_a_killed_program_that_goes_on_is_a_flood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHILD_KILLED", 0.2)
    text = """
hello()
for id in calls():
    put(frame(id, b"B", b'{"pid": 1}'))
    while True: put(frame(id, b"O", b"x" * 60_000))
"""

    async def work(pipe: Pipe, far: Far) -> None:
        running = await far.shell("true", "/", {}, lambda data: None, far.kept())
        await running.stop(0)
        async with asyncio.timeout(20):
            while pipe._process is not None:  # noqa: ASYNC110 -- no event tells
                await asyncio.sleep(0.01)

    against(hostile(tmp_path, text), work)


def test_what_a_read_returns_is_looked_at(tmp_path: Path) -> None:
    async def work(pipe: Pipe, far: Far) -> None:
        assert "something else" in await refusal(far, read_stretch, "/a", "/", 0, None, 100)

    against(hostile(tmp_path, "hello()\nfor id in calls(): put(frame(id, b'R', b'{\"text\": 1}'))"), work)


@pytest.mark.parametrize(
    "data", [b'"' + b'\\"' * 1_000_000, b'"' + b'\\"' * 1_000_000 + b"\\", b"]" * (20 << 20), b'"' * 1_000_001]
)
def test_looking_costs_no_more_for_what_is_no_json(data: bytes) -> None:
    """A few kilobytes of a text without an end cost seconds, in which nobody else got a turn."""
    began = time.process_time()
    with pytest.raises(StrangerError):
        read_json(b"[" * 101 + data)
    assert time.process_time() - began < 2


def test_bounds_look_through_texts() -> None:
    commas = b'["' + b"[,{" * 2_000_000 + b'\\"[", 1]'
    assert read_json(commas)[1] == 1
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert read_json(b'{"a": "' + b"[" * 500 + b'"}') and read_json(deep)
    for wrong in (b"[" + deep + b"]", b"[" * 3_000_000, b"[" + b"1," * 1_100_000 + b"1]", b"{", b'{"a": NaN}'):
        with pytest.raises(StrangerError):
            read_json(wrong)


def test_a_trickle_is_borne_and_a_flood_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    patience = Patience()
    for _ in range(100_000):
        clock[0] += 1
        patience.spend(10_000)
    with pytest.raises(StrangerError):
        for _ in range(100_000):
            patience.spend(100)


def test_words_keep_both_ends() -> None:
    assert words("short") == "short" and words(None) == "(no reason given)"
    cut = words("a" * 9000 + "z" * 9000)
    assert cut.startswith("aaa") and cut.endswith("zzz") and len(cut) < 4100


@pytest.mark.parametrize(
    "text",
    [
        'hello(); put(b"\\xff\\xff\\xff\\xff" + bytes(5))\nfor id in calls(): pass',
        'hello()\nwhile True: put(frame(77, b"O", b"x" * 60_000))',
    ],
    ids=["length", "flood"],
)
def test_a_whole_agent_ends_with_its_input(tmp_path: Path, text: str) -> None:
    with AgentProcess([reply("hi")], base=tmp_path, args=["--exec", hostile(tmp_path, text)]) as agent:
        agent.send("get_state")
        agent.process.stdin.close()  # type: ignore[union-attr]
        assert agent.process.wait(30) in (0, 1)


_RELAY = """
import os, struct, subprocess, sys, threading
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def up():
    while data := os.read(0, 1 << 16):
        os.write(child.stdin.fileno(), data)
    os._exit(0)
threading.Thread(target=up, daemon=True).start()
def frame(id, kind, content=b""):
    return struct.pack(">IIc", len(content), id, kind) + content
while data := os.read(child.stdout.fileno(), 1 << 20):
    if os.path.exists(EVIL):
        id = struct.unpack(">IIc", data[:9])[1]
        data = INSTEAD
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]
"""


@pytest.mark.parametrize(
    ("instead", "told"),
    [
        ('frame(77, b"O", b"x" * 60_000) * 1000', "a flood of messages"),
        ('frame(id, b"R", b"[" * 200_000 + b"]" * 200_000)', "nested deeper than"),
        ('frame(id, b"R", b"[null, null]")', "something else than what was asked for"),
        ('frame(id, b"F", b\'{"tool": "\' + b"why " * 800_000 + b\'"}\')', "characters cut"),
    ],
    ids=["flood", "deep", "null", "long"],
)
def test_the_model_reads_words_and_the_run_goes_on(tmp_path: Path, instead: str, told: str) -> None:
    evil = tmp_path / "evil"
    (tmp_path / "relay.py").write_text(_RELAY.replace("EVIL", repr(str(evil))).replace("INSTEAD", instead))
    lead = f"{shlex.quote(sys.executable)} {shlex.quote(str(tmp_path / 'relay.py'))}"
    steps = [reply(gate("evil"), call("read", {"path": "/etc/hostname"})), reply("done")]
    with AgentProcess(steps, base=tmp_path, args=["--exec", lead]) as agent:
        agent.call("prompt", message="go")
        agent.mock.wait_gate("evil")
        evil.touch()
        agent.mock.release("evil")
        agent.wait("agent_settled", 60)
        answer = next(m for m in agent.mock.requests[-1].body["messages"] if m["role"] == "tool")["content"]
        assert told in answer and len(answer) < 5000


@pytest.mark.parametrize("part", [1, 2, 3, 7, 1 << 20])
def test_bounds_do_not_depend_on_where_a_message_is_cut(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    monkeypatch.setattr(strangers, "_PART", part)
    monkeypatch.setattr(strangers, "_MAX_VALUES", 300)
    random = Random(part)
    texts = ["", "a", '"', "\\", '\\"', "[" * 200, '{"a":[' * 150, "]" * 200, "\\\\" * 5, ",," * 200, "é\n"]
    for _ in range(300):
        value: Any = [random.choice(texts) for _ in range(random.randrange(1, 20))]
        for _ in range(random.choice([0, 3, 97])):
            value = random.choice([[value], {random.choice(texts): value}])
        assert read_json(json.dumps(value).encode() + b" " * 120) == value
    for bad in (
        [*range(302)],
        json.loads("[" * 101 + "]" * 101),
        {"a": "]" * 500, "b": json.loads("[" * 101 + "]" * 101)},
    ):
        with pytest.raises(StrangerError):
            read_json(json.dumps(bad).encode())


_WEIGHED = """
import resource
from spindle.base.strangers import StrangerError, read_json
data = b"[" + b'{"type":"text","text":"a"},' * 900_000 + b"1]"
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_json(data)
except StrangerError:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_to_refuse_a_message_costs_little_memory() -> None:
    """Its strings were taken out all at once: 416 MB for 23."""
    megabytes = int(subprocess.check_output([sys.executable, "-c", _WEIGHED], text=True))
    assert megabytes < 100
