"""`-p` and `--mode json` from outside: what goes in, what comes out, and how it ends."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Place

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d494844520000000100000001080600000"
    "01f15c4890000000d49444154789c6360f8cf500f0003010180d5a4b0a60000000049454e44ae426082"
)

full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


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
    assert done.returncode == 1
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
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {told}{place.project}")
    assert done.stderr.count("\n") == 1


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--model", "claude-sonet-4-5x"], "anthropic/claude-sonnet-4-5"),
        (["--provider", "nobody", "--model", "x"], 'Unknown provider "nobody"'),
        (["--model", "anthropic/claude-opus-4-8"], "ANTHROPIC_API_KEY"),
        ([], "No API key found for the selected model."),
        (["--model", "scripted/missing.json"], "missing.json"),
        (["--model", "scripted/x", "--plan", "--deep"], "Unknown options: --plan, --deep"),
        (["--api-key", "k"], "--api-key needs a model"),
        (["--provider", "local"], "spindle models pull"),
        (["--provider", "scripted"], 'Model "scripted/" not found'),
        (["--model", "scripted/x", "--session", "nope"], "No session found matching 'nope'"),
        (
            ["--model", "scripted/x", "--fork", "a", "-c", "--no-session"],
            "--fork cannot be combined with --continue, --no-session",
        ),
        (["--model", "scripted/x", "--session-id", "a", "-c"], "--session-id cannot be combined with --continue"),
        (["--model", "scripted/x", "--session-id", "../x"], "Session id must be"),
    ],
)
def test_bad_input_is_one_line(place: Place, arguments: list[str], told: str) -> None:
    done = place.run("-p", *arguments, "--", "hi")
    assert (done.returncode, done.stdout) == (1, "")
    errors = [line for line in done.stderr.splitlines() if not line.startswith("Warning: ")]
    assert len(errors) == 1
    assert told in errors[0]


def test_named_things_that_are_not_there_are_warnings(place: Place) -> None:
    options = ["--tools", "read,nope", "-xt", "nada", "--skill", "none.md", "--prompt-template", "none"]
    done = place.run("--no-session", "--model", place.script("ok"), *options, "-p", "x")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    warnings = done.stderr.splitlines()
    assert len(warnings) == 4
    for warning, name in zip(warnings, ["none.md", "none", "nope", "nada"], strict=True):
        assert warning.startswith("Warning: ")
        assert name in warning


def test_a_provider_alone_means_the_model_the_user_chose_of_it(place: Place) -> None:
    place.write("agent/settings.json", {"defaultProvider": "scripted", "defaultModel": place.script("ok")[9:]})
    assert place.run("--no-session", "--provider", "scripted", "-p", "x").stdout == "ok\n"


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


def test_a_session_that_cannot_be_saved_is_told_once(place: Place) -> None:
    place.write("file", "in the way")
    done = place.run("--session-dir", f"{place.root}/file", "--model", place.script("ok"), "-p", "x")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert done.stderr.startswith("Warning: Session cannot be saved")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("mode", ["json", "rpc"])
def test_a_dialect_nobody_speaks(place: Place, mode: str) -> None:
    done = place.run("--mode", mode, "x", env={"SPINDLE_DIALECT": "klingon"})
    assert (done.returncode, done.stdout) == (1, "")
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
    assert all("message" in u and "partial" in u["assistantMessageEvent"] for u in updates)


def test_json_mode_exits_with_0_when_the_model_failed(place: Place) -> None:
    place.write("agent/settings.json", {"retry": {"enabled": False}})
    done = place.run("--no-session", "--model", place.script({"error": "boom"}), "--mode", "json", "x")
    assert done.returncode == 0
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
    process = subprocess.Popen(
        place.command("--model", model, "--mode", mode, "-p", "go"),
        cwd=place.project,
        env=place.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
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


def with_files(place: Place, which: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it with a shell's redirection of stdin, stdout or stderr."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {which}', "sh", *place.command(*arguments)],
        cwd=place.project,
        env=place.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )


MODES = [["-p", "x"], ["--mode", "json", "x"], ["--mode", "rpc"]]


@pytest.mark.parametrize("mode", MODES)
def test_closed_stdin(place: Place, mode: list[str]) -> None:
    done = with_files(place, "<&-", "--no-session", "--model", place.script("ok"), *mode)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("mode", MODES)
def test_closed_stderr(place: Place, mode: list[str]) -> None:
    done = with_files(place, "2>&-", "--no-session", "--model", place.script("ok"), *mode)
    assert done.returncode == 0
    assert done.stdout
    assert with_files(place, "2>&-", "--no-session", "--model", "no-such-model", *mode).stdout == ""


@pytest.mark.parametrize("which", [">&-", pytest.param(">/dev/full", marks=full)])
@pytest.mark.parametrize("mode", [*MODES[:2], ["--help"], ["doctor"]])
def test_stdout_that_takes_nothing(place: Place, which: str, mode: list[str]) -> None:
    place.write("agent/settings.json", {"defaultProvider": "scripted", "defaultModel": place.script("ok")[9:]})
    done = with_files(place, which, *mode)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_a_run_ends_when_nobody_reads_its_events(place: Place) -> None:
    model = place.script({"text": "word " * 5000, "pace": 0.01})
    process = subprocess.Popen(
        place.command("--no-session", "--model", model, "--mode", "json", "x"),
        cwd=place.project,
        env=place.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert b'"session"' in process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"Error: Cannot write to stdout any more\n"
    process.stderr.close()
    assert process.wait(20) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_question_waits(place: Place, number: signal.Signals) -> None:
    model = place.script("ok")
    place.run("--model", model, "-p", "x")
    keyboard, terminal = os.openpty()
    process = subprocess.Popen(
        place.command("--resume", "--model", model, "-p", "y"),
        cwd=place.project,
        env=place.environment(),
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    shown = b""
    while b"Session number: " not in shown:
        shown += os.read(process.stderr.fileno(), 4096)
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == -number
    assert errors == b""
    os.close(keyboard)
    os.close(terminal)
