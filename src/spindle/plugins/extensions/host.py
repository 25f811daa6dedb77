"""The life of extensions beside an agent: loaded, bound, told about sessions, replaced with them, ended.

An agent without extensions only looks at the directories: the code that loads extensions is imported when there is
one.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from spindle.agent import AgentError, OptionError
from spindle.agent.dialogs import Dialogs
from spindle.agent.hooks import Hooks
from spindle.agent.session import AgentSession
from spindle.base import limits
from spindle.base.agent_dir import agent_dir
from spindle.base.flow import Tasks
from spindle.base.user_files import BadFile, Standing
from spindle.plugins.extensions.discover import Candidate, find_candidates, known_as, project_code
from spindle.resources.loader import Resources
from spindle.resources.trust import NOT_AGREED, TrustStore, content_of, gated_paths
from spindle.shapes.events import ExtensionError, Notice
from spindle.tools.base import Tool

if TYPE_CHECKING:  # loaded only if there is an extension
    from spindle.plugins.extensions.generation import Flag
    from spindle.plugins.extensions.handlers import ExtensionHooks
    from spindle.plugins.extensions.loader import LoadFailure


FOREIGN = (
    "Extensions in TypeScript and JavaScript cannot be used here, not loaded "
    "(what they would forbid is not forbidden): {}"
)
"""Not left to `doctor`: an extension that the user relies on to forbid things is missing."""


class ExtensionOptions(Struct, frozen=True):
    """Options for extensions from a command line or a program, besides their paths."""

    factories: Sequence[Callable[[Any], Any]] = ()
    """Extensions of the embedding program: functions that take `agent`."""
    flags: Mapping[str, str | bool] = {}
    """Options of the command line that are not our own."""
    dialogs: Dialogs | None = None
    """Where the user is asked about a project's trust, before there is an agent."""
    warn: Callable[[str], None] = lambda text: None
    """Called with the problem of an extension that is left out."""


