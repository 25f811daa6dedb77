"""Every `spindle …` that README.md and the manual print is a command line that makes sense, and what can be run is run.

Other tests run the programs of single pages: test_readme.py, tests/test_cookbook.py, tests/client/test_examples.py,
tests/remote/test_docs.py, tests/remote/test_http_page.py, tests/sessions/test_docs.py, tests/batch/test_example.py.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindle.apps.cli import models_command
from spindle.apps.cli.args import Options, UsageError, ignored_options, parse, parse_into
from spindle.apps.cli.main import load
from spindle.apps.cli.subcommands import COMMANDS
from spindle.base.settings import decode_settings
from spindle.models.model_registry import ModelRegistry

from .conftest import Place
from .test_readme import ROOT, newcomer, shell  # noqa: F401 - a fixture

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ENDS = {"|", "||", "&", "&&", ";", ")", ">", "<"}
WRONG_ON_PURPOSE = {"docter"}


def blocks(page: Path, *languages: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def commands_in(line: str) -> Iterator[list[str]]:
    """Yield what stands behind each `spindle` of a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quotation mark of the text
        return
    found: list[str] | None = None
    for word in [*words, ";"]:
        if word in ENDS:
            if found is not None:
                yield found
            found = None
        elif found is not None:
            found.append(word)
        elif word == "spindle":
            found = []


def printed() -> list[tuple[str, list[str]]]:
    """Return page and arguments of every command line; usage lines, with their brackets, are none."""
    found = []
    for page in PAGES:
        lines = [line for text in blocks(page, "sh", "bash", "console", "") for line in _lines(text)]
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        lines += [code.replace("\\|", "|") for code in re.findall(r"`([^`\n]*\bspindle [^`\n]*)`", text)]
        found += [(page.name, words) for line in lines for words in commands_in(line)]
    return [(page, words) for page, words in found if not any(word.startswith("[") for word in words)]


def _lines(text: str) -> list[str]:
    lines = text.replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if re.search(r"(^|\s|\()spindle\s", line + " ")]


def check(words: list[str]) -> None:
    """Raise `UsageError` if a command line makes no sense."""
    options = parse(words)
    given = options.command_arguments
    command = COMMANDS[options.command] if options.command else None
    if options.command == "models":
        known = given and given[0] in ("list", "pull", "remove", "show", "refresh")
        models_command.parser().parse_args(given if known else ["list", *given])
    elif command and command.mode:
        _no_slips(parse_into(Options(mode=command.mode), given), command.mode)
    elif command and callable(arguments := load(command.arguments)):
        head = given[: given.index("--")] if "--" in given else given
        if len(head) > 1:  # `spindle mcp add` alone is the name of a command
            arguments().parse_known_args(head)
    elif options.command is None and options.export is None:
        _no_slips(options, "remote" if options.remote else options.mode or ("text" if options.print else "chat"))


def _no_slips(options: Options, mode: str) -> None:
    if options.unknown or ignored_options(options, mode):
        raise UsageError(f"unknown or without effect: {options.unknown or ignored_options(options, mode)}")


def test_every_printed_command_makes_sense() -> None:
    commands = printed()
    assert len(commands) > 100
    problems = []
    for page, words in commands:
        try:
            # `spindle word` and the like name a thing; a command that is none would be refused.
            if words and words[0] not in WRONG_ON_PURPOSE and (words[0] in COMMANDS or words[0].startswith("-")):
                check(words)
        except UsageError as error:
            problems.append(f"{page}: spindle {shlex.join(words)}: {error}")
    assert problems == []


