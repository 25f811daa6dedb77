"""Puts an agent together: resources, model, tools, session."""

from collections.abc import Sequence
from dataclasses import dataclass

from spindle.resources.loader import ResourceOptions, Resources, load_resources
from spindle.sessions.manager import SessionManager
from spindle.tools.base import Tool
from spindle.tools.builtin import DEFAULT_TOOLS, builtin_tools
from spindle.types.models import Model

from .model_choice import ModelChoice
from .session import AgentSession
from .toolbox import Toolbox

__all__ = ["AgentOptions", "create_session"]


@dataclass(frozen=True, slots=True)
class AgentOptions:
    model: str | Model | None = None
    """A pattern as on the command line, or a model of your own."""
    provider: str | None = None
    thinking: str | None = None
    models: Sequence[str] = ()
    """Patterns of the scope that `cycle_model` goes round."""
    tools: Sequence[str | Tool] | None = None
    """Names of built-in tools and tools of your own; None: the default set."""
    exclude_tools: Sequence[str] = ()
    no_builtin_tools: bool = False
    system_prompt: str | None = None
    api_key: str | None = None
    mode: str = "sdk"


async def create_session(
    store: SessionManager, options: AgentOptions, resources: Resources | None = None
) -> AgentSession:
    """Make the agent for a session. Raises `AgentError` for an unknown model."""
    if resources is None:
        resources = load_resources(store.get_cwd(), ResourceOptions(system_prompt=options.system_prompt))
    choice = _choose_model(store, options, resources)
    return AgentSession(store, resources, choice, _toolbox(options, resources), mode=options.mode)


def _choose_model(store: SessionManager, options: AgentOptions, resources: Resources) -> ModelChoice:
    raise NotImplementedError


def _toolbox(options: AgentOptions, resources: Resources) -> Toolbox:
    tools = builtin_tools()
    own = [tool for tool in options.tools or () if isinstance(tool, Tool)]
    names = [tool if isinstance(tool, str) else tool.name for tool in options.tools] if options.tools is not None else None
    if names is None:
        wanted = [] if options.no_builtin_tools else resources.settings.default_tools
        names = list(DEFAULT_TOOLS) if wanted is None else list(wanted)
    tools |= {tool.name: tool for tool in own}
    return Toolbox(tools, [name for name in names if name not in options.exclude_tools])
