"""The life of extensions beside a session: installed, told of its beginning, replaced with it, ended.

A session without extensions pays for one look at the directories and nothing else.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from spindle.agent.extension_loading import ExtensionOptions, Generation, has_extensions, load_generation
from spindle.extensions.hooks import Hooks
from spindle.shapes.events import ExtensionError
from spindle.shapes.models import Model

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession
    from spindle.extensions.runtime import Front

__all__ = ["ExtensionHost"]

FINISH_S = 5.0


class ExtensionHost:
    def __init__(self, session: "AgentSession", options: ExtensionOptions) -> None:
        self._session = session
        self._options = options
        self._generation: Generation | None = None
        self._front: Front | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        """Work that ends with the session at the latest."""
        self._replacing = asyncio.Lock()

    # -- start -----------------------------------------------------------------------------------

    def install(self, generation: Generation) -> None:
        """Let the agent use these extensions from now on, in place of those before."""
        from spindle.agent.extension_runtime import ExtensionRuntime

        session, registry = self._session, generation.hooks.registry
        self._generation = generation
        registry.binding.bind(ExtensionRuntime(session, self, self.front))
        for extension in registry.extensions:
            for name, provider in extension.providers.items():
                try:
                    registry.binding.runtime.add_provider(name, provider.config, provider.stream)
                except ValueError as error:
                    generation.hooks.report(extension.path, "provider", error)
        session.toolbox.use_extension_tools(registry.tools().values())
        session.engine.hooks = generation.hooks
        session.engine.tools_changed()

    async def begin(self) -> None:
        """Tell extensions once that the session has begun, when there is somebody to hear what they say."""
        if self._generation is None:
            return
        if self._beginning is None:
            self._beginning = self.spawn(self._announce("startup", None))
        await asyncio.shield(self._beginning)

    async def announce(self, reason: str, previous: str | None) -> None:
        """Tell extensions that a session has begun, and why. Whoever calls `begin` meanwhile waits for it, too."""
        self._beginning = self.spawn(self._announce(reason, previous))
        await asyncio.shield(self._beginning)

    async def _announce(self, reason: str, previous: str | None) -> None:
        generation, hooks = self._generation, self._session.hooks
        if generation is None:
            return
        for failure in generation.failures:
            self._session.publish(ExtensionError(failure.path, "load", failure.error))
        if "session_start" in hooks.listening:
            await hooks.notify("session_start", reason=reason, previous_session_file=previous)
        if "resources_discover" in hooks.listening:
            why = "reload" if reason == "reload" else "startup"
            skills, prompts = await hooks.resources_discover(self._session.cwd, why)
            if skills or prompts:
                self._session.resources.set_extension_paths(skills=skills, prompts=prompts)
                self._session.engine.tools_changed()

    async def tell_restored(self, model: Model | None, level: str) -> None:
        """Tell extensions what a stored session has changed of the choice of model and thinking level."""
        choice, hooks = self._session.choice, self._session.hooks
        if choice.model != model and "model_select" in hooks.listening:
            await hooks.notify("model_select", model=choice.model, previous_model=model, source="restore")
        if choice.level != level and "thinking_level_select" in hooks.listening:
            await hooks.notify("thinking_level_select", level=choice.level, previous_level=level)

    # -- change ----------------------------------------------------------------------------------

    async def leave(self, reason: str, target: str | None = None) -> None:
        """Tell extensions that this is the end of their session. They stay in force until others take their place."""
        await self.finish()
        if "session_shutdown" in self._session.hooks.listening:
            await self._session.hooks.notify("session_shutdown", reason=reason, target_session_file=target)

    async def finish(self) -> None:
        """Let extensions come to the end of what has happened so far, for a while and without asking anybody."""
        if self._front is not None:
            self._front.withdraw()
        await self._session.hooks.caught_up(FINISH_S)

    async def replace(self) -> None:
        """Load extensions for the session that is open now; `announce` tells them of it."""
        session = self._session
        async with self._replacing:
            before = self._generation
            if before is None and not has_extensions(session.resources, self._options):
                return
            known = () if before is None else before.hooks.registry.extensions
            fresh = await load_generation(
                session.resources, self._options, session.toolbox.builtin, mode=session.mode, before=known
            )
            if before is not None:
                fresh.hooks.turn = before.hooks.turn  # a reload may come in the middle of a run
                for name in before.hooks.registry.providers():
                    session.resources.registry.unregister_provider(name)
            self.install(fresh)
            if before is not None:
                await before.hooks.retire()

    async def reload(self) -> None:
        """Load extensions, skills, templates and settings anew in mid-session."""
        await self.leave("reload")
        self._session.resources.reload()
        await self.replace()
        await self.announce("reload", None)

    async def close(self) -> None:
        """End everything that extensions began."""
        if self._generation is None:
            return
        from spindle.extensions.threads import end

        await end(self._tasks)
        await self.leave("quit")
        self._session.engine.hooks = Hooks()
        await self._generation.hooks.retire()

    # -- what others ask -------------------------------------------------------------------------

    @property
    def front(self) -> "Front":
        """Where dialogs are shown."""
        if self._front is None:
            self._front = self._options.front or self._make_front()
        return self._front

    def _make_front(self) -> "Front":
        from spindle.extensions.ui import NoFront, WireFront

        if self._session.mode not in ("rpc", "remote"):
            return NoFront()
        front = WireFront(self._session.publish, shared=self._session.mode == "remote")
        self._session.answers.register("extension_ui_response", front.receive)
        return front

    def flags(self) -> list[str]:
        """Return the command line options that extensions added."""
        return [] if self._generation is None else list(self._generation.hooks.registry.flags())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Start work that ends with the session at the latest."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever wants to know awaits the task; events told the others
