"""Which model answers, how hard it thinks, and how it is asked; all may change between two turns.

`ModelState` is the choice itself. `ModelSwitch` changes it for a client or an extension: it writes the change into the
session, and tells the others.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from spindle.agent import AgentError
from spindle.agent.conversation import Conversation
from spindle.agent.hooks import HookChain
from spindle.agent.hub import Hub
from spindle.base import limits
from spindle.base.settings import Settings
from spindle.llm import stream as llm
from spindle.models.loopback import LOOPBACK
from spindle.models.model_registry import VIRTUAL, ModelRegistry
from spindle.models.select import ModelChoice, ModelNotFound, chain_of, not_restored, resolve_model
from spindle.sessions.session import Session
from spindle.shapes.events import Notice, StateChanged, ThinkingLevelChanged
from spindle.shapes.messages import Wire
from spindle.shapes.model import THINKING_LEVELS, Model, ThinkingLevel

if TYPE_CHECKING:  # loaded if there is a chain of models
    from spindle.agent.failover import ModelLine


class CycledModel(Wire):
    model: Model
    thinking_level: str
    is_scoped: bool


class ModelState:
    def __init__(
        self,
        registry: ModelRegistry,
        model: Model | None,
        level: ThinkingLevel,
        scope: Sequence[ModelChoice] = (),
        default_level: ThinkingLevel = "medium",
        notice: str | None = None,
        fallback: Sequence[str | Model] | None = None,
        role: str = "main",
    ) -> None:
        self.registry = registry
        self.fallback = fallback
        """Models that answer when the model cannot; None: as the settings have it."""
        self.role = role
        """The job of the model: `main`, or `subagents`."""
        self.line: ModelLine | None = None
        """The models for the run that is going on, if there are several."""
        self.routed: Model | None = None
        """The model that answers in the place of a virtual one, during a run."""
        self.notice = notice
        """What clients must still be told: the session had a model that cannot be used."""
        self.model = model
        self.scope = list(scope)
        self._default_level = default_level
        self.level: ThinkingLevel = model.clamp_thinking(level) if model else level

    @property
    def name(self) -> str | None:
        """Provider and id of the model."""
        return self.model.full_name if self.model else None

    @property
    def answering(self) -> Model | None:
        """The model that is asked: during a run perhaps another one than the chosen one."""
        if self.routed is not None:
            return self.routed
        return self.model if self.line is None else self.line.now.model

    def begin(self, settings: Settings, given: Sequence[str | Model] | None = None) -> None:
        """Begin a run. `given`: the chain of the request."""
        chain = self.chain(self.role, settings, given)
        if chain and self.model is not None:
            from spindle.agent.failover import ModelLine

            self.line = ModelLine(self.role, ModelChoice(self.model), chain, self.registry)

    def end(self) -> None:
        """End a run. The next one begins with the chosen model."""
        self.line = self.routed = None

    def chain(
        self, role: str, settings: Settings, given: Sequence[str | Model] | None = None
    ) -> Sequence[str | Model] | None:
        """Return the names of the models that do a job if the model cannot. `given`: those of the request."""
        given = self.fallback if given is None else given
        if given is not None or not settings.fallback or self.model is None:
            return given
        return chain_of(settings.fallback, role, self.model)

    def levels(self) -> list[ThinkingLevel]:
        return self.model.thinking_levels() if self.model else ["off"]

    def use(self, model: Model, level: ThinkingLevel | None = None) -> bool:
        """Switch models. Returns whether the thinking level changed with it."""
        came_from_plain = self.model is not None and not self.model.reasoning
        self.model, self.line, self.routed = model, None, None
        # A model that cannot think forces "off"; after such a model, the default level counts again.
        wanted = level or (self._default_level if came_from_plain and model.reasoning else self.level)
        return self.set_level(wanted)

    def look_again(self, settings: Settings) -> bool:
        """Choose a model as at the start. Returns whether there is one."""
        from spindle.models.select import initial_model, thinking_level

        found = initial_model(self.registry, settings, scope=self.scope)
        if found.model is not None:
            self.use(found.model, thinking_level(found.model, settings, given=found.level))
        return found.model is not None

    def restore(self, model: tuple[str, str] | None, level: str | None) -> None:
        """Use the model and the level of a stored session; `notice` says so if the model cannot be used."""
        current = (self.model.provider, self.model.id) if self.model else None
        if model is not None and model != current:  # a program's own model is not in the registry
            found = self.registry.find_available(*model)
            if found is None:
                going_on = f" Using {self.name}." if self.model else ""
                self.notice = not_restored(self.registry, *model) + going_on
            self.model = found or self.model
        self.set_level(level if level in THINKING_LEVELS else self._default_level)

    async def find(self, provider: str, model_id: str) -> tuple[Model, str | None]:
        """Return an available model, and a notice about it for the user, if there is one. Raises `AgentError`."""
        registry = self.registry
        if provider in LOOPBACK:
            return await self._find_on_server(provider, model_id)
        listed = registry.find(provider, model_id) if registry.has_credentials(provider) else None
        if listed and not registry.speaks(listed):
            raise AgentError(registry.no_api_text(listed))
        found = listed or registry.find_available(provider, model_id)
        if found is None:
            raise AgentError(f"Model not found: {provider}/{model_id}")
        guessed = f"{provider}/{model_id} is not in the catalogue; its limits and price are guesses"
        return found, None if listed else guessed

    async def _find_on_server(self, provider: str, model_id: str) -> tuple[Model, str | None]:
        """Find a model of a server on this machine, which is asked about a model that it has not listed."""
        for model in self.registry.all(provider):
            if model.id == model_id:
                return model, None
        try:
            choice = await asyncio.to_thread(resolve_model, self.registry, model_id, provider)
        except ModelNotFound as error:
            raise AgentError(f"Model not found: {provider}/{model_id} ({error})") from None
        if choice.model.id != model_id:
            raise AgentError(f"Model not found: {provider}/{model_id}")
        return choice.model, choice.warning

    def record(self, session: Session) -> None:
        """Write model and level into a new session; an old one gets at most the level, if that is missing."""
        if self.model is not None and session.model() is None and not session.has_messages():
            session.append_model_change(self.model.provider, self.model.id)
        if session.thinking_level() is None:
            session.append_thinking_level(self.level)

    def set_level(self, level: ThinkingLevel) -> bool:
        """Set the level, clamped to the model. Returns whether it changed."""
        new = self.model.clamp_thinking(level) if self.model else level
        changed, self.level = new != self.level, new
        return changed

    def next_level(self) -> ThinkingLevel | None:
        """Return the level after the current one, or None if the model has only one."""
        levels = self.levels()
        if len(levels) < 2:
            return None
        here = levels.index(self.level) if self.level in levels else -1
        return levels[(here + 1) % len(levels)]

    def next_model(self) -> tuple[Model, ThinkingLevel | None, bool] | None:
        """Return the next model of the scope (or of all available), its level, and whether a scope was used."""
        candidates = self.scope or [ModelChoice(model) for model in self.registry.available()]
        if len(candidates) < 2:
            return None
        current = (self.model.provider, self.model.id) if self.model else None
        here = next((i for i, c in enumerate(candidates) if (c.model.provider, c.model.id) == current), 0)
        chosen = candidates[(here + 1) % len(candidates)]
        return chosen.model, chosen.level, bool(self.scope)

    async def ask(
        self,
        request: llm.Request,
        settings: Settings,
        hooks: HookChain,
        session_id: str,
        on_disk: Callable[[], Awaitable[None]],
        max_tokens: int | None,
        line: "ModelLine | None" = None,
    ) -> AsyncGenerator[llm.Chunk, None]:
        """Send a request to the model, or to that of the line. Nothing of the answer is told before `on_disk` says that
        the conversation is on the disk: the disk works while the model thinks."""
        asked = self.model if line is None else line.now.model
        if asked is None:
            raise AgentError("No model selected")
        if is_virtual := asked.api == VIRTUAL:
            asked = await self._route(asked, request, hooks)
        if line is self.line:
            self.routed = asked if is_virtual else None
        auth = await self.registry.auth_for(asked)
        model = auth.at_its_address(asked)
        level = asked.clamp_thinking((None if line is None else line.now.level) or self.level)
        model = model.at_level(level)
        timeout = settings.retry.provider.timeout_ms
        timeout = settings.http_idle_timeout_ms if timeout is None else timeout
        options = llm.StreamOptions(
            api_key=auth.api_key,
            key_source=partial(self.registry.credential_source, model.provider),
            headers=auth.headers,
            env=auth.env,
            if_refused=auth.if_refused,
            renew=partial(self.registry.auth_after_refusal, model, auth) if auth.if_refused else None,
            reasoning=level,
            thinking_budgets=settings.thinking_budgets,
            max_tokens=max_tokens,
            session_id=session_id,
            idle_timeout=timeout / 1000 if timeout else None,
            connect_timeout=limits.CONNECT_OR_ELSE if line is not None and line.has_more else None,
            stall_timeout=settings.runaway.stall_seconds,
            max_chars=settings.runaway.max_answer_chars,
            proxy=settings.http_proxy,
            on_payload=hooks.before_provider_request if hooks.wants_payload else None,
            on_headers=hooks.before_provider_headers,
            on_response=hooks.after_provider_response,
        )
        chunks = self.registry.stream_for(model)(model, request, options)
        if llm.most_calls:
            chunks = llm.in_turn(model.provider, chunks)
        return llm.told_after(on_disk, chunks)

    async def _route(self, virtual: Model, request: llm.Request, hooks: HookChain) -> Model:
        """Return the model that answers a request to a virtual one. Raises `AgentError`."""
        from spindle.models.virtual import Router

        router = self.registry.stream_for(virtual)
        assert isinstance(router, Router)
        found = await router.target(request, self.registry)
        hooks.model_call(found)
        return found


class ModelPort(Protocol):
    """What a switch of models needs of the engine."""

    choice: ModelState
    conversation: Conversation
    hooks: HookChain
    hub: Hub


class ModelSwitch:
    def __init__(self, port: ModelPort) -> None:
        self._port = port

    def available(self) -> list[Model]:
        return self._port.choice.registry.available()

    @property
    def fallback(self) -> Sequence[str | Model] | None:
        """The models that answer when the model cannot, if the program has given them."""
        return self._port.choice.fallback

    def levels(self) -> list[ThinkingLevel]:
        """Return the thinking levels of the current model."""
        return self._port.choice.levels()

    async def set(self, provider: str, model_id: str) -> Model:
        """Switch to an available model, which answers from the next turn on. Raises `AgentError`."""
        model, note = await self._port.choice.find(provider, model_id)
        await self.use(model, None, "set")
        if note:
            self._port.hub.publish(Notice(note))
        return model

    async def cycle(self) -> CycledModel | None:
        """Switch to the next model; None if there is no other."""
        if (following := self._port.choice.next_model()) is None:
            return None
        model, level, scoped = following
        await self.use(model, level, "cycle")
        return CycledModel(model.shown(), self._port.choice.level, scoped)

    async def use(self, model: Model, level: ThinkingLevel | None, source: str) -> None:
        """Switch to a model, which need not be in the registry."""
        port, choice = self._port, self._port.choice
        previous, old_level = choice.model, choice.level
        level_changed = choice.use(model, level)
        port.conversation.session.append_model_change(model.provider, model.id)
        port.hub.publish(StateChanged())
        if level_changed:
            await self._tell_level(old_level)
        await port.hooks.notify("model_select", model=model, previous_model=previous, source=source)

    def set_level(self, level: ThinkingLevel) -> Coroutine[Any, Any, None]:
        """Set the thinking level at once, clamped to what the model supports. Await the result to tell extensions."""
        previous = self._port.choice.level
        return self._tell_level(previous) if self._port.choice.set_level(level) else asyncio.sleep(0)

    async def cycle_level(self) -> ThinkingLevel | None:
        """Go to the next thinking level; None if the model has only one."""
        if (level := self._port.choice.next_level()) is not None:
            await self.set_level(level)
        return level

    def _tell_level(self, previous: str) -> Coroutine[Any, Any, None]:
        """Write a new thinking level into the session and tell clients. Await the result to tell extensions."""
        port, level = self._port, self._port.choice.level
        port.conversation.session.append_thinking_level(level)
        port.hub.publish(ThinkingLevelChanged(level))
        return port.hooks.notify("thinking_level_select", level=level, previous_level=previous)
