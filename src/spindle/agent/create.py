"""Puts an agent together: resources, model, tools, session."""

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from spindle.agent.errors import AgentError
from spindle.agent.extension_loading import ExtensionOptions, Generation, has_extensions, load_generation
from spindle.agent.model_state import ModelState
from spindle.agent.session import AgentSession
from spindle.agent.toolbox import Toolbox
from spindle.agent_dir import agent_dir
from spindle.models.select import (
    ModelChoice,
    ModelNotFound,
    initial_model,
    resolve_model,
    resolve_scope,
    thinking_level,
)
from spindle.resources.loader import ResourceOptions, Resources, load_resources
from spindle.sessions.manager import SessionManager
from spindle.shapes.models import Model
from spindle.tools.base import DEFAULT_TOOLS, Tool, builtin_tools

__all__ = ["AgentOptions", "create_session"]


class AgentOptions(Struct, frozen=True):
    model: str | Model | None = None
    """A pattern as on the command line, or a model of your own."""
    provider: str | None = None
    api_key: str | None = None
    thinking: str | None = None
    models: Sequence[str] = ()
    """Patterns of the scope that `cycle_model` goes round."""
    tools: Sequence[str | Tool] | None = None
    """Names of built-in tools and tools of your own; None: the default set."""
    exclude_tools: Sequence[str] = ()
    no_builtin_tools: bool = False
    system_prompt: str | None = None
    provider_session_id: str | None = None
    """Under this name the provider keeps what it can use again; None: the session's own id."""
    mode: str = "sdk"
    extensions: ExtensionOptions = field(default_factory=ExtensionOptions)
    warn: Callable[[str], None] = lambda text: None
    """Hears of things that are not as asked for but no reason to stop."""


async def create_session(
    store: SessionManager, options: AgentOptions, resources: Resources | None = None
) -> AgentSession:
    """Make the agent for a session, which is closed if that fails: it must not stay locked for nobody.

    Raises `AgentError` for an unknown model or an extension that cannot be loaded. Extensions hear of the session with
    `extensions.begin()`.
    """
    try:
        return await _create(store, options, resources)
    except BaseException:
        store.close()
        raise


async def _create(store: SessionManager, options: AgentOptions, resources: Resources | None) -> AgentSession:
    if resources is None:
        resources = load_resources(store.get_cwd(), ResourceOptions(system_prompt=options.system_prompt))
    toolbox = _toolbox(options, resources)
    generation = await _load_extensions(options, resources, toolbox)  # first, because models may come from them
    state = _choose_model(store, options, resources)
    session = AgentSession(store, resources, state, toolbox, mode=options.mode, extensions=options.extensions)
    session.engine.provider_session_id = options.provider_session_id
    if generation is not None:
        session.extensions.install(generation)
    return session


async def _load_extensions(options: AgentOptions, resources: Resources, toolbox: Toolbox) -> Generation | None:
    if not has_extensions(resources, options.extensions):
        return None
    generation = await load_generation(resources, options.extensions, toolbox.builtin, mode=options.mode)
    for failure in generation.failures:
        if failure.strict:
            raise AgentError(str(failure))
        options.warn(str(failure))
    for note in generation.notes:
        options.warn(note)
    for extension in generation.hooks.registry.extensions:
        for name, provider in extension.providers.items():
            try:
                resources.registry.register_provider(name, provider.config)
            except ValueError as error:
                options.warn(f"{extension.path}: {error}")
    return generation


def _choose_model(store: SessionManager, options: AgentOptions, resources: Resources) -> ModelState:
    registry, settings = resources.registry, resources.settings
    try:
        chosen = _asked_for(options, resources)
    except ModelNotFound as error:
        raise AgentError(str(error)) from None
    patterns = options.models or settings.enabled_models or ()
    scope, warnings = resolve_scope(patterns, registry.available()) if patterns else ([], [])
    start = initial_model(
        registry, settings, chosen=chosen, scope=scope, session=store.get_model() if store.has_messages() else None
    )
    for warning in [*warnings, chosen.warning if chosen else None, start.message]:
        if warning:
            options.warn(warning)
    if options.api_key and start.model is not None:
        registry.auth.api_keys[start.model.provider] = options.api_key
    level = thinking_level(
        start.model,
        settings,
        asked=options.thinking,
        given=start.level,
        session=store.get_thinking_level(),
    )
    return ModelState(registry, start.model, level, scope, settings.default_thinking_level)


def _asked_for(options: AgentOptions, resources: Resources) -> ModelChoice | None:
    if isinstance(options.model, Model):
        return ModelChoice(options.model)
    if options.model is None and options.provider is None:
        return None
    pattern, settings = options.model, resources.settings
    if pattern is None and options.provider == settings.default_provider:
        pattern = settings.default_model
    return resolve_model(resources.registry, pattern, options.provider)


def _toolbox(options: AgentOptions, resources: Resources) -> Toolbox:
    tools = builtin_tools(str(agent_dir() / "bin"))
    tools |= {tool.name: tool for tool in options.tools or () if isinstance(tool, Tool)}
    if options.tools is not None:
        names = [tool if isinstance(tool, str) else tool.name for tool in options.tools]
    elif options.no_builtin_tools:
        names = []
    else:
        wanted = resources.settings.default_tools
        names = list(DEFAULT_TOOLS if wanted is None else wanted)
    return Toolbox(tools, names, only_named=options.tools is not None, never=options.exclude_tools)
