"""From options to an agent: what it is made of, what is refused or warned about, and the help."""

import re
import sys

import pytest

from .conftest import Place


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--model", "claude-sonet-4-5x"], "anthropic/claude-sonnet-4-5"),
        (["--provider", "nobody", "--model", "x"], 'Unknown provider "nobody"'),
        (["--model", "anthropic/claude-opus-4-8"], "ANTHROPIC_API_KEY"),
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
        (["--model", "scripted/x", "--session-id", "../x"], "--session-id '../x': Session id must be"),
    ],
)
def test_bad_input_is_one_line(place: Place, arguments: list[str], told: str) -> None:
    done = place.run("-p", *arguments, "--", "hi")
    broken = told in ("ANTHROPIC_API_KEY", "missing.json")  # the command line itself is right
    assert (done.returncode, done.stdout) == (1 if broken else 2, "")
    errors = [line for line in done.stderr.splitlines() if not line.startswith("Warning: ")]
    assert len(errors) == 1
    assert told in errors[0]


def test_named_things_that_are_not_there_are_warnings(place: Place) -> None:
    options = ["--skill", "none.md", "--prompt-template", "none"]
    done = place.run("--no-session", "--model", place.script("ok"), *options, "-p", "x")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    warnings = done.stderr.splitlines()
    assert len(warnings) == 2
    for warning, name in zip(warnings, ["none.md", "none"], strict=True):
        assert warning.startswith("Warning: ")
        assert name in warning


