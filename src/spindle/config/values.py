"""Values in configuration files that stand for secrets kept elsewhere.

`!command` runs a shell command, `$NAME` and `${NAME}` read the environment anywhere in the text (`$$` and `$!` are
the plain characters), and a value that is nothing but the NAME of a set variable means that variable.
"""

import os
import re
from collections.abc import Mapping

from spindle import limits
from spindle.process import run

__all__ = ["UnresolvedValue", "is_resolvable", "referred_variables", "resolve_value"]

_NAME = r"[A-Z][A-Z0-9_]*"
_REFERENCE = r"\$(?:([$!])|\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))"


class UnresolvedValue(ValueError):
    """The value is not there; the text says where it was looked for, never what it is."""


def is_resolvable(value: str, env: Mapping[str, str] | None = None) -> bool:
    """Tell whether the value is there without running a command."""
    if value.startswith("!"):
        return len(value) > 1
    try:
        return bool(_interpolate(value, env or {}))
    except UnresolvedValue:
        return False


def referred_variables(value: str) -> set[str]:
    """Return the names of the variables that the value is read from."""
    if value.startswith("!"):
        return set()
    if "$" not in value:
        return {value} if re.fullmatch(_NAME, value) else set()
    return {match[2] or match[3] for match in re.finditer(_REFERENCE, value) if not match[1]}


async def resolve_value(value: str, env: Mapping[str, str] | None = None) -> str:
    """Return what the value stands for; `env` is looked at before the environment. Raises `UnresolvedValue`."""
    if value.startswith("!"):
        return await _run(value[1:].strip())
    return _interpolate(value, env or {})


def _interpolate(value: str, env: Mapping[str, str]) -> str:
    if "$" not in value:
        found = (env.get(value) or os.environ.get(value)) if re.fullmatch(_NAME, value) else None
        return found or value

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        name = match[2] or match[3]
        found = env.get(name) or os.environ.get(name)
        if not found:
            raise UnresolvedValue(f"environment variable: {name}")
        return found

    return re.sub(_REFERENCE, replace, value)


async def _run(command: str) -> str:
    # No grace: the group is killed as a whole, because a child of the command may be what hangs.
    done = await run(["/bin/sh", "-c", command], timeout=limits.CREDENTIAL_COMMAND, grace=0)
    text = done.output.decode("utf-8", "replace").strip()
    if done.timed_out or done.code != 0 or not text:
        raise UnresolvedValue(f"shell command: {command}")
    return text
