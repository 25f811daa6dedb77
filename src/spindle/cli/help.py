"""The help text, made of the table of options."""

from .args import OPTIONS

__all__ = ["help_text"]

_HEAD = """\
Usage: spindle [options] [--] [@files...] [messages...]
       spindle doctor | models [SEARCH] | sessions ... | trust [--no] [DIR] | schema

Spindle is a coding agent without a face: programs drive it (--mode rpc, --remote), scripts run it (-p, --mode json).
Text piped in and the contents of @files go before the first message; further messages follow one by one.

Options:
"""
_TAIL = """
Models without an account: ollama/NAME, llamacpp/NAME, lmstudio/NAME, vllm/NAME use a server on this machine;
scripted/FILE.json plays a script.

Files: settings.json, models.json, auth.json, skills/, prompts/, extensions/, AGENTS.md in the agent directory
(SPINDLE_DIR, else PI_CODING_AGENT_DIR, else ~/.pi/agent), and .pi/ in a project that you trust (--approve).
"""


def help_text() -> str:
    lines = []
    for option in OPTIONS:
        if option.field:
            left = ", ".join(option.names) + (f" {option.value}" if option.value else "")
            lines.append(f"  {left:<34} {option.help}")
    return _HEAD + "\n".join(lines) + "\n" + _TAIL
