"""How every agent is made: a session and options become an agent with its tools, model, extensions and MCP servers.

Every wire and every application makes its agents here, so that the same options and the same files mean the same agent
everywhere. They choose the session and the directory before, and call `AgentSession.begin` afterwards.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spindle.agent import AgentError, OptionError
from spindle.agent.dialogs import Dialogs
from spindle.agent.features.background import ENDING_MODES
from spindle.agent.features.place import FarPlace, open_pipe, wanted_place
from spindle.agent.fences.options import PermissionOptions
from spindle.agent.hooks import PluginChain
from spindle.agent.model_choice import ModelState
from spindle.agent.session import AgentSession
from spindle.agent.toolbox import Toolbox
from spindle.base import limits
from spindle.base.agent_dir import agent_dir
from spindle.base.spelling import did_you_mean
from spindle.base.user_files import BadFile, Standing
from spindle.models.loopback import LOOPBACK
from spindle.models.model_registry import ModelRegistry
from spindle.models.select import (
    ModelChoice,
    ModelNotFound,
    find_model,
    initial_model,
    model_at,
    resolve_model,
    resolve_scope,
    thinking_level,
)
from spindle.plugins.extensions.host import ExtensionHost, ExtensionOptions
from spindle.plugins.mcp.mcp_host import McpHost, McpOptions, is_server_tool, mcp_host
from spindle.plugins.subagents import SUBAGENT, Subagents
from spindle.resources.agent_files import AgentDefinition
from spindle.resources.loader import ResourceOptions, Resources, load_resources
from spindle.sessions.session import Session
from spindle.shapes.builtin_tools import BUILTIN_TOOLS, default_tools
from spindle.shapes.model import Model
from spindle.shapes.run_limits import RunLimits
from spindle.shapes.tool_lists import NEIGHBOURS_TOOLS, bare, is_change, over, unmatched
from spindle.tools.base import Tool, builtin_tools

if TYPE_CHECKING:  # loaded only if there is a far side, or an extension
    from spindle.plugins.extensions.generation import Flag
    from spindle.workspace.pipe import Pipe


class AgentOptions(Struct, frozen=True):
    """How an agent is made."""

    model: str | Model | None = None
    """A pattern as on the command line, or a model of your own."""
    provider: str | None = None
    base_url: str | None = None
    """Where the model is asked, in place of its own address."""
    api_key: str | None = None
    thinking: str | None = None
    fallback: Sequence[str | Model] | None = None
    """Models that answer when the model cannot, in this order; None: as the settings have it."""
    models: Sequence[str] = ()
    """Patterns of the models that `cycle_model` goes through."""
    tools: Sequence[str | Tool] | None = None
    """Names of built-in tools and tools of your own; None: the default set."""
    exclude_tools: Sequence[str] = ()
    no_builtin_tools: bool = False
    provider_session_id: str | None = None
    """Id under which the provider caches; None: the session's own id."""
    mode: str = "sdk"
    limits: RunLimits = RunLimits()
    """For every run whose prompt sets no others."""
    interrupt_mode: str | None = None
    """Unless the settings have one."""
    dialogs: Dialogs | None = None
    """Where the user is asked; None: the mode decides."""
    permissions: PermissionOptions = PermissionOptions()
    warn: Callable[[str], None] = lambda text: None
    """Called with every problem that is no reason to stop."""
    resources: ResourceOptions = ResourceOptions()
    """Prompts, skills, context files, rules, paths of extensions, and whether the project is trusted."""
    factories: Sequence[Callable[[Any], Any]] = ()
    """Extensions of the embedding program: functions that take `agent`."""
    agents: Sequence[AgentDefinition] = ()
    """Subagents of the embedding program."""
    flags: Mapping[str, str | bool] = {}
    """Values of options that extensions add to the command line."""
    exec: str | None = None
    """A command that gives a pipe to a shell elsewhere, where tools work; empty: they work here. None: as the session
    or the settings say."""
    exec_cwd: str | None = None
    """The working directory there."""
    mcp_config: Sequence[str] = ()
    """Files with MCP servers, besides the user's file and those of a trusted project."""
    mcp_servers: Any = None
    """MCP servers of the program: by name, or a list as in ACP. False: there are none at all."""


