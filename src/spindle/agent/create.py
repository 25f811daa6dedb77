"""Puts an agent together: resources, model, tools, session."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from spindle.agent import AgentError
from spindle.agent.dialogs import Dialogs
from spindle.agent.hooks import PluginChain, Plugins
from spindle.agent.model_choice import ModelState
from spindle.agent.permissions.approval import PermissionOptions
from spindle.agent.run.meter import RunLimits
from spindle.agent.session import AgentSession
from spindle.agent.toolbox import Toolbox
from spindle.base.agent_dir import agent_dir
from spindle.models.select import (
    ModelChoice,
    ModelNotFound,
    initial_model,
    resolve_model,
    resolve_scope,
    thinking_level,
)
from spindle.resources.loader import ResourceOptions, Resources, load_resources
from spindle.sessions.session import Session
from spindle.shapes.model import Model
from spindle.tools.base import DEFAULT_TOOLS, Tool, builtin_tools


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
    provider_session_id: str | None = None
    """Under this name the provider keeps what it can use again; None: the session's own id."""
    mode: str = "sdk"
    limits: RunLimits = RunLimits()
    """Of every run, unless its prompt sets others."""
    dialogs: Dialogs | None = None
    """Where the user is asked; None: as the mode has it."""
    permissions: PermissionOptions = PermissionOptions()
    warn: Callable[[str], None] = lambda text: None
    """Told of what is not as asked for but no reason to stop."""


async def create_session(
    session: Session, options: AgentOptions, resources: Resources | None = None, plugins: Plugins | None = None
) -> AgentSession:
    """Make the agent for a session. If that fails the session is closed: it must not stay locked.

    Raises `AgentError` for an unknown model, an extension that cannot be loaded, or a bad permission rule. `begin()`
    tells extensions of the session.
    """
    try:
        return await _create(session, options, resources, plugins or PluginChain())
    except BaseException:
        session.close()
        raise


async def _create(
    session: Session, options: AgentOptions, resources: Resources | None, plugins: Plugins
) -> AgentSession:
    if resources is None:
        resources = load_resources(session.cwd, ResourceOptions())
    toolbox = _toolbox(options, resources)
    await plugins.load(resources, toolbox.builtin, options.mode)  # first, because models may come from them
    agent = AgentSession(
        session,
        resources,
        _choose_model(session, options, resources),
        toolbox,
        mode=options.mode,
        plugins=plugins,
        dialogs=options.dialogs,
        provider_session_id=options.provider_session_id,
        permissions=options.permissions,
        limits=options.limits,
    )
    plugins.bind(agent)
    agent.offer_again()
    return agent


def dispose(agent: AgentSession) -> None:
    """Take a closed agent apart, which nothing may use any more, so that its memory is free at once.

    Its parts know each other. Left alone they would stay until the garbage collector looks at its oldest objects, which
    it does the less often the more of them there are.
    """
    parts = [*vars(agent).values(), *vars(agent._engine).values(), agent]
    for part in parts:
        if type(part).__module__.startswith(("spindle.agent.", "spindle.plugins.extensions.")) and hasattr(
            part, "__dict__"
        ):
            vars(part).clear()


def _choose_model(session: Session, options: AgentOptions, resources: Resources) -> ModelState:
    registry, settings = resources.registry, resources.settings
    try:
        chosen = _asked_for(options, resources)
    except ModelNotFound as error:
        raise AgentError(str(error)) from None
    if chosen is not None and isinstance(options.model, str) and not _is_named(options.model, chosen.model):
        options.warn(f"--model {options.model}: using {chosen.model.provider}/{chosen.model.id}")
    patterns = options.models or settings.enabled_models or ()
    scope, warnings = resolve_scope(patterns, registry.available()) if patterns else ([], [])
    start = initial_model(
        registry, settings, chosen=chosen, scope=scope, session=session.model() if session.has_messages() else None
    )
    if not options.models:
        warnings = []  # of the settings: `spindle doctor` tells
    for warning in [*warnings, chosen.warning if chosen else None, start.message]:
        if warning:
            options.warn(warning)
    if options.api_key and start.model is not None:
        registry.auth.api_keys[start.model.provider] = options.api_key
    level = thinking_level(
        start.model, settings, asked=options.thinking, given=start.level, session=session.thinking_level()
    )
    return ModelState(registry, start.model, level, scope, settings.default_thinking_level)


def _is_named(pattern: str, model: Model) -> bool:
    """Say whether a pattern is the whole name of a model, with or without its provider and a thinking level."""
    names = {model.id.lower(), f"{model.provider}/{model.id}".lower()}
    return pattern.lower() in names or pattern.lower().rpartition(":")[0] in names


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