@pytest.mark.parametrize("option", ["--tools", "--exclude-tools"])
def test_a_tool_that_does_not_exist_is_an_error(place: Place, option: str) -> None:
    done = place.run("--no-session", "--model", place.script("ok"), option, "read,bsh", "-p", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('Error: Unknown tool "bsh". Did you mean bash? There are: read, bash, ')
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("mode", [["-p", "x"], ["--mode", "rpc"]], ids=["print", "rpc"])
def test_a_tool_without_its_program_is_a_warning(place: Place, mode: list[str]) -> None:
    (place.root / "bin").mkdir()
    program = "import sys; sys.executable = '/none/python'; from spindle.apps.cli import main; sys.exit(main())"
    arguments = ["--no-session", "--model", place.script("ok"), "--tools", "read,grep", *mode]
    done = place.program(sys.executable, "-c", program, *arguments, env={"PATH": str(place.root / "bin")})
    assert done.returncode == 0 and ("rpc" in mode or done.stdout == "ok\n")
    assert done.stderr == "Warning: The tool grep needs ripgrep (rg), which is not installed\n"


def test_a_provider_alone_means_the_model_the_user_chose_of_it(place: Place) -> None:
    place.write("agent/settings.json", {"defaultProvider": "scripted", "defaultModel": place.script("ok")[9:]})
    assert place.run("--no-session", "--provider", "scripted", "-p", "x").stdout == "ok\n"


def test_a_session_that_cannot_be_saved_is_told_once(place: Place) -> None:
    place.write("file", "in the way")
    done = place.run("--session-dir", f"{place.root}/file", "--model", place.script("ok"), "-p", "x")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert done.stderr.startswith("Warning: Session cannot be saved")
    assert done.stderr.count("\n") == 1


def test_options_of_other_clients_are_accepted(place: Place) -> None:
    done = place.run(
        *("--no-title", "--no-skills", "--no-rules", "--thinking", "low", "--append-system-prompt", "be brief"),
        *("--provider-session-id", "p1", "--theme", "x", "--no-themes", "--no-session", "--model", place.script("ok")),
        *("-p", "hi"),
    )
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert done.stderr.count("Note: ") == 2


def test_flaws_of_files_are_left_to_doctor_unless_asked(place: Place) -> None:
    for number in range(30):
        place.write(f"agent/skills/B{number}/SKILL.md", f"---\nname: B{number}\ndescription: d\n---\n")
    place.write("agent/settings.json", {"steeringMode": "never"})
    arguments = ("--no-session", "--model", place.script("ok"), "-p", "hi")
    lines = place.run(*arguments).stderr.splitlines()
    assert len(lines) == 1
    assert "steeringMode" in lines[0]
    told = place.run("--verbose", *arguments).stderr
    assert told.count("Warning: ") == 31
    assert "model scripted/" in told and "session in memory" in told
    assert place.run("doctor").stdout.count("invalid characters") == 30


def test_broken_files_are_told_and_the_run_goes_on(place: Place) -> None:
    for name in ("models.json", "auth.json"):
        place.write(f"agent/{name}", "{ broken")
    done = place.run("--no-session", "--model", place.script("ok"), "-p", "hi")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert done.stderr.count("\n") == 2
    for name in ("models.json", "auth.json"):
        assert str(place.agent / name) in done.stderr
        assert (place.agent / name).read_text() == "{ broken"


# -- help ----------------------------------------------------------------------------------------


def test_help(place: Place) -> None:
    done = place.run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: spindle")


def test_help_tells_the_options_of_extensions(place: Place) -> None:
    place.write(
        "agent/extensions/plan.py",
        "def extension(agent):\n"
        "    agent.flag('plan', help='Plan first')\n"
        "    agent.flag('depth', type=str, help='How deep')\n",
    )
    place.write("agent/extensions/broken.py", "raise RuntimeError('boom')")
    done = place.run("--help")
    assert done.returncode == 0
    assert re.search(r"^  --plan +Plan first$", done.stdout, re.MULTILINE)
    assert re.search(r"^  --depth VALUE +How deep$", done.stdout, re.MULTILINE)
    assert "boom" in done.stderr
    assert "--plan" not in place.run("--help", "-ne").stdout


def test_help_is_not_disturbed_by_what_extensions_do_when_loaded(place: Place) -> None:
    place.write(
        "agent/extensions/busy.py",
        "import threading\n"
        "print('hello from busy')\n"
        "def extension(agent):\n"
        "    threading.Thread(target=threading.Event().wait).start()\n",
    )
    done = place.run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: spindle")
    assert done.stderr == "hello from busy\n"


# -- settings that cannot be used ------------------------------------------------------------------

BROKEN = '{"permissions": {"deny": ["Read(./.env)"],}}'


@pytest.mark.parametrize("name", ["agent/settings.json", "project/.pi/settings.json"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["-p", "x"],
        ["--mode", "rpc"],
        ["--mode", "json", "x"],
        ["--mode", "acp"],
        ["--remote", "127.0.0.1:0"],
        ["batch", "tasks.jsonl", "-o", "out"],
    ],
    ids=lambda words: words[0] + words[1],
)
def test_broken_settings_stop_the_start(place: Place, name: str, arguments: list[str]) -> None:
    path = place.write(name, BROKEN)
    place.write("project/tasks.jsonl", '{"id": "a", "prompt": "x"}\n')
    done = place.run(*arguments, "--approve", "--model", place.script("ok"))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Error: Cannot use {path}: " in done.stderr
    assert "No agent runs without its permission rules: mend the file" in done.stderr
    assert done.stderr.count("\n") == 1


def test_settings_that_are_a_link_to_themselves_stop_the_start(place: Place) -> None:
    place.agent.mkdir(exist_ok=True)
    (place.agent / "settings.json").unlink(missing_ok=True)
    (place.agent / "settings.json").symlink_to("settings.json")
    done = place.run("-p", "x", "--model", place.script("ok"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "settings.json: Too many levels of symbolic links" in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["doctor"], ["models"]], ids=str)
def test_broken_settings_do_not_stop_reports(place: Place, arguments: list[str]) -> None:
    place.write("agent/settings.json", BROKEN)
    done = place.run(*arguments)
    assert done.returncode == (1 if arguments == ["doctor"] else 0)
    assert done.stdout


def test_a_project_that_is_not_trusted_stops_nothing(place: Place) -> None:
    place.write("project/.pi/settings.json", BROKEN)
    assert place.run("-p", "x", "--model", place.script("ok")).stdout == "ok\n"