class ExtensionHost:
    """The `Plugins` of an agent. One generation of extensions is in force at a time."""

    def __init__(self, options: ExtensionOptions = ExtensionOptions()) -> None:  # noqa: B008 - frozen
        self._options = options
        self.hooks: ExtensionHooks | None = None
        """Hooks of the generation in force."""
        self._loaded: ExtensionHooks | None = None
        """Hooks of the generation that was loaded last; `bind` puts it in force."""
        self._failures: list[LoadFailure] = []
        self._retired: ExtensionHooks | None = None
        """Hooks of the previous generation, until it has ended."""
        self._agent: AgentSession | None = None
        self._untold: tuple[str, str | None] | None = None
        """Why the session begins and which session was before it, until extensions are told."""
        self._beginning: asyncio.Task[None] | None = None
        """The task that tells them."""
        self._unagreed: dict[Path, tuple[str, list[Candidate]]] = {}
        """Code of the project that the user has not agreed to: its content, and the extensions in it."""
        self._complained: set[Path] = set()
        """Those that were warned of at the start."""
        self._asking: asyncio.Task[None] | None = None
        self._tasks = Tasks()

    async def load(self, resources: Resources, builtin: Callable[[str], Tool | None], mode: str) -> None:
        candidates, foreign = find_candidates(resources, self._options.factories)
        if self.hooks is None and not candidates and not foreign:
            return
        from spindle.plugins.extensions.generation import Generation
        from spindle.plugins.extensions.handlers import ExtensionHooks
        from spindle.plugins.extensions.loader import forget_compiled, load_extensions, register_providers

        generation = Generation(self._options.flags, builtin)
        hooks = ExtensionHooks(generation)
        before = None if self.hooks is None else self.hooks.generation.extensions
        self._loaded = None
        # Code of the project is loaded after the decision about its trust, in which other extensions have a say.
        own = [candidate for candidate in candidates if candidate.source.scope != "project"]
        failures = await load_extensions(own, hooks, before=before)
        if "project_trust" in hooks.listening and await self._ask_for_trust(resources, hooks, mode):
            candidates, foreign = find_candidates(resources, self._options.factories)
        self._unagreed = self._not_agreed(resources, candidates)
        project = [
            candidate
            for candidate in candidates
            if candidate.source.scope == "project" and not any(candidate in left for _, left in self._unagreed.values())
        ]
        forget_compiled(project)
        failures += await load_extensions(project, hooks, before=before)
        if project:
            generation.sort([candidate.name for candidate in candidates])
        failures += register_providers(generation, resources.registry)
        self._loaded, self._failures = hooks, failures
        if self.hooks is None:  # at the start; later, events tell clients
            self._complain(foreign, generation.conflicts())

    def _complain(self, foreign: Sequence[Path], conflicts: Sequence[str]) -> None:
        for failure in self._failures:
            if failure.strict:
                raise (OptionError if failure.missing else AgentError)(str(failure))
            self._options.warn(str(failure))
        if foreign:
            self._options.warn(Standing(FOREIGN.format(", ".join(map(str, foreign)))))
        for conflict in conflicts:
            self._options.warn(Standing(conflict))
        for place in self._unagreed:
            self._options.warn(f"Cannot use {place}: {NOT_AGREED}")
            self._complained.add(place)

    def bind(self, agent: AgentSession, reason: str = "startup", previous: str | None = None) -> None:
        self._agent = agent
        self._untold = reason, previous
        fresh, self._loaded = self._loaded, None
        if fresh is None:
            return
        before, self.hooks = self.hooks, fresh
        if before is not None:
            fresh.turn = before.turn  # a reload may come in the middle of a run
            before.generation.binding.successor = self._command_context
        fresh.generation.binding.successor = self._command_context
        fresh.generation.binding.bind(agent)
        agent.use_extensions(fresh, fresh.generation.tools().values())
        self._retired = before

    def _command_context(self, path: str) -> Any:
        assert self.hooks is not None
        same = next((found for found in self.hooks.generation.extensions if found.path == path), None)
        return self.hooks.command_context(same)

    async def begin(self) -> None:
        if self._unagreed and self._asking is None:
            self._asking = self._tasks.spawn(self._ask_about_code(), "spindle-extensions-ask")
        untold, self._untold = self._untold, None
        if untold is not None and self.hooks is not None:
            self._beginning = self._tasks.spawn(self._begin(self.hooks, *untold), "spindle-begin")
        if self._beginning is not None and not self._beginning.done():
            # Not awaited itself: its errors stay in it, and it goes on if this wait is cancelled.
            await asyncio.wait([self._beginning])

    async def _begin(self, hooks: "ExtensionHooks", reason: str, previous: str | None) -> None:
        retired, self._retired = self._retired, None
        if retired is not None:
            await retired.retire()
        agent = self._agent
        assert agent is not None
        failures, self._failures = self._failures, []
        for failure in failures:
            agent.publish(ExtensionError(failure.path, "load", failure.error))
        await hooks.notify("session_start", reason=reason, previous_session_file=previous)
        skills, prompts = await hooks.resources_discover(agent.cwd, "reload" if reason == "reload" else "startup")
        if skills or prompts:
            agent.add_resources(skills, prompts)

    async def leave(self, reason: str, target: str | None = None) -> None:
        if self.hooks is None:
            return
        if self._beginning is not None and not self._beginning.done():  # a session must have begun before it ends
            await asyncio.wait([self._beginning], timeout=limits.EXTENSIONS_CATCH_UP)
            self._beginning.cancel()
        await self.hooks.notify("session_shutdown", reason=reason, target_session_file=target)
        self._untold = "reload", None

    async def close(self) -> None:
        if self.hooks is None or self._agent is None:
            return
        await self._tasks.end(limits.TASKS_END)
        await self._agent.hooks.caught_up(limits.EXTENSIONS_CATCH_UP)
        await self.leave("quit")
        self._agent.use_extensions(Hooks(), ())
        await self.hooks.retire()
        self.hooks.generation.binding.let_go()

    def flags(self) -> list["Flag"]:
        hooks = self._loaded or self.hooks
        return [] if hooks is None else list(hooks.generation.flags().values())

    # -- trust -----------------------------------------------------------------------------------

    def _not_agreed(
        self, resources: Resources, candidates: Sequence[Candidate]
    ) -> dict[Path, tuple[str, list[Candidate]]]:
        places = project_code(candidates, resources.cwd)
        store = TrustStore(agent_dir()) if places else None
        found = {}
        for place, inside in places.items():
            content = content_of(place)
            if store and not (content and store.is_agreed(known_as(place, resources), content, resources.trust)):
                found[place] = content, inside
        return found

    async def _ask_about_code(self) -> None:
        """Ask the user whether changed code of the project may be loaded; load it if so."""
        agent, agreed = self._agent, False
        assert agent is not None
        for place, (content, inside) in list(self._unagreed.items()):
            names = "\n".join(str(candidate.path) for candidate in inside)
            about = f"They are new, or have changed since you agreed to them. They run as you do:\n{names}"
            title = f"Load the extensions of {place}?"
            alone = not content or agent.resources.options.user_folder
            answer = None if alone else await agent.confirm("trust", title, about)
            if answer is not True or content_of(place) != content:
                if answer is not None or place not in self._complained:
                    agent.publish(Notice(f"Cannot use {place}: {NOT_AGREED}"))
                continue
            try:
                TrustStore(agent_dir()).agree(known_as(place, agent.resources), content)
                agreed = True
            except (BadFile, OSError) as error:
                agent.publish(ExtensionError(str(place), "load", str(error)))
        self._asking = None
        if agreed:
            await agent.reload()

    async def _ask_for_trust(self, resources: Resources, hooks: "ExtensionHooks", mode: str) -> bool:
        """Let extensions of the user decide about the project. Return whether that changed the extensions to load."""
        if resources.options.approve is not None or not gated_paths(resources.cwd):
            return False
        from spindle.plugins.extensions.generation import BeforeAgent

        hooks.generation.binding.place(BeforeAgent(str(resources.cwd), mode, self._options.dialogs))
        verdict = await hooks.project_trust(str(resources.cwd))
        if verdict is None:
            return False
        trusted, remember = verdict
        if remember:
            TrustStore(agent_dir()).remember(resources.cwd, trusted)
        before = resources.trust.trusted
        cwd = resources.cwd
        resources.options = replace(resources.options, ask_trust=lambda asked: trusted if asked == cwd else None)
        if trusted != before:
            resources.reload()
        return trusted != before
