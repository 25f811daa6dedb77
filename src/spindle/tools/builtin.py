"""The tools that come with the agent."""

from spindle.tools.base import Tool

__all__ = ["DEFAULT_TOOLS", "builtin_tools"]

DEFAULT_TOOLS = ("read", "bash", "edit", "write")
"""Active unless the user says otherwise."""


def builtin_tools() -> dict[str, Tool]:
    """Return all built-in tools by name, in the order they are listed to the model."""
    # Loaded on use: a program that only wants the names above pays for nothing else.
    from spindle.tools import bash, edit, find, grep, ls, read, write

    modules = (read, bash, edit, write, grep, find, ls)
    return {module.TOOL.name: module.TOOL for module in modules}
