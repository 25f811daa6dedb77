"""What a newcomer sees: nothing is silent, on a terminal there are signs of life, errors are in words."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from spindle.apps.cli.main import run as main
from spindle.base.limits import PROGRESS_TICK
from tests.sessions.test_fixtures import FIXTURES
from tests.support.agent_process import AgentProcess, write_models
from tests.support.mock_model import MockModel, Step, call, failure, gate, reply

from .conftest import Place
from .test_one_shot import PIXEL

# -- an agent directory that cannot be read --------------------------------------------------------


def as_a_stranger(place: Place, *arguments: str, folder: str = "agent") -> "subprocess.CompletedProcess[str]":
    """Run it with a directory that it may not read; as root, without the right to read everything."""
    place.write("agent/settings.json", {})
    command = place.command(*arguments)
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root may read everything, and there is no setpriv to take that right away")
        command = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *command]
    (place.root / folder).chmod(0)
    try:
        return place.program(*command, env={"PYTHONDONTWRITEBYTECODE": "1"})
    finally:
        (place.root / folder).chmod(0o700)


@pytest.mark.parametrize("mode", [["-p", "x"], ["-c", "--mode", "json", "x"], ["--mode", "rpc"], ["--help"]])
def test_an_unreadable_agent_directory_costs_one_warning(place: Place, mode: list[str]) -> None:
    done = as_a_stranger(place, "--model", place.script("ok"), *mode)
    assert done.returncode == 0
    assert done.stdout
    if mode != ["--help"]:
        assert done.stderr.startswith(f"Warning: Cannot read the agent directory {place.agent}: Permission denied.")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["sessions", "doctor"])
def test_sub_commands_tell_it_too(place: Place, command: str) -> None:
    done = as_a_stranger(place, command)
    assert f"Cannot read the agent directory {place.agent}: Permission denied" in done.stdout + done.stderr
    assert done.returncode == (1 if command == "doctor" else 0)


@pytest.mark.parametrize("agent_dir", ["own", "in it"])
@pytest.mark.parametrize("command", ["doctor", "models", "sessions"])
def test_a_home_that_cannot_be_read_is_survived(place: Place, command: str, agent_dir: str) -> None:
    if agent_dir == "in it":
        del place.env["SPINDLE_DIR"]
    place.env |= {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "l"}  # then it looks for a file there
    done = as_a_stranger(place, command, folder="home")
    assert done.returncode == (1 if (command, agent_dir) == ("doctor", "in it") else 0)
    assert "Error:" not in done.stderr and "Traceback" not in done.stderr
    if command == "doctor":
        assert "MCP servers (" in done.stdout


# -- one line for what is not as expected ----------------------------------------------------------


def test_waiting_for_piped_input_is_told(place: Place) -> None:
    process = place.start("--no-session", "--model", place.script("ok"), "-p", "x", stdin=subprocess.PIPE)
    assert process.stdin and process.stderr and process.stdout
    assert process.stderr.readline().startswith(b"Note: Reading piped input until its end")
    process.stdin.close()
    assert process.stdout.read() == b"ok\n"
    assert process.stderr.read() == b""
    assert process.wait(20) == 0
    process.stdout.close()
    process.stderr.close()


def with_server(
    place: Place, *steps: Step, arguments: tuple[str, ...] = (), model: str = "mock/m2", code: int = 0
) -> str:
    """Run one message against a scripted server and return what stderr says."""
    with MockModel(list(steps)) as mock:
        write_models(place.agent, mock.openai_url)
        done = place.run("--no-session", "--model", model, *arguments, "-p", "hi")
        assert done.returncode == code
        return done.stderr


def test_images_that_are_not_sent_are_told(place: Place) -> None:
    path = place.write("project/dot.png", PIXEL)
    told = with_server(place, reply("ok"), arguments=(f"@{path}",))
    assert told == "Warning: Images are not sent: mock/m2 takes none\n"
    assert with_server(place, reply("ok"), arguments=(f"@{path}",), model="mock/m1") == ""
    place.write("agent/settings.json", {"images": {"blockImages": True}})
    broken = place.write("project/broken.png", PIXEL[:20])
    told = with_server(place, reply("ok"), arguments=(f"@{path}", f"@{broken}"), model="mock/m1")
    assert "images.blockImages" in told
    assert f"Warning: {broken} is not sent: Image omitted" in told


def test_an_answer_that_was_cut_is_told(place: Place) -> None:
    told = with_server(place, reply("half", finish="length"), code=1)
    assert told.startswith("The answer was cut at the limit of output tokens. Ask for a shorter answer")


def test_a_model_chosen_by_a_part_of_its_name_is_told(place: Place) -> None:
    assert with_server(place, reply("ok"), model="Mock Two") == "Warning: --model Mock Two: using mock/m2\n"


def test_a_damaged_session_is_told(place: Place) -> None:
    path = place.project / "s.jsonl"
    text = (FIXTURES / "damaged-torn-last-line.jsonl").read_text()
    path.write_text(re.sub(r'"cwd":"[^"]*"', f'"cwd":"{place.project}"', text, count=1))
    done = place.run("--session", "s.jsonl", "--model", place.script("ok"), "-p", "x")
    assert done.stdout == "ok\n"
    told = f"Warning: The session file is damaged (line 6: torn line: .*\\): see spindle sessions check {path}\n"
    assert re.fullmatch(told.replace("damaged (", r"damaged \("), done.stderr)


def test_an_extension_that_fails_to_load_is_told_once(place: Place) -> None:
    place.write("agent/extensions/bad.py", "raise RuntimeError('boom')\n")
    place.write("agent/extensions/good.py", "def extension(agent): print('loaded')\n")
    done = place.run("--no-session", "--model", place.script("ok"), "-p", "x")
    assert done.stdout == "ok\n"
    assert done.stderr.count("boom") == 1
    report = place.run("doctor")
    assert report.returncode == 1
    assert report.stdout.count("boom") == 1
    assert f"  loaded     {place.agent}/extensions/good.py  (" in report.stdout


# -- a session that another program holds ----------------------------------------------------------


def test_a_session_in_use_names_what_helps_on_this_wire(place: Place) -> None:
    with AgentProcess([reply("ok")], session=True) as first, AgentProcess([reply("ok")], session=True) as second:
        first.run("hi")
        path = first.data("get_state")["sessionFile"]
        done = place.run("--session", path, "--model", place.script("ok"), "-p", "x")
        assert done.returncode == 1
        assert f"Session is in use by process {first.process.pid}" in done.stderr
        assert f"--fork {path}" in done.stderr
        assert place.run("--fork", path, "--model", place.script("ok"), "-p", "x").stdout == "ok\n"
        refused = second.call("switch_session", sessionPath=path)
        assert not refused["success"]
        assert "new_session" in refused["error"] and "--fork" in refused["error"]


# -- errors in words -------------------------------------------------------------------------------


def test_a_refused_key_is_named(place: Place) -> None:
    body = {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}
    with MockModel([failure(401, body)]) as mock:
        place.write("agent/models.json", {"providers": {"anthropic": {"baseUrl": mock.anthropic_url}}})
        arguments = ("--no-session", "--model", "anthropic/claude-opus-4-8", "-p", "hi")
        done = place.run(*arguments, env={"ANTHROPIC_API_KEY": "sk-ant-verysecret"})
        given = place.run("--api-key", "sk-ant-verysecret", *arguments)
    assert done.returncode == 1
    words = "was refused: invalid x-api-key (authentication_error)\n"
    assert done.stderr == f"401 from anthropic: the key in ANTHROPIC_API_KEY {words}"
    assert given.stderr == f"401 from anthropic: the key given with --api-key {words}"


def test_a_login_that_cannot_be_used_gives_advice_that_exists(place: Place) -> None:
    entry = {"type": "oauth", "access": "a", "refresh": "r", "expires": 1}
    place.write("agent/auth.json", {"anthropic": entry, "nobody": entry}).chmod(0o600)
    done = place.run("--no-session", "--model", "anthropic/claude-opus-4-8", "-p", "hi")
    assert done.returncode == 1
    assert "Anthropic's terms allow such logins in its own programs only" in done.stderr
    assert "set ANTHROPIC_API_KEY" in done.stderr
    assert "/login" not in done.stderr
    report = place.run("doctor").stdout
    assert "anthropic: auth.json holds a login to an Anthropic subscription." in report
    assert "nobody: there is no such provider here" in report


@pytest.fixture
def here(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be the program in its place."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_TOKEN")) or name.startswith(("PI_", "SPINDLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SPINDLE_DIR", str(place.agent))
    monkeypatch.setenv("HOME", str(place.root / "home"))
    monkeypatch.chdir(place.project)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the test runner's own handlers stay


# -- doctor: which model, and why ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "env", "told", "code"),
    [
        ({}, {}, "none yet. Ways to one:", 0),
        ({}, {"OPENAI_API_KEY": "k"}, "(the default of openai, the first provider with a key)", 0),
        (
            {"defaultProvider": "scripted", "defaultModel": "x.json"},
            {"OPENAI_API_KEY": "k"},
            "scripted/x.json (defaultModel in settings.json)",
            0,
        ),
        ({"enabledModels": ["gpt-5*"]}, {"OPENAI_API_KEY": "k"}, "(the first of enabledModels in settings.json)", 0),
        ({"enabledModels": ["nothing"]}, {}, 'enabledModels in settings.json: No models match pattern "nothing"', 0),
        (
            {"defaultProvider": "openai", "defaultModel": "gpt-5.5"},
            {},
            "error defaultModel openai/gpt-5.5 of settings.json cannot be used: there is no key for openai",
            1,
        ),
    ],
)
def test_doctor_tells_the_model_and_why(
    place: Place,
    here: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, object],
    env: dict[str, str],
    told: str,
    code: int,
) -> None:
    place.write("agent/settings.json", settings)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert main(["doctor"]) == code
    assert told in capsys.readouterr().out


def test_doctor_tells_what_is_ignored(place: Place, here: None, capsys: pytest.CaptureFixture[str]) -> None:
    gate_file = place.write("agent/extensions/gate.ts", "export default 1")
    assert main(["doctor"]) == 0
    report = capsys.readouterr().out
    assert f"  {gate_file}: extensions in TypeScript" in report


# -- signs of life ---------------------------------------------------------------------------------


class Terminal:
    """The program with a terminal for stdin and stderr; stdout is a pipe."""

    def __init__(self, place: Place, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.seen = ""
        self.process = subprocess.Popen(
            place.command(*arguments),
            cwd=place.project,
            env={**place.env, "COLUMNS": "60"},
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def read_until(self, wanted: str, timeout: float = 20) -> str:
        """Return everything up to now, when `wanted` has come."""
        end = time.monotonic() + timeout
        while wanted not in self.seen:
            ready, _, _ = select.select([self._ours], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {wanted!r} in {self.seen!r}"
            try:
                self.seen += os.read(self._ours, 4096).decode()
            except OSError:  # the other side is closed
                assert wanted in self.seen, self.seen
        return self.seen

    def is_quiet(self, seconds: float) -> bool:
        return not select.select([self._ours], [], [], seconds)[0]

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> tuple[int, str]:
        """Return exit code and stdout."""
        out, _ = self.process.communicate(timeout=20)
        try:
            while data := os.read(self._ours, 4096):
                self.seen += data.decode()
        except OSError:
            pass
        os.close(self._ours)
        return self.process.returncode, out.decode()


def test_a_terminal_shows_what_happens(place: Place) -> None:
    long = "echo " + "x" * 100
    steps = [
        failure(429, "later"),
        reply(call("bash", {"command": long})),
        reply(call("bash", {"command": "exit 3"})),
        reply(gate("answer"), "the answer"),
    ]
    with MockModel(steps) as mock:
        write_models(place.agent, mock.openai_url)
        place.write("agent/settings.json", {"retry": {"baseDelayMs": 1000}})
        terminal = Terminal(place, "--no-session", "--model", "mock/m2", "-p", "go")
        terminal.read_until("later; trying again in 1 s (1 of 3)")
        terminal.read_until("waiting to try again (1 of 3) …")
        terminal.read_until("bash failed: Command exited with code 3")
        mock.wait_gate("answer")
        terminal.read_until("waiting for mock/m2 …")
        mock.release("answer")
        assert terminal.end() == (0, "the answer\n")
    call_line = next(line for line in terminal.seen.splitlines() if "bash echo" in line)
    assert call_line.rpartition("\x1b[K")[2] == ("bash " + long)[:59], "a line fits the terminal"
    assert "…" not in terminal.seen.rpartition("\r\x1b[K")[2], "no status is left behind"


def test_a_pipe_shows_nothing_unless_asked(place: Place) -> None:
    steps = [failure(429, "later"), reply(call("bash", {"command": "echo hi"})), reply("done")]
    place.write("agent/settings.json", {"retry": {"baseDelayMs": 1}})
    assert with_server(place, *steps) == ""
    told = with_server(place, *steps, arguments=("--verbose",)).splitlines()
    assert told[:2] == ["model mock/m2, thinking off", "session in memory"]
    assert [line for line in told if "later; trying again" in line and "(1 of 3)" in line]
    assert "bash echo hi" in told
    assert [line for line in told if re.fullmatch(r"bash took \d+\.\d s", line)]
    assert re.fullmatch(r"done in \d s", told[-1])
    assert "\x1b" not in "".join(told)


@pytest.mark.parametrize("keep", [True, False])
def test_ctrl_c_says_what_was_kept(place: Place, keep: bool) -> None:
    with MockModel([reply("half", gate("never"))]) as mock:
        write_models(place.agent, mock.openai_url)
        terminal = Terminal(place, "--model", "mock/m2", *([] if keep else ["--no-session"]), "-p", "go")
        mock.wait_gate("never")
        terminal.read_until("answering …")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == (130, "")
        mock.release("never")
    if keep:
        assert "Stopped: the conversation so far is kept. Go on with: spindle -c -p MESSAGE" in terminal.seen
        assert "half" in place.run("sessions", "show", str(session_file(place))).stdout
    else:
        assert "Stopped: nothing was kept (--no-session)" in terminal.seen


def test_a_limit_says_how_to_go_on_if_anything_was_kept(place: Place) -> None:
    model = place.script({"calls": [{"name": "bash", "arguments": {"command": "true"}}]}, "done")
    told = "Stopped by a limit: maxTurns"
    arguments = ("--model", model, "--max-turns", "1", "-p", "go")
    assert place.run(*arguments).stderr == f"{told}. Go on with: spindle -c -p MESSAGE\n"
    assert place.run("--no-session", *arguments).stderr == f"{told}\n"


def session_file(place: Place) -> Path:
    (path,) = place.agent.glob("sessions/*/*.jsonl")
    return path


def test_questions_are_not_written_over(place: Place) -> None:
    model = place.script({"calls": [{"name": "bash", "arguments": {"command": "echo hi"}}]}, "done")
    terminal = Terminal(place, "--no-session", "--model", model, "--permission-mode", "default", "-p", "go")
    terminal.read_until("empty to cancel:\r\n")
    assert terminal.is_quiet(3 * PROGRESS_TICK)
    terminal.type("1\n")
    assert terminal.end() == (0, "done\n")


@pytest.mark.parametrize(
    ("typed", "kept"), [("2", {"trusted": True}), ("1", None), ("n", None), ("4", {"trusted": False})]
)
def test_a_person_is_asked_whether_a_project_is_trusted(place: Place, typed: str, kept: dict[str, bool] | None) -> None:
    place.write("project/.pi/prompts/greet.md", "Say hello.")
    model = place.script({"match": "Say hello.", "text": "Hello."}, {"match": "/greet", "text": "What?"})
    arguments = "--no-session", "--model", model, "-p", "/greet"
    terminal = Terminal(place, *arguments)
    shown = terminal.read_until("empty to cancel:\r\n")
    assert f"Trust {place.project}?" in " ".join(shown.split()) and ".pi/prompts" in shown
    terminal.type(f"{typed}\n")
    assert terminal.end() == (0, "Hello.\n" if typed in "12" else "What?\n")
    file = place.agent / "trust.json"
    assert file.exists() is (kept is not None)
    if kept is not None:
        assert json.loads(file.read_text()) == {str(place.project): kept["trusted"]}
        again = Terminal(place, *arguments)
        assert again.end()[0] == 0 and "empty to cancel" not in again.seen


def test_a_person_is_asked_whether_to_go_on_at_a_far_side(place: Place) -> None:
    model = place.script("One.", "Two.")
    assert place.run("--model", model, "-p", "hi").returncode == 0
    file, ran = session_file(place), place.project / "ran"
    note = {"type": "custom", "customType": "spindle.exec", "data": {"command": f"touch {ran}"}}
    last = json.loads(file.read_text().splitlines()[-1])
    entry = note | {"id": "abcd0001", "parentId": last["id"], "timestamp": last["timestamp"]}
    with file.open("a") as text:
        text.write(f"{json.dumps(entry)}\n")
    for typed in ("n", "y"):
        terminal = Terminal(place, "--model", model, "-c", "-p", "more")
        assert f"touch {ran}" in terminal.read_until("anything else is no:\r\n")
        terminal.type(f"{typed}\n")
        assert terminal.end()[0] == 1 and ran.exists() is (typed == "y")
        assert ("worked at the far side" in terminal.seen) is (typed == "n")


def test_a_change_is_shown_and_its_input_can_be_edited(place: Place) -> None:
    (place.project / "f").write_text("one\ntwo\n")
    (place.project / "editor.sh").write_text('sed -i s/zwei/edited/ "$1"\n')
    place.env["VISUAL"] = f"sh {place.project}/editor.sh"
    edits = [{"oldText": "two", "newText": "zwei"}]
    call = {"calls": [{"name": "edit", "arguments": {"path": "f", "edits": edits}}]}
    model = place.script(call, call, "done")
    terminal = Terminal(place, "--no-session", "--model", model, "--permission-mode", "default", "-p", "go")
    shown = terminal.read_until("empty to cancel:\r\n")
    assert "Change f (+1 −1)? (no rule allows it)" in shown and "newText" not in shown
    assert "\x1b[31m-2 two\x1b[0m\r\n\x1b[32m+2 zwei\x1b[0m" in shown
    terminal.seen = ""
    terminal.type("e\n")
    again = terminal.read_until("empty to cancel:\r\n")  # the same call: there is no `two` any more
    assert "It would fail: " in again
    assert (place.project / "f").read_text() == "one\nedited\n"
    terminal.type("n\n")
    terminal.read_until("Why not? ")
    terminal.type("Enough.\n")
    code, out = terminal.end()
    assert (code, out) == (3, "done\n")


# -- help everywhere -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor", "--help"],
        ["--help", "doctor"],
        ["models", "-h"],
        ["models", "pull", "--help"],
        ["sessions", "--help"],
        ["sessions", "delete", "--help"],
        ["trust", "--help"],
        ["schema", "--help"],
        ["--no-session", "--help"],
    ],
)
def test_help_works_everywhere_at_the_width_of_the_terminal(
    here: None, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    try:
        assert main(arguments) == 0
    except SystemExit as leaving:
        assert leaving.code == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.lower().startswith("usage: spindle")
    names = ("  -", "  spindle ", "  git diff")
    assert [line for line in said.out.splitlines() if len(line) > 60 and not line.startswith(names)] == []


@pytest.mark.parametrize(
    "arguments", [["sessions", "lst"], ["models", "pull", "x"], ["trust", "a", "b"], ["schema", "x"], ["doctor", "-x"]]
)
def test_wrong_usage_of_a_command_is_one_line(
    here: None, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"Error: spindle {arguments[0]}")
    assert said.err.count("\n") == 1
