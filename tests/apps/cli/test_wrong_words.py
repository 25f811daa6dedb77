"""A command line, a file or a place that is wrong: one or two plain lines on stderr, and the exit code of the table."""

import json
import os
import re
import subprocess
from typing import Any

import pytest

from .conftest import Place


@pytest.fixture
def model(place: Place) -> list[str]:
    return ["--no-session", "--model", place.script("ok")]


def said(place: Place, *arguments: str, code: int = 2) -> str:
    """Run what must fail and return what it says: lines on stderr, nothing on stdout, no traceback."""
    done = place.run(*arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert 1 <= done.stderr.count("\n") <= 2
    return done.stderr


# -- options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--remote", "0", "--bogus"], "Unknown option: --bogus"),
        (["--remote", "0", "--modle", "x"], "Unknown option: --modle. Did you mean --mode"),
        (["--modle", "x"], "Unknown option: --modle. Did you mean --mode or --model? Nothing to do: give a message"),
        (["--remote", "0", "@notes.md"], "@file arguments do not go with a server"),
        (["serve", "--continue"], "--continue does not go with a server"),
        (["serve", "99999"], "A server needs a port or an address like 127.0.0.1:3838, not '99999'"),
        (["--mode", "acp", "@notes.md"], "@file arguments do not go with ACP"),
        (["--max-time", "-p", "hi"], "--max-time needs a value (SECONDS), and -p is an option"),
        (["--model", "--", "hi"], "--model needs a value (PATTERN), and -- is an option"),
        (["--model", "", "-p", "hi"], "--model is empty"),
        (["--max-turns", "1.5", "-p", "hi"], "--max-turns must be a whole number above 0, not '1.5'"),
        (["--attach", "ws://127.0.0.1:1", "-p", "hi"], "--attach is for the chat and does not go with -p"),
        (["--attach", "ws://127.0.0.1:1"], "The chat needs a terminal"),
        (["--json-schema", "none.json", "-p", "hi"], "--json-schema: cannot read none.json: No such file or directory"),
        (["--json-schema", "{", "-p", "hi"], "--json-schema is no JSON: "),
        (["--session-id", "../x", "-p", "hi"], "--session-id '../x': Session id must be"),
        (["--export", "a.jsonl", "b.html", "c.html"], '"c.html" is one name too many'),
        (["-p", "@/dev/zero", "hi"], "Cannot send /dev/zero: it has more than 64 MiB"),
        (["sessions", "--bogus"], "spindle sessions: unrecognized arguments: --bogus"),
        (["mcp", "lsit"], 'spindle mcp: unknown: "lsit". Did you mean list?'),
        (["mcp", "add"], "spindle mcp add: the following arguments are required: name"),
        (["mcp", "list", "--", "x"], "-- is for the command of a server"),
        (
            ["serve", "--port", "80"],
            "no option --port: the address is the first word, as in spindle serve 127.0.0.1:80",
        ),
        (["serve", "--bind=0.0.0.0"], "as in spindle serve 0.0.0.0:3838"),
        (["extension", "list"], 'Spindle has no command "extension": spindle extensions lists'),
        (["chat"], 'The chat needs a terminal; use spindle -p "…"'),
        (["batch", "t.jsonl", "-o", "out", "--output", "json"], "--output means nothing to spindle batch"),
    ],
)
def test_what_makes_no_sense_is_refused(place: Place, arguments: list[str], text: str) -> None:
    told = said(place, *arguments)
    assert told.startswith("Error: ") and text in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        (["--mode", "rpc", "--output", "json", "hi"], '--output, the message "hi" have no effect with --mode rpc'),
        (["--mode", "rpc", "-p"], "--print has no effect with --mode rpc"),
        (["--mode", "rpc", "--model", ""], "--model is empty and ignored"),
        (
            ["-p", "hi", "--remote-origin", "http://x", "--limit", "a=1"],
            "--remote-origin, --limit have no effect with -p",
        ),
        (["-p", "hi", "--redact"], "--redact has no effect with -p"),
        (["--mode", "json", "--output", "json", "hi"], "--output has no effect with --mode json"),
        (["-p", "hi", "-c"], "--continue has no effect with --no-session"),
    ],
)
def test_what_has_no_effect_is_told(place: Place, model: list[str], arguments: list[str], note: str) -> None:
    done = place.run(*model, *arguments)
    assert (done.returncode, done.stderr) == (0, f"Note: {note}\n")
    assert '"Note' not in done.stdout


@pytest.mark.parametrize("option", ["--tools", "--exclude-tools"])
def test_a_tool_that_is_almost_ours_is_told_to_clients_too(place: Place, model: list[str], option: str) -> None:
    done = place.run(*model, "--mode", "rpc", option, "bsh,my_own_tool")
    assert (done.returncode, done.stderr) == (0, 'Warning: There is no tool "bsh". Did you mean bash?\n')


def test_a_provider_that_is_almost_one_is_named(place: Place) -> None:
    told = said(place, "--provider", "antropic", "-p", "hi", code=2)
    assert told.startswith('Error: Unknown provider "antropic". Did you mean anthropic?')


def test_a_rule_of_the_command_line_for_no_tool_is_a_wrong_command_line(place: Place, model: list[str]) -> None:
    assert "Did you mean Bash?" in said(place, *model, "--deny", "Bsh(rm *)", "-p", "hi", code=2)


@pytest.mark.parametrize("word", ["run", "exec"])
def test_run_and_exec_ask_once(place: Place, model: list[str], word: str) -> None:
    done = place.run(word, "hello", *model)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_commands_without_a_word_list_what_there_is(place: Place) -> None:
    for command, word in (("mcp", "login"), ("completion", "fish")):
        done = place.run(command)
        assert done.returncode == 0 and done.stdout.startswith("Usage: ") and word in done.stdout