async def make_agent(
    session: Session, options: AgentOptions, resources: Resources | None = None
) -> tuple[AgentSession, ExtensionHost]:
    """Make the agent for a session. If that fails the session is closed: it must not stay locked.

    `resources` are those of the session's directory, if they have been read already. Returns the agent and the host of
    its extensions, which knows what they have registered. Raises `AgentError` for an unknown model, an extension that
    cannot be loaded, a settings file that cannot be used, or a bad permission rule.
    """
    pipe: Pipe | None = None
    try:
        found = resources or load_resources(session.cwd, options.resources)
        if found.far is None:
            given = None if options.exec is None else FarPlace(options.exec, options.exec_cwd)
            if (place := wanted_place(session, given, found)) is not None:
                found.require_settings()
                pipe = await open_pipe(session, place, found)
                found = found.through(pipe)
        agent, extensions = await create_session(session, options, found)
        agent.pipe, agent.has_given_place = pipe, options.exec is not None
        return agent, extensions
    except BaseException as error:
        await session.leave()
        if pipe is not None:
            await pipe.close()
        if isinstance(error, BadFile):
            raise AgentError(str(error)) from None
        raise


async def create_session(
    session: Session, options: AgentOptions, resources: Resources
) -> tuple[AgentSession, ExtensionHost]:
    resources.require_settings()
    toolbox = _toolbox(options, resources)
    if options.tools is None and not options.no_builtin_tools:
        toolbox.restore(session.tools())
    extensions = _extension_host(options)
    plugins = PluginChain(extensions, *_mcp_host(options), *_subagents(options, toolbox))
    await plugins.load(resources, toolbox.builtin, options.mode)  # first, because plugins may bring models
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
    if options.interrupt_mode is not None and resources.settings.interrupt_mode is None:
        agent.configure(interrupt_mode=options.interrupt_mode)
    plugins.bind(agent.port)
    agent.prompting.offer_again()
    auth = resources.registry.auth
    for found in (resources.registry.error, auth.problem and auth.problem.message, *map(Standing, auth.flaws())):
        if found:
            options.warn(found)
    return agent, extensions


def check_tools(agent: AgentSession, wanted: Sequence[str | Tool]) -> None:
    """Raise `AgentError` for the name of a tool that does not exist. Extensions must have added theirs before."""
    tools = [tool.name for tool in agent.toolbox.all()]
    for name in unmatched([name for name in wanted if isinstance(name, str)], (*tools, *BUILTIN_TOOLS)):
        # Some built-in tools need a program, and the tools of MCP servers may not be known yet.
        if bare(name) not in NEIGHBOURS_TOOLS and not is_server_tool(bare(name)):
            near = did_you_mean(bare(name), tools)
            raise AgentError(f'Unknown tool "{name}".{near} There are: {", ".join(tools)}')


# -- extensions and MCP servers ------------------------------------------------------------------


async def extension_flags(options: AgentOptions, resources: Resources) -> list["Flag"]:
    """Load extensions without an agent, and return the options that they add to the command line.

    Errors go to `options.warn`, and text that extensions print goes to stderr.
    """
    extensions = _extension_host(options)
    with redirect_stdout(sys.stderr):
        try:
            await extensions.load(resources, builtin_tools().get, options.mode)
        except AgentError as error:
            options.warn(str(error))
    return extensions.flags()


def _extension_host(options: AgentOptions) -> ExtensionHost:
    return ExtensionHost(ExtensionOptions(options.factories, options.flags, options.dialogs, options.warn))


def _mcp_host(options: AgentOptions) -> list[McpHost]:
    names = [tool for tool in options.tools or () if isinstance(tool, str)] if _names_all(options) else None
    given = McpOptions(options.mcp_config, options.mcp_servers, options.warn, awaits=options.mode in ENDING_MODES)
    return mcp_host(given, names)


def _subagents(options: AgentOptions, toolbox: Toolbox) -> list[Subagents]:
    """Return what makes subagents, unless this agent is one."""
    return [] if options.mode == SUBAGENT else [Subagents(toolbox, _make_subagent, options.warn, options.agents)]


async def _make_subagent(
    session: Session,
    resources: Resources,
    model: ModelChoice,
    tools: Sequence[Tool],
    fallback: Sequence[str | Model] | None,
) -> AgentSession:
    options = AgentOptions(
        model=model.model, thinking=model.level, tools=tools, mode=SUBAGENT, mcp_servers=False, fallback=fallback
    )
    agent, _ = await make_agent(session, options, resources)
    return agent


# -- model and tools -----------------------------------------------------------------------------


