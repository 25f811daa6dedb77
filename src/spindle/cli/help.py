"""The help text, made of the table of options and of what extensions add to it."""

import os
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from spindle.cli.args import OPTIONS, Options
from spindle.cli.assemble import resource_options
from spindle.cli.tell import warn

if TYPE_CHECKING:
    from spindle.agent.extension_loading import ExtensionOptions
    from spindle.extensions.record import Flag
    from spindle.resources.loader import Resources

__all__ = ["help_text", "run_help"]

_HEAD = """\
Usage: spindle [options] [--] [@files...] [messages...]
       spindle doctor | models [SEARCH] | sessions ... | trust [--no] [DIR] | schema

Spindle is a coding agent without a face: programs drive it (--mode rpc, --remote), scripts run it (-p, --mode json).
Text piped in and the contents of @files go before the first message; further messages follow one by one.

Options:
"""
_TAIL = """
Models without an account: local/NAME runs a file (see `spindle models list`); ollama/NAME, llamacpp/NAME,
lmstudio/NAME, vllm/NAME use a server on this machine; scripted/FILE.json plays a script.

Files: settings.json, models.json, auth.json, skills/, prompts/, extensions/, AGENTS.md in the agent directory
(SPINDLE_DIR, else PI_CODING_AGENT_DIR, else ~/.pi/agent), and .pi/ in a project that you trust (--approve).
"""


def help_text(flags: "Iterable[Flag]" = ()) -> str:
    """Return the text; `flags` are the options of extensions."""
    text = _HEAD
    for option in OPTIONS:
        if option.field:
            text += _line(", ".join(option.names) + (f" {option.value}" if option.value else ""), option.help)
    added = "".join(_line(f"--{flag.name}" + (" VALUE" if flag.type is str else ""), flag.help) for flag in flags)
    return text + (f"\nOptions of extensions:\n{added}" if added else "") + _TAIL


def _line(left: str, right: str) -> str:
    return f"  {left:<34} {right}".rstrip() + "\n"


def run_help(options: Options) -> int:
    """Print the help, with the options of the extensions that a run with these options would load."""
    from spindle.agent.extension_loading import ExtensionOptions, has_extensions
    from spindle.resources.loader import load_resources

    resources, given = load_resources(os.getcwd(), resource_options(options)), ExtensionOptions(flags=options.unknown)
    if has_extensions(resources, given):
        from spindle.cli.finish import run_and_exit

        run_and_exit(_run_with_extensions(resources, given))  # they may have begun threads that nobody ends
    print(help_text(), end="")
    return 0


async def _run_with_extensions(resources: "Resources", given: "ExtensionOptions") -> int:
    from spindle.agent.extension_loading import load_generation
    from spindle.tools.base import builtin_tools

    with redirect_stdout(sys.stderr):
        generation = await load_generation(resources, given, builtin_tools().get, mode="print")
    for failure in generation.failures:
        warn(str(failure))
    print(help_text(generation.hooks.registry.flags().values()), end="", flush=True)
    return 0