def test_doctor_knows_what_trust_has_remembered(place: Place) -> None:
    place.run("trust")
    assert f"project: trusted (remembered for {place.project}" in place.run("doctor").stdout


def test_a_server_tells_it_too_and_serves(place: Place, model: list[str]) -> None:
    process = place.start(*model, "--remote", "0", "--mode", "json", "hi")
    assert process.stderr
    assert process.stderr.readline() == b'Note: --mode, the message "hi" have no effect with a server\n'
    assert process.stderr.readline().startswith(b"Listening on ")
    process.terminate()
    process.communicate(timeout=20)


def test_a_server_knows_the_options_of_extensions(place: Place, model: list[str]) -> None:
    place.write("agent/extensions/flag.py", "def extension(agent):\n    agent.flag('deep', type=bool)\n")
    process = place.start(*model, "--remote", "0", "--deep")
    assert process.stderr and process.stderr.readline().startswith(b"Listening on ")
    process.terminate()
    process.communicate(timeout=20)


def test_an_editor_gets_a_warning_for_an_unknown_option(place: Place, model: list[str]) -> None:
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
    opened = {"jsonrpc": "2.0", "method": "session/new", "params": {"cwd": str(place.project), "mcpServers": []}}
    process = place.start("acp", *model, "--bogus", stdin=subprocess.PIPE)
    assert process.stdin and process.stdout
    for number, request in enumerate([hello, opened, opened]):
        process.stdin.write(json.dumps({**request, "id": number}).encode() + b"\n")
        process.stdin.flush()
        while json.loads(process.stdout.readline()).get("id") != number:
            pass
    _, told = process.communicate(timeout=20)
    assert (process.returncode, told) == (0, b"Warning: Unknown option: --bogus\n")


# -- files -------------------------------------------------------------------------------------------

BROKEN = {
    "no JSON": '{"a": ',
    "no object": "[1, 2]",
    "more behind it": "{} x",
}


@pytest.mark.parametrize("mode", [["-p", "hi"], ["--mode", "rpc"]], ids=["-p", "rpc"])
@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_one_line_with_its_path(place: Place, model: list[str], mode: list[str], text: str) -> None:
    names = ["models.json", "auth.json", "mcp.json"]
    paths = [place.write(f"agent/{name}", text) for name in names]
    done = place.run(*model, *mode)
    assert done.returncode == 0 and done.stdout.count("\n") == 1
    lines = done.stderr.splitlines()
    assert len(lines) == len(names) and all(line.startswith("Warning: ") for line in lines)
    assert all(sum(str(path) in line for line in lines) == 1 for path in paths)
    assert "MCP server" not in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("auth.json", {"anthropic": "sk-secret"}, 'auth.json: anthropic: must be an object, as {"type": "api_key"'),
        ("auth.json", {"openai": {"type": "api_key", "key": 5}}, 'auth.json: openai: "key" must be a text'),
        ("auth.json", {"openrouter": {"type": "oauth"}}, 'auth.json: openrouter: the login has no "access" token'),
        ("settings.json", {"retry": 5}, "Setting retry: Expected object, got int, using the default (/"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told(place: Place, model: list[str], name: str, content: Any, told: str) -> None:
    place.write(f"agent/{name}", content)
    done = place.run(*model, "-p", "hi")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert told in done.stderr and done.stderr.count("\n") == 1 and "sk-secret" not in done.stderr
    if name == "auth.json":
        report = place.run("doctor", env={"PATH": ""})
        assert report.returncode == 1 and told.removeprefix("auth.json: ") in report.stdout


def test_a_rule_that_is_none_is_told_with_its_place(place: Place, model: list[str]) -> None:
    place.write("agent/settings.json", {"permissions": {"deny": ["Bash("]}})
    assert 'Not a permission rule (user settings): "Bash("' in said(place, *model, "-p", "hi", code=1)


def test_what_would_write_a_broken_file_names_it(place: Place) -> None:
    for name in ("auth.json", "mcp.json"):
        place.write(f"agent/{name}", "{")
    assert str(place.agent / "mcp.json") in said(place, "mcp", "add", "x", "--", "y", code=1)
    # Before anybody has signed in.
    assert str(place.agent / "auth.json") in said(place, "login", "openrouter", code=1)
    assert (place.agent / "auth.json").read_text() == "{"


def test_no_login_begins_where_it_cannot_be_kept(place: Place) -> None:
    place.agent.rmdir()
    place.write("agent", "a file")
    assert "The login could not be kept" in said(place, "login", "openrouter", code=1)


# -- standard files ----------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["doctor"], ["-p", "hi"], ["--mode", "rpc"]])
def test_a_full_disk_is_told(place: Place, model: list[str], arguments: list[str]) -> None:
    options = model if arguments[0] in ("-p", "--mode") else []
    with open("/dev/full", "w") as full:
        done = place.start(*options, *arguments, stdout=full)
        _, told = done.communicate(timeout=30)
    assert done.returncode == 1
    assert re.fullmatch(rb"Error: [^\n]*\n", told), told
    assert b"Errno" not in told


def test_a_closed_stdout_is_told(place: Place, model: list[str]) -> None:
    done = place.program("sh", "-c", 'exec "$@" >&-', "sh", *place.command(*model, "--mode", "rpc"))
    assert (done.returncode, done.stderr) == (1, "Error: Cannot write to stdout: Bad file descriptor\n")
