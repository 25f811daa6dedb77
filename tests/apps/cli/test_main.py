"""What starting costs and says: versions, modules that stay out, sub-commands, bad usage, closed standard files."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Place

HEAVY = ("asyncio", "msgspec", "dataclasses", "argparse", "inspect", "ssl", "aiohttp", "yaml", "importlib.metadata")


def imported(place: Place, *arguments: str) -> set[str]:
    done = place.program(sys.executable, "-X", "importtime", "-m", "spindle", *arguments)
    assert done.returncode == 0, done.stderr[-500:]
    return set(re.findall(r"^import time:.*\|\s*(\S+)$", done.stderr, re.MULTILINE))


@pytest.mark.parametrize("option", ["--version", "-v", "-V"])
def test_version_imports_nothing_heavy(place: Place, option: str) -> None:
    modules = imported(place, option)
    assert "spindle.apps.cli" in modules
    assert not modules & set(HEAVY)


def test_a_run_leaves_out_what_it_does_not_use(place: Place) -> None:
    modules = imported(place, "--no-session", "--model", place.script("hi"), "-p", "hello")
    unused = {
        "aiohttp",
        "yaml",
        "difflib",
        "PIL",
        "argparse",
        "importlib.metadata",
        "http.client",
        "spindle.llm.anthropic",
        "spindle.protocol.outbox",
        "spindle.wires.stdio",
    }
    assert not modules & unused


def test_version_is_bare(place: Place) -> None:
    done = place.run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", done.stdout)
    assert place.run("--no-session", "-v").stdout == done.stdout


def test_under_the_name_pi_the_version_is_that_of_its_wire(place: Place) -> None:
    program = place.root / "pi"
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom spindle.apps.cli import main\nsys.exit(main())\n")
    program.chmod(0o755)
    for arguments in (["--version"], ["--no-session", "--version"]):
        assert place.program(program, *arguments).stdout == "1.5.0\n"
    # For adapters that check an older one.
    assert place.program(program, "--version", env={"SPINDLE_DIALECT": "pi-0.87"}).stdout == "0.87.1\n"


def test_reading_nothing_takes_few_milliseconds(place: Place) -> None:
    """CPU time of reading all resources, against that of importing the modules that read them."""
    program = (
        "import time; a = time.process_time()\n"
        "from spindle.resources.loader import load_resources\n"
        "b = time.process_time(); load_resources('.'); c = time.process_time()\n"
        "print(b - a, c - b)"
    )
    importing, reading = map(float, place.program(sys.executable, "-c", program).stdout.split())
    assert reading < importing / 2


@pytest.mark.parametrize("option", [["-x"], ["--mode", "tui"], ["--model"]])
def test_bad_usage_is_one_line(place: Place, option: list[str]) -> None:
    done = place.run(*option)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_nothing_is_written_by_looking(place: Place) -> None:
    for arguments in (["--version"], ["--help"], ["--list-models"], ["doctor"]):
        place.run(*arguments)
    assert list(place.agent.iterdir()) == []
    assert list((place.root / "home").iterdir()) == []
    assert os.listdir(place.project) == []


def test_schema_is_json(place: Place) -> None:
    assert "get_state" in json.loads(place.run("schema").stdout)["commands"]


def test_a_reader_that_leaves_is_no_traceback(place: Place) -> None:
    writer = place.start("schema")
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.read(10)
    writer.stdout.close()
    assert b"Traceback" not in writer.stderr.read()
    writer.stderr.close()
    assert writer.wait(30) in (0, 1)


def test_module_and_script_are_the_same(place: Place) -> None:
    script = Path(sys.executable).parent / "spindle"
    assert place.program(script, "--version").stdout == place.run("--version").stdout


@pytest.mark.parametrize("command", ["install", "list", "config"])
def test_commands_of_pi_are_not_sent_to_a_model(place: Place, command: str) -> None:
    done = place.run(command, "npm:thing")
    assert done.returncode == 2
    assert "-p" in done.stderr
    assert place.run("--no-session", "--model", place.script("ok"), "-p", command).stdout == "ok\n"


def test_a_directory_that_is_gone(place: Place) -> None:
    gone = place.root / "gone"
    gone.mkdir()
    leave = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})"
    program = f"{leave}; from spindle.apps.cli import main; raise SystemExit(main(['-p', 'x']))"
    done = place.program(sys.executable, "-c", program)
    assert (done.returncode, done.stderr) == (2, "Error: The current directory does not exist any more\n")


def test_ctrl_c_while_modules_load_is_no_traceback(place: Place) -> None:
    program = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'spindle.apps.cli.args': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from spindle.apps.cli import main\n"
        "raise SystemExit(main(['-p', 'x']))\n"
    )
    done = place.program(sys.executable, "-c", program)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_export(place: Place) -> None:
    place.run("--session", "s.jsonl", "--model", place.script("ok"), "-p", "hello")
    done = place.run("--export", "s.jsonl", "page.html")
    assert (done.returncode, done.stdout) == (0, "Exported to: page.html\n"), done.stderr
    assert "<html" in (place.project / "page.html").read_text().lower()
    missing = place.run("--export", "none.jsonl")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.count("\n") == 1


# -- errors at start ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [["-p", "x"], ["--mode", "json", "x"], ["--mode", "rpc"]])
def test_an_agent_directory_that_cannot_be_is_survived(place: Place, mode: list[str]) -> None:
    done = place.run("--model", place.script("ok"), *mode, env={"SPINDLE_DIR": "/" + "x" * 5000})
    assert done.returncode == 0
    assert done.stdout
    assert "File name too long" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("descriptors", range(4, 12))
def test_too_few_descriptors_are_told_or_enough(place: Place, descriptors: int) -> None:
    limited = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *place.command("--no-session", "--mode", "rpc")]
    done = place.program(*limited)
    assert done.returncode == 0 or "Too many open files" in done.stderr


# -- standard files that are closed or full -------------------------------------------------------


def with_files(place: Place, which: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it with a shell's redirection of stdin, stdout or stderr."""
    return place.program("sh", "-c", f'exec "$@" {which}', "sh", *place.command(*arguments))


full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
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
