"""`-p` and `--mode json` from outside: what goes in, what comes out, and how it ends."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Place

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d494844520000000100000001080600000"
    "01f15c4890000000d49444154789c6360f8cf500f0003010180d5a4b0a60000000049454e44ae426082"
)


def sent(place: Place, *arguments: str, stdin: str | None = None) -> list[Any]:
    """Return the user messages of a JSON run."""
    done = place.run("--no-session", "--model", place.script("ok"), "--mode", "json", *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return [e["message"]["content"] for e in events if e["type"] == "message_end" and e["message"]["role"] == "user"]


# -- print mode ----------------------------------------------------------------------------------


def test_only_the_last_answer_is_printed(place: Place) -> None:
    model = place.script(
        {"thinking": "hm", "text": "first", "calls": [{"name": "bash", "arguments": {"command": "echo noise"}}]},
        {"thinking": "done", "text": "the answer"},
    )
    done = place.run("--no-session", "--model", model, "-p", "go")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the answer\n", "")


def test_messages_run_one_after_another(place: Place) -> None:
    model = place.script("one", "two", "three")
    assert place.run("--no-session", "--model", model, "-p", "a", "b", "c").stdout == "three\n"


def test_piped_input_alone_means_print(place: Place) -> None:
    assert place.run("--no-session", "--model", place.script("ok"), stdin="hello").stdout == "ok\n"


def test_nothing_to_do(place: Place) -> None:
    done = place.run("--no-session", "--model", place.script("ok"), "-p", stdin="  \n")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: Nothing to do")


# -- input ---------------------------------------------------------------------------------------


def test_first_message_is_pipe_files_words_without_separators(place: Place) -> None:
    file = place.write("project/f.txt", "in file")
    empty = place.write("project/empty.txt", "")
    first, second = sent(place, "@f.txt", f"@{empty}", "words", "next", stdin="  piped \n")
    assert first == [{"type": "text", "text": f'piped<file name="{file}">\nin file\n</file>\nwords'}]
    assert second == [{"type": "text", "text": "next"}]


def test_an_image_is_attached(place: Place) -> None:
    path = place.write("project/dot.png", PIXEL)
    ((text, image),) = sent(place, "@dot.png", "see")
    assert text == {"type": "text", "text": f'<file name="{path}"></file>\nsee'}
    assert (image["type"], image["mimeType"]) == ("image", "image/png")


def test_odd_files(place: Place) -> None:
    path = place.write("project/odd.txt", b"a\xff\x00b\r\n")
    ((text,),) = sent(place, "@odd.txt")
    assert text["text"] == f'<file name="{path}">\na�\x00b\r\n\n</file>\n'


def test_a_file_of_the_home_directory(place: Place) -> None:
    path = place.write("home/h.txt", "home")
    ((text,),) = sent(place, "@~/h.txt")
    assert str(path) in text["text"]


@pytest.mark.parametrize(("name", "told"), [("missing", "File not found: "), (".", "Cannot read ")])
def test_an_unreadable_file_is_one_line(place: Place, name: str, told: str) -> None:
    done = place.run("--no-session", "--model", place.script("ok"), "-p", f"@{name}", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {told}{place.project}")
    assert done.stderr.count("\n") == 1


# -- bad input -----------------------------------------------------------------------------------


def test_a_model_that_fails(place: Place) -> None:
    place.write("agent/settings.json", {"retry": {"enabled": False}})
    done = place.run("--no-session", "--model", place.script({"error": "429 Too many requests"}), "-p", "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert "429 Too many requests" in done.stderr


def test_a_dead_server(place: Place) -> None:
    place.write("agent/settings.json", {"retry": {"enabled": False}})
    provider = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "models": [{"id": "m"}]}
    place.write("agent/models.json", {"providers": {"dead": provider}})
    done = place.run("--no-session", "--model", "dead/m", "-p", "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("mode", ["json", "rpc"])
def test_a_dialect_nobody_speaks(place: Place, mode: str) -> None:
    words = ["x"] if mode == "json" else []
    done = place.run("--mode", mode, *words, env={"SPINDLE_DIALECT": "klingon"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: SPINDLE_DIALECT must be one of")
    assert done.stderr.count("\n") == 1


# -- JSON mode -----------------------------------------------------------------------------------


def test_json_mode(place: Place) -> None:
    done = place.run("--model", place.script({"text": ["Hel", "lo"]}), "--mode", "json", "hi")
    assert (done.returncode, done.stderr) == (0, "")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    header = events[0]
    (file,) = place.agent.glob("sessions/*/*.jsonl")
    assert header == json.loads(file.read_text().splitlines()[0])
    assert (header["type"], header["version"], header["cwd"]) == ("session", 3, str(place.project))
    types = [event["type"] for event in events]
    assert types[1:3] == ["agent_start", "turn_start"]
    assert types[-2:] == ["agent_end", "agent_settled"]
    updates = [event for event in events if event["type"] == "message_update"]
    assert all("message" not in u and "partial" not in u["assistantMessageEvent"] for u in updates)
    deltas = [u["assistantMessageEvent"].get("delta", "") for u in updates]
    assert "".join(deltas) == "Hello"


def test_json_mode_in_full(place: Place) -> None:
    done = place.run("--no-session", "--model", place.script("x"), "--mode", "json", "--updates", "full", "hi")
    updates = [e for line in done.stdout.splitlines() if (e := json.loads(line))["type"] == "message_update"]
    assert all("message" in u and len(u["assistantMessageEvent"]) > 1 for u in updates)


def test_json_mode_ends_with_agent_settled_when_the_model_failed(place: Place) -> None:
    place.write("agent/settings.json", {"retry": {"enabled": False}})
    done = place.run("--no-session", "--model", place.script({"error": "boom"}), "--mode", "json", "x")
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1])["type"] == "agent_settled"


# -- endings -------------------------------------------------------------------------------------


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 20
    while not path.exists() or not path.read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return path.read_text().strip()


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("mode", ["text", "json"])
def test_a_signal_ends_it_and_its_children(place: Place, number: signal.Signals, code: int, mode: str) -> None:
    command = f"echo $$ > {place.root}/pid; sleep 60"
    model = place.script({"calls": [{"name": "bash", "arguments": {"command": command}}]}, "never")
    process = place.start("--model", model, "--mode", mode, "-p", "go")
    pid = int(wait_for(place.root / "pid"))
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code
    assert b"Traceback" not in errors
    deadline = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (file,) = place.agent.glob("sessions/*/*.jsonl")
    assert all(json.loads(line) for line in file.read_text().splitlines())


def test_a_run_ends_when_nobody_reads_its_events(place: Place) -> None:
    model = place.script({"text": "word " * 5000, "pace": 0.01})
    process = place.start("--no-session", "--model", model, "--mode", "json", "x")
    assert process.stdout is not None
    assert process.stderr is not None
    assert b'"session"' in process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"Error: Cannot write to stdout any more\n"
    process.stderr.close()
    assert process.wait(20) == 1
