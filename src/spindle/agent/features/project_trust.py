"""Asks the user whether a project may bring its own settings, prompts and code, if nothing was decided about it.

The session has begun without them, and nothing waits for the answer. What the question names is what is agreed to: if
files change or are added while it is open, a yes does not count. What is agreed to is loaded when nothing runs.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spindle.base import limits
from spindle.base.agent_dir import agent_dir
from spindle.base.flow import Tasks
from spindle.base.user_files import BadFile
from spindle.resources.trust import SETTINGS, TrustDecision, TrustStore, begin_with, code_of, content_of, gated_paths
from spindle.shapes.approvals import Allow, Answer
from spindle.shapes.events import Notice, StateChanged

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession

AskForTrust = Callable[[str, str], Awaitable[Answer | None]]
"""Takes a title and a text. Returns None if there is no answer."""


class ProjectTrust:
    def __init__(self, agent: "AgentSession", ask: AskForTrust) -> None:
        self._agent = agent
        self._ask = ask
        self._asked: Path | None = None
        """The directory that the last question was about."""
        self._asking: asyncio.Task[None] | None = None
        self._is_open = False
        """Whether the question waits for an answer."""
        self._tasks = Tasks()

    def look(self) -> None:
        """Ask about the directory of the session, once. A question about the directory before is withdrawn."""
        cwd, found = self._agent.resources.cwd, self._agent.resources.trust
        if self._is_open and not (cwd == self._asked and found.is_open):
            self._tasks.cancel()
            self._is_open = False
        if found.is_open and cwd != self._asked:
            self._asked, self._is_open = cwd, True
            self._asking = self._tasks.spawn(self._put(cwd, found), "spindle-trust-ask")

    async def answered(self) -> None:
        """Return when the question is over."""
        if self._asking is not None:
            await asyncio.wait([self._asking])

    async def close(self) -> None:
        await self._tasks.end(limits.TASKS_END)

    async def _put(self, cwd: Path, found: TrustDecision) -> None:
        brought, code = before = await asyncio.to_thread(_brought, cwd)
        names = "\n".join(os.path.relpath(path, cwd) for path in brought)
        text = f"It brings its own settings, prompts or code, which is not loaded until you agree:\n{names}"
        if found.trusted:
            text = f"Its settings name programs that are new, or have changed since you agreed:\n{code[SETTINGS]}"
        answer = await self._ask(f"Trust {found.project}?", text)
        self._is_open = False
        if answer is None:
            self._asked = None  # whoever comes next is asked again
            return
        trusted, agent = isinstance(answer, Allow), self._agent
        if trusted and await asyncio.to_thread(_brought, cwd) != before:
            agent.publish(Notice("Project not trusted: its files have changed while you were asked", "warning"))
            return
        if answer.keep is not None:
            try:
                await asyncio.to_thread(TrustStore(agent_dir()).remember, found.project, trusted, code)
            except (BadFile, OSError) as error:
                agent.publish(Notice(f"Cannot remember it: {error}", "error"))
                return
        if not trusted:
            return
        await agent.lifecycle.wait_free()  # it takes no tools from a run, and no questions
        if answer.keep is None:
            begin_with(found.project, code)
            options = agent.resources.options
            agent.resources.options = replace(options, ask_trust=lambda asked: True if asked == cwd else None)
        await agent.reload()
        agent.publish(StateChanged())


def _brought(cwd: Path) -> tuple[dict[Path, str], dict[str, str]]:
    return {path: content_of(path) for path in gated_paths(cwd)}, code_of(cwd)
