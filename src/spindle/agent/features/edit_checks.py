"""Checks that the user's settings want after an edit: `{"*.py": "ruff check {file}"}`.

A check is a program without a shell; `{file}` is one argument. It has two seconds. Only findings that were not there
before are told, at most ten lines, below the result of the edit: the model repairs its own mistakes at once and is not
sent after those of others.
"""

import asyncio
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from spindle.agent.conversation import Conversation
from spindle.agent.hooks import Hooks
from spindle.agent.run.options import Chain
from spindle.base import limits
from spindle.base.globs import PathGlob
from spindle.resources.loader import Resources
from spindle.shapes.builtin_tools import kind_of
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.tools.base import Tool, ToolError
from spindle.tools.files import resolve_path

_MOST_LINES = 10
_LINE_WIDTH = 300
_NUMBERS = re.compile(r"\d+")
Findings = Counter[str]
"""Lines of a check without their numbers: an edit moves the lines behind it."""


class ChecksPort(Protocol):
    """What checks need of the engine."""

    conversation: Conversation
    resources: Resources
    chain: Chain | None
    owner: Any
    sandbox: Callable[[], Any]


class EditChecks(Hooks):
    of_the_owner = True

    def __init__(self, commands: Mapping[str, str], port: ChecksPort) -> None:
        self._checks = [
            (PathGlob(pattern if "/" in pattern else f"**/{pattern}"), command) for pattern, command in commands.items()
        ]
        self._port = port
        self._known: dict[tuple[str, str], Findings] = {}
        """Findings after the last edit, by command and path."""

    async def tool_call(self, call_id: str, tool: Tool, args: Mapping[str, str]) -> Mapping[str, str]:
        path = self._edited(tool, args)
        if path is not None:
            await asyncio.gather(*(self._look_before(command, path) for command in self._commands(path)))
        return args

    async def tool_result(
        self, call_id: str, tool: Tool, args: Mapping[str, str], result: ToolResult, failed: bool
    ) -> tuple[ToolResult, bool]:
        path = None if failed else self._edited(tool, args)
        if path is not None:
            told = await asyncio.gather(*(self._look_after(command, path) for command in self._commands(path)))
            result.content = [*result.content, *(Text(text) for text in told if text)]
        return result, failed

    def _edited(self, tool: Tool, args: Mapping[str, str]) -> str | None:
        """Return the absolute path of the file that a call edits."""
        if kind_of(tool.name) != "edit" or not isinstance(args.get("path"), str):
            return None
        try:
            return resolve_path(args["path"], self._workdir, self._port.resources.workspace.home)
        except ToolError:
            return None

    @property
    def _workdir(self) -> str:
        return self._port.resources.workdir(self._port.conversation.session.cwd)

    def _commands(self, path: str) -> list[str]:
        parts = os.path.relpath(path, self._workdir).split(os.sep)
        return [command for glob, command in self._checks if glob.match(parts)]

    async def _look_before(self, command: str, path: str) -> None:
        if (command, path) not in self._known:
            self._known[command, path] = _findings(await self._run(command, path))

    async def _look_after(self, command: str, path: str) -> str:
        """Run a check, and return its new findings in words."""
        lines = await self._run(command, path)
        before, self._known[command, path] = self._known.get((command, path), Counter()), _findings(lines)
        left = Counter(before)
        new = []
        for line in lines:
            key = _NUMBERS.sub("#", line)
            if left[key]:
                left[key] -= 1
            elif line.strip():
                new.append(line[:_LINE_WIDTH])
        if not new:
            return ""
        more = f"\n… and {len(new) - _MOST_LINES} lines more" if len(new) > _MOST_LINES else ""
        said = command.replace("{file}", os.path.basename(path))
        return f"\n\n[New findings of `{said}`:]\n" + "\n".join(new[:_MOST_LINES]) + more

    async def _run(self, command: str, path: str) -> list[str]:
        """Return the lines that a check prints, unless it passes, and the remarks of the sandbox."""
        resources = self._port.resources
        workspace = resources.tool_settings(self._port.owner, self._port.sandbox()).workspace
        words = [word.replace("{file}", path) for word in shlex.split(command)]
        found = await workspace.look_at(path, words, self._workdir, limits.EDIT_CHECK)
        return [*found.remarks, *([] if found.passed else found.output.decode("utf-8", "replace").splitlines())]


def _findings(lines: list[str]) -> Findings:
    return Counter(_NUMBERS.sub("#", line) for line in lines)
