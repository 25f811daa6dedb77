"""Arguments become options: every name, every odd form, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.apps.cli.args import OPTIONS, Options, UsageError, parse, unknown_options
from spindle.apps.cli.subcommands import COMMANDS
from spindle.apps.cli.usage import help_text
from spindle.apps.words import WORDS


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        ("--provider p", "provider", "p"),
        ("--model a/b:high", "model", "a/b:high"),
        ("--model=a/b", "model", "a/b"),
        ("--api-key k", "api_key", "k"),
        ("--models a,b,,c", "models", ["a", "b", "c"]),
        ("--thinking xhigh", "thinking", "xhigh"),
        ("--system-prompt -x", "system_prompt", "-x"),
        ("--append-system-prompt a --append-system-prompt b", "append_system_prompt", ["a", "b"]),
        ("--mode rpc", "mode", "rpc"),
        ("-p", "print", True),
        ("--print", "print", True),
        ("-c", "continue_recent", True),
        ("--continue", "continue_recent", True),
        ("-r", "resume", True),
        ("--session s", "session", "s"),
        ("--session-id i", "session_id", "i"),
        ("--fork f", "fork", "f"),
        ("--session-dir d", "session_dir", "d"),
        ("--no-session", "no_session", True),
        ("-n x", "name", "x"),
        ("--name x", "name", "x"),
        ("--tools read,bash", "tools", ["read", "bash"]),
        ("-t read", "tools", ["read"]),
        ("-xt bash", "exclude_tools", ["bash"]),
        ("--exclude-tools bash", "exclude_tools", ["bash"]),
        ("-nbt", "no_builtin_tools", True),
        ("--no-builtin-tools", "no_builtin_tools", True),
        ("-nt", "no_tools", True),
        ("--no-tools", "no_tools", True),
        ("-e a -e b", "extensions", ["a", "b"]),
        ("--extension a", "extensions", ["a"]),
        ("-ne", "no_extensions", True),
        ("--skill a", "skills", ["a"]),
        ("-ns", "no_skills", True),
        ("--no-skills", "no_skills", True),
        ("--prompt-template a", "prompt_templates", ["a"]),
        ("-np", "no_prompt_templates", True),
        ("-nc", "no_context_files", True),
        ("--no-context-files", "no_context_files", True),
        ("-a", "approve", True),
        ("--approve", "approve", True),
        ("-na", "approve", False),
        ("--no-approve", "approve", False),
        ("--export f", "export", "f"),
        ("--list-models", "list_models", ""),
        ("--list-models gpt", "list_models", "gpt"),
        ("--verbose", "verbose", True),
        ("--offline", "offline", True),
        ("-h", "help", True),
        ("-v", "version", True),
        ("-V", "version", True),
        ("--provider-session-id i", "provider_session_id", "i"),
        ("--no-rules", "no_rules", True),
        ("--no-title", "no_title", True),
        ("--dialect pi-0.74", "dialect", "pi-0.74"),
        ("--updates delta", "updates", "delta"),
        ("--remote 127.0.0.1:1", "remote", "127.0.0.1:1"),
        ("--remote", "remote", "127.0.0.1:3838"),
        ("--remote-option max_queued=2", "remote_options", ["max_queued=2"]),
    ],
)
def test_option(argv: str, field: str, value: Any) -> None:
    expected = Options()
    setattr(expected, field, value)
    assert parse(argv.split()) == expected


@pytest.mark.parametrize(
    ("argv", "messages", "files"),
    [
        (["hello", "@a.txt", "there", "@b"], ["hello", "there"], ["a.txt", "b"]),
        (["-p", "hello", "more"], ["hello", "more"], []),
        (["-p", "@f", "x"], ["x"], ["f"]),
        (["-p", "--no-session", "x"], ["x"], []),
        (["--", "-x", "--model", "@f", "--"], ["-x", "--model", "--"], ["f"]),
        (["-", "@"], ["-", "@"], []),
        (["--list-models", "@x"], [], ["x"]),
        ([""], [""], []),
    ],
)
def test_messages_and_files(argv: list[str], messages: list[str], files: list[str]) -> None:
    options = parse(argv)
    assert (options.messages, options.files) == (messages, files)


def test_export_takes_the_next_word_as_target() -> None:
    options = parse(["--export", "in.jsonl", "out.html"])
    assert (options.export, options.messages) == ("in.jsonl", ["out.html"])


@pytest.mark.parametrize(
    ("argv", "unknown"),
    [
        (["--plan"], {"plan": True}),
        (["--plan", "fast", "-p", "go"], {"plan": "fast"}),
        (["--plan=fast", "-p", "go"], {"plan": "fast"}),
        (["--plan="], {"plan": ""}),
        (["--plan", "-p"], {"plan": True}),
        (["--plan", "@f"], {"plan": True}),
    ],
)
def test_unknown_long_options_are_kept(argv: list[str], unknown: dict[str, Any]) -> None:
    assert parse(argv).unknown == unknown


def test_unknown_options_that_no_extension_registered() -> None:
    options = parse(["--x", "--y=1", "--z"])
    assert unknown_options(options, ["x", "y", "z"]) is None
    assert unknown_options(options, ["x", "z"]) == "Unknown option: --y"
    assert unknown_options(options, ["z"]) == "Unknown options: --x, --y"
    assert unknown_options(parse(["--modle", "x"]), []) == "Unknown option: --modle. Did you mean --mode or --model?"
    assert unknown_options(parse(["--plam"]), ["plan"]) == "Unknown option: --plam. Did you mean --plan?"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["-x"], "Unknown option: -x"),
        (["-pe"], "Unknown option: -pe"),
        (["--model"], "--model needs a value (PATTERN)"),
        (["--mode", "tui"], '--mode must be one of text, json, rpc, acp, not "tui"'),
        (["--mode", "jsn"], '--mode must be one of text, json, rpc, acp, not "jsn". Did you mean json?'),
        (["--dialect=klingon"], '--dialect must be one of spindle, pi-0.74, pi-0.87, pi-1.5, xcsh, omp, not "klingon"'),
        (["--updates", "some"], '--updates must be one of full, delta, not "some"'),
        (["--no-session=yes"], "--no-session takes no value"),
    ],
)
def test_refused(argv: list[str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(argv)
    assert str(caught.value) == told


@pytest.mark.parametrize("argv", [["--theme", "x"], ["--no-themes"], ["--tui-mode", "full"], ["--use-theme", "dark"]])
def test_foreign_options_get_a_note(argv: list[str]) -> None:
    options = parse([*argv, "-p", "hello"])
    assert options.messages == ["hello"]
    assert len(options.notes) == 1
    assert argv[0] in options.notes[0]


def test_a_bad_thinking_level_is_refused_but_not_of_a_client() -> None:
    with pytest.raises(UsageError, match=r'Invalid thinking level "hgih"\. Did you mean high\?'):
        parse(["--thinking", "hgih"])
    options = parse(["--thinking", "enormous", "--mode", "rpc"])
    assert options.thinking is None
    assert 'Invalid thinking level "enormous"' in options.notes[0]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_help_lists_every_command_and_every_option_at_any_width(width: int) -> None:
    text = help_text(width=width)
    for name, command in COMMANDS.items():
        assert f"\n  spindle {name}" in text
        assert command.help
    for option in OPTIONS:
        assert all(name in text for name in option.names.split())
    for title in ("What may run:", "Session:", "Commands to set it up:", "Examples:", "Environment:", "Exit codes:"):
        assert title in text
    names = [line for line in text.splitlines() if line.startswith(("  ", "Usage")) and not line.startswith("    ")]
    assert [line for line in text.splitlines() if len(line) > width and line not in names] == []


# -- words that look like commands ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["docter"], 'Spindle has no command "docter". Did you mean spindle doctor?'),
        (["docter", "now"], "Did you mean spindle doctor?"),
        (["--no-session", "sesions", "list"], "Did you mean spindle sessions?"),
        (["DOCTOR"], "Did you mean spindle doctor?"),
        (["hello"], 'Spindle has no command "hello". To send it as a message: spindle -p hello'),
        *(
            ([word], f'Spindle has no command "{word}": ')
            for word, meant in WORDS.items()
            if meant.line and word not in COMMANDS
        ),
        (["resume"], 'Spindle has no command "resume": spindle -c goes on with the last session'),
        (["install", "npm:thing"], 'Spindle has no command "install": '),
    ],
)
def test_words_that_look_like_commands_are_no_prompts(argv: list[str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(argv)
    assert told in str(caught.value)
    assert "spindle -p" in str(caught.value)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "argv",
    [
        ["-p", "install"],
        ["install", "-p"],
        ["--", "install"],
        ["--mode", "json", "install"],
        ["--mode", "rpc", "install"],
        ["@file", "install"],
        ["fix the bug"],
        ["fix", "the", "bug"],
        ["run", "the", "tests"],
        ["why?"],
        ["--export", "s.jsonl", "page"],
        ["-p", "doctor"],
        ["--", "doctor"],
        ["hello world", "doctor"],
    ],
)
def test_messages_stay_messages(argv: list[str]) -> None:
    options = parse(argv)
    assert options.command is None
    assert options.messages


@pytest.mark.parametrize(
    ("argv", "name", "arguments"),
    [
        (["doctor"], "doctor", []),
        (["--session-dir", "d", "sessions", "list"], "sessions", ["list", "--session-dir", "d"]),
        (["--help", "models", "pull"], "models", ["pull", "--help"]),
        (["sessions", "show", "--", "-x"], "sessions", ["show", "--", "-x"]),
    ],
)
def test_commands_are_recognised_after_options(argv: list[str], name: str, arguments: list[str]) -> None:
    options = parse(argv)
    assert (options.command, options.command_arguments) == (name, arguments)


def test_the_key_is_not_shown() -> None:
    assert "sk-secret" not in repr(parse(["--api-key", "sk-secret"]))


@given(
    st.lists(
        st.sampled_from([name for option in OPTIONS for name in option.names.split()]) | st.text(max_size=5), max_size=6
    )
)
def test_any_command_line_is_read_or_refused(argv: list[str]) -> None:
    try:
        assert isinstance(parse(argv), Options)
    except UsageError as error:
        assert str(error)
        assert "\n" not in str(error) or any("\n" in argument for argument in argv)


def test_the_words_of_agent_cli_for_editors() -> None:
    assert parse(["--acp"]).mode == parse(["--acp", "--transport", "stdio"]).mode == "acp"
    server = parse(["--acp", "--transport", "wss", "--wssport", "9000"])
    assert (server.remote, server.notes) == ("127.0.0.1:9000", ["Editors connect to ws://127.0.0.1:9000/acp"])
    assert parse(["--acp", "--transport", "wss"]).remote == "127.0.0.1:8338"
    with pytest.raises(UsageError, match="go with --acp"):
        parse(["--wssport", "9000"])