def test_what_is_refused_on_purpose_is_refused_as_shown(place: Place) -> None:
    shown = re.search(r"^\$ spindle docter\n(.*)\n```", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    assert shown is not None
    assert place.run("docter").stderr == shown[1] + "\n"


# -- what can be run is run ---------------------------------------------------------------------------


def test_the_tour_of_the_command_line(newcomer: Place) -> None:  # noqa: F811
    """The table of cli.md that says what to type, in one go."""
    table = (ROOT / "docs" / "cli.md").read_text().split("## Commands")[0]
    lines = [code.replace("\\|", "|") for code in re.findall(r"`([^`\n]*spindle [^`\n]*)`", table)]
    lines = [line for line in lines if " -p " in line or "json" in line]
    assert len(lines) > 8
    newcomer.write("project/shape.json", {"type": "object"})
    newcomer.write("agent/models.json", {"providers": {"anthropic": {"apiKey": "k", "baseUrl": "http://127.0.0.1:9"}}})
    skipped = ("word", "shape.json", "opus", "git diff")  # no such command; no such result; no such server; no git
    for line in lines:
        if not any(word in line for word in skipped):
            done = shell(newcomer, line)
            assert done.returncode == 0 and "one" in done.stdout, (line, done.stderr)


def test_coming_from_pi_and_a_clean_try(newcomer: Place) -> None:  # noqa: F811
    shell(newcomer, "spindle -p hello")
    (block,) = blocks(ROOT / "docs" / "from-pi.md", "sh")
    done = shell(newcomer, block)
    assert done.returncode == 0 and "hello" in done.stdout, done.stderr
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    clean = re.search(r"`(SPINDLE_DIR=[^`]*)`", page)
    assert clean is not None
    script = json.loads((newcomer.agent / "settings.json").read_text())["defaultModel"]
    done = shell(newcomer, f"{clean[1]} --model scripted/{script}")
    assert (done.returncode, done.stdout) == (0, "one\n"), done.stderr


def test_sessions_and_their_pages(newcomer: Place) -> None:  # noqa: F811
    shell(newcomer, "spindle --session-id 01a1e154 -p hello; spindle --session session.jsonl -p hello")
    (lines,) = blocks(ROOT / "docs" / "sessions.md", "sh")
    assert lines.count("01a1e154") == 6
    # What is deleted cannot be exported; without an answer to its question nothing is.
    asked = "spindle sessions delete 01a1e154"
    done = shell(newcomer, lines.replace(asked, f"{asked} || echo kept"))
    assert (done.returncode, "\nkept\n" in done.stdout) == (0, True), done.stderr
    assert (newcomer.project / "one.jsonl").exists()
    (lines,) = blocks(ROOT / "docs" / "sessions.md", "bash")
    assert shell(newcomer, lines).returncode == 0
    assert (newcomer.project / "page.html").exists() and list(newcomer.project.glob("pi-session-*.html"))


def test_servers_are_written_where_the_page_says(place: Place) -> None:
    page = (ROOT / "docs" / "mcp.md").read_text()
    added = re.findall(r"^\$ (spindle mcp add .*)\n(.*)$", page, re.MULTILINE)
    assert len(added) == 3
    for line, answer in added:
        (words,) = commands_in(line)
        done = place.run(*words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.strip() == answer.replace("~/.pi/agent", str(place.agent))
    listed = place.run("mcp", "list").stdout
    shown = re.search(r"^notes \(http\): failed\n(.*)$", page, re.MULTILINE)
    assert shown is not None
    assert shown[0].replace("~/.pi/agent", str(place.agent)) in listed


def test_transcripts_about_models(place: Place) -> None:
    page = (ROOT / "docs" / "providers.md").read_text()
    for command in ("spindle models show openai/gpt-5.5", "spindle login"):
        shown = re.search(rf"^\$ {re.escape(command)}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        assert shown is not None
        done = place.run(*command.split()[1:], env={"OPENAI_API_KEY": "k"})
        assert (done.stdout, done.stderr, done.returncode) == (shown[1], "", 0)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="a line of the page needs openssl")
def test_a_token_made_as_the_page_says_is_taken(newcomer: Place) -> None:  # noqa: F811
    (line,) = [
        line for text in blocks(ROOT / "docs" / "remote.md", "bash") for line in text.splitlines() if "openssl" in line
    ]
    assert shell(newcomer, line).returncode == 0
    process = newcomer.start("--remote", "127.0.0.1:0", "--remote-token-file", "token")
    assert process.stderr and process.stderr.readline().startswith(b"Listening on ")
    process.terminate()
    process.communicate(timeout=20)


# -- files that are printed ---------------------------------------------------------------------------


def printed_json(name: str) -> list[Any]:
    return [json.loads(text) for text in blocks(ROOT / "docs" / name, "json")]


def test_settings_as_printed_are_understood() -> None:
    for value in (*printed_json("settings.md"), *printed_json("permissions.md")):
        assert decode_settings(value)[1] == []


def test_models_and_keys_as_printed_are_understood(place: Place) -> None:
    models = [value for value in printed_json("providers.md") if "providers" in value]
    settings = ("providers", "fallback", "roles")
    keys = [value for value in printed_json("providers.md") if not value.keys() & {*settings}]
    assert len(models) == 2 and len(keys) == 3
    place.write("agent/models.json", models[0])
    place.write("agent/auth.json", {name: entry for value in keys for name, entry in value.items()})
    registry = ModelRegistry(place.agent)
    assert (registry.error, registry.auth.problem, registry.auth.flaws()) == (None, None, [])
    big, opus = registry.find("work", "big"), registry.find("anthropic", "claude-opus-4-8")
    assert big is not None and opus is not None
    assert (big.context_window, big.cost_unknown, opus.max_tokens) == (200000, False, 16000)
    assert opus.base_url == "https://proxy.example.com/anthropic"


def test_servers_as_printed_are_understood(place: Place) -> None:
    from spindle.plugins.mcp.server_config import Servers

    (value, *_) = [value for value in printed_json_lines("mcp.md") if "mcpServers" in value]
    servers = Servers()
    servers.add_file(place.write("project/.mcp.json", value))
    assert not servers.problems and set(servers.configs) == {"files", "tracker"}


def printed_json_lines(name: str) -> list[Any]:
    """Return the JSON blocks that hold one value."""
    found = []
    for text in blocks(ROOT / "docs" / name, "json"):
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found
