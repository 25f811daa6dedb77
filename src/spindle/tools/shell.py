"""Which shell runs a command, and what it finds in its environment."""

import os
from collections.abc import Callable, Mapping

from spindle.tools.base import ToolError, ToolSettings
from spindle.tools.binaries import on_path
from spindle.tools.oserrors import os_error_text
from spindle.tools.process import Process
from spindle.tools.text import well_formed

__all__ = ["child_env", "start_shell"]

_SESSION_VARIABLES = ("PI_SESSION_ID", "PI_SESSION_FILE", "PI_PROVIDER", "PI_MODEL", "PI_REASONING_LEVEL")


def start_shell(
    command: str, cwd: str, settings: ToolSettings, env: Mapping[str, str], on_output: Callable[[bytes], None]
) -> Process:
    """Start `command` in the user's shell. Raises `ToolError` if that is not possible."""
    if settings.shell_command_prefix:
        command = f"{settings.shell_command_prefix}\n{command}"
    if "\0" in command:
        raise ToolError("Command must not contain null bytes")
    if not os.path.isdir(cwd):
        raise ToolError(f"Working directory does not exist: {cwd}\nCannot execute bash commands.")
    shell = _find_shell(settings.shell_path)
    argv = [shell, "-c", well_formed(command)]
    try:
        return Process(argv, cwd=cwd, env=child_env(settings, env), on_output=on_output)
    except OSError as error:
        raise ToolError(os_error_text(error, "spawn", shell)) from None


def child_env(settings: ToolSettings, extra: Mapping[str, str]) -> dict[str, str]:
    """Return our environment with our own programs on PATH, the marks of an agent, and `extra`."""
    env = dict(os.environ)
    for name in _SESSION_VARIABLES:  # Left by an agent that started us.
        env.pop(name, None)
    path = env.get("PATH", "")
    if settings.bin_dir and settings.bin_dir not in path.split(os.pathsep):
        env["PATH"] = f"{settings.bin_dir}{os.pathsep}{path}" if path else settings.bin_dir
    env["PI_CODING_AGENT"] = "true"
    env["AI_AGENT"] = "pi"
    env.update(extra)
    return env


def _find_shell(custom: str | None) -> str:
    if custom:
        if not os.path.exists(custom):
            raise ToolError(f"Custom shell path not found: {custom}")
        return custom
    return "/bin/bash" if os.path.exists("/bin/bash") else on_path("bash") or "sh"