def _choose_model(session: Session, options: AgentOptions, resources: Resources) -> ModelState:
    registry, settings = resources.registry, resources.settings
    check_fallback(registry, options.fallback or ())
    try:
        chosen = _asked_for(options, resources)
    except ModelNotFound as error:
        raise OptionError(str(error)) from None
    if chosen is not None and isinstance(options.model, str) and not _is_named(options.model, chosen.model):
        options.warn(f"--model {options.model}: using {chosen.model.provider}/{chosen.model.id}")
    patterns = options.models or settings.enabled_models or ()
    scope, warnings = resolve_scope(patterns, registry)
    start = initial_model(
        registry, settings, chosen=chosen, scope=scope, session=session.model() if session.has_messages() else None
    )
    if not options.models:
        warnings = []  # they are about the settings: `spindle doctor` shows them
    # Clients on a wire are told by an event; where the answer alone is printed there is none.
    for warning in [*warnings, chosen.warning if chosen else None, start.message if options.mode == "print" else None]:
        if warning:
            options.warn(warning)
    if options.api_key and start.model is not None:
        registry.auth.api_keys[start.model.provider] = options.api_key
    level = thinking_level(
        start.model, settings, asked=options.thinking, given=start.level, session=session.thinking_level()
    )
    role = "subagents" if options.mode == SUBAGENT else "main"
    default, fallback = settings.default_thinking_level, options.fallback
    return ModelState(registry, start.model, level, scope, default, start.message, fallback, role)


def check_fallback(registry: ModelRegistry, names: Sequence[str | Model], option: str = "fallback") -> None:
    """Raise `AgentError` for a model of a chain, or of another option, that is unknown.

    Servers on this machine are not asked yet.
    """
    for name in names:
        if isinstance(name, str) and name.partition("/")[0].lower() not in LOOPBACK:
            try:
                find_model(registry, name)
            except ModelNotFound as error:
                raise OptionError(f"{option}: {error}") from None


def _is_named(pattern: str, model: Model) -> bool:
    """Say whether a pattern is the whole name of a model, with or without its provider and a thinking level."""
    names = {model.id.lower(), model.full_name.lower()}
    return pattern.lower() in names or pattern.lower().rpartition(":")[0] in names


def _asked_for(options: AgentOptions, resources: Resources) -> ModelChoice | None:
    if options.base_url is not None:
        return model_at(resources.registry, options.model, options.base_url)
    if isinstance(options.model, Model):
        return ModelChoice(options.model)
    if options.model is None and options.provider is None:
        return None
    pattern, settings = options.model, resources.settings
    if pattern is None and options.provider == settings.default_provider:
        pattern = settings.default_model
    has_chain = options.fallback or settings.fallback
    try:
        choice = resolve_model(resources.registry, pattern, options.provider)
    except ModelNotFound:
        down = _of_this_machine(resources.registry, pattern or "", options.provider) if has_chain else None
        if down is None:
            raise
        return down
    if has_chain and choice.model.provider in LOOPBACK and choice.warning:  # it was silent: it is not waited for again
        resources.registry.rest(choice.model, limits.MODEL_RESTS)
    return choice


def _of_this_machine(registry: ModelRegistry, pattern: str, provider: str | None) -> ModelChoice | None:
    """Return a model of a server on this machine that is not running now; others answer in its place until it is."""
    name, _, model_id = pattern.partition("/") if provider is None else (provider, "", pattern)
    found = registry.find(name.lower(), model_id) if name.lower() in LOOPBACK else None
    return None if found is None else ModelChoice(found)


def _toolbox(options: AgentOptions, resources: Resources) -> Toolbox:
    tools = builtin_tools(str(agent_dir() / "bin"))
    tools |= {tool.name: tool for tool in options.tools or () if isinstance(tool, Tool)}
    wanted = resources.settings.default_tools
    names = list(default_tools(options.mode) if wanted is None else over(default_tools(options.mode), wanted))
    if options.no_builtin_tools and options.tools is None:
        names = []
    if options.tools is not None:
        names = over(names, _entries(options.tools))
    return Toolbox(tools, names, only_named=_names_all(options), never=options.exclude_tools)


def _entries(tools: Sequence[str | Tool]) -> list[str]:
    """Return a list of tools as text. A tool itself, beside entries that change a selection, is added to it."""
    sign = "+" if is_change([tool for tool in tools if isinstance(tool, str)]) else ""
    return [tool if isinstance(tool, str) else sign + tool.name for tool in tools]


def _names_all(options: AgentOptions) -> bool:
    """Say whether the user has named all tools."""
    return options.tools is not None and not is_change(_entries(options.tools))
