"""`spindle completion`: the shells themselves say what they would offer."""

import shlex
import shutil
from pathlib import Path

import pytest

from spindle.apps.cli.args import OPTIONS
from spindle.apps.cli.subcommands import COMMANDS
from spindle.llm.local.pull import PULLABLE
from spindle.shapes.model import THINKING_LEVELS
from spindle.shapes.permission_modes import PERMISSION_MODES

from .conftest import Place

BASH = """
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _spindle; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ :; }}; source {script}
compadd() {{ while [[ $# -gt 0 && $1 != -- ]]; do shift; done; shift; print -l -- "$@"; }}
_describe() {{ print -l -- "${{(@)${{(P)2}}%%:*}}"; }}
_files() {{ :; }}
words=({words}); CURRENT=$#words; PREFIX=$words[-1]; _spindle | grep -e "^$PREFIX"
"""


def offered(place: Place, shell: str, *words: str) -> list[str]:
    """Return the words that a shell offers in place of the last word."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    script = place.root / f"completion.{shell}"
    if not script.exists():
        script.write_text(place.run("completion", shell).stdout)
    line = shlex.join(["spindle", *words])
    if shell == "bash":
        done = place.program("bash", "--norc", "-c", script.read_text() + BASH.format(words=line))
    elif shell == "zsh":
        done = place.program("zsh", "-f", "-c", ZSH.format(words=line, script=script))
    else:
        line = line.removesuffix("''")
        done = place.program("fish", "--no-config", "-c", f"source {script}; complete -C {shlex.quote(line)}")
    assert done.stderr == ""
    return [row.split("\t")[0] for row in done.stdout.splitlines() if row]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_words_are_offered_where_they_belong(place: Place, shell: str) -> None:
    assert set(offered(place, shell, "")) == COMMANDS.keys()
    assert set(offered(place, shell, "--model", "keys", "mo")) == {"models"}  # keys is the model here
    assert set(offered(place, shell, "--mode", "")) == {"text", "json", "rpc", "acp"}
    assert set(offered(place, shell, "serve", "--thinking", "")) == set(THINKING_LEVELS)
    assert set(offered(place, shell, "--permission-mode", "")) == set(PERMISSION_MODES)
    assert set(offered(place, shell, "sessions", "re")) == {"rename", "repair"}
    assert "anthropic" in offered(place, shell, "keys", "set", "an")
    assert set(offered(place, shell, "completion", "")) == {"bash", "zsh", "fish"}
    assert set(offered(place, shell, "models", "pull", "")) == PULLABLE.keys()
    every = {name for option in OPTIONS for name in option.names.split() if name.startswith("--")}
    assert set(offered(place, shell, "--")) == every
    assert "--remote-cert" in offered(place, shell, "web", "--remote-")
    assert offered(place, shell, "chat", "--remote-c") == []
    assert "--total-cost" in offered(place, shell, "batch", "--to")
    assert "--json" in offered(place, shell, "sessions", "list", "--")


def test_bash_completes_a_value_after_an_equals_sign(place: Place) -> None:
    assert offered(place, "bash", "--mode", "=", "r") == ["rpc"]


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_bash_completes_at_a_prompt(place: Place, tmp_path: Path) -> None:
    """As the user does it: interactive bash, Tab."""
    import os
    import pty
    import select
    import time

    (tmp_path / "rc").write_text(place.run("completion", "bash").stdout + "PS1='> '\nspindle() { echo \"ran $*\"; }\n")
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe(
            "bash", ["bash", "--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"], {**os.environ, "TERM": "dumb"}
        )
    shown, until = b"", time.monotonic() + 20
    os.write(terminal, b"spindle keys rem\tanth\t\n")
    try:
        while b"ran keys remove anthropic" not in shown and time.monotonic() < until:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 4096)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    assert b"ran keys remove anthropic" in shown
