"""From the command line to an agent."""

import os
import sys
from typing import TYPE_CHECKING

from spindle.agent.create import AgentOptions, create_session
from spindle.agent.extension_loading import ExtensionOptions
from spindle.agent.session import AgentSession
from spindle.cli.args import Options, UsageError, unknown_options
from spindle.cli.session_choice import choose_session
from spindle.cli.tell import warn
from spindle.config.user_files import report
from spindle.resources.loader import ResourceOptions, load_resources

if TYPE_CHECKING:
    from spindle.extensions.runtime import Front

__all__ = ["assemble", "resource_options"]


def resource_options(options: Options) -> ResourceOptions:
    return ResourceOptions(
        system_prompt=options.system_prompt,
        append_system_prompt=options.append_system_prompt,
        skills=options.skills,
        no_skills=options.no_skills,
        prompt_templates=options.prompt_templates,
        no_prompt_templates=options.no_prompt_templates,
        extensions=options.extensions,
        no_extensions=options.no_extensions,
        no_context_files=options.no_context_files,
        no_rules=options.no_rules,
        approve=options.approve,
    )


async def assemble(options: Options, mode: str) -> AgentSession:
    """Make the agent a command line asks for. Raises `AgentError`, `SessionError`, `UsageError` with a text to show."""
    resources = load_resources(os.getcwd(), resource_options(options))
    store = choose_session(options, resources.settings)
    resources.move_to(store.get_cwd())
    report(resources.diagnostics, verbose=options.verbose)
    agent = await create_session(
        store,
        AgentOptions(
            model=options.model,
            provider=options.provider,
            api_key=options.api_key,
            thinking=options.thinking,
            models=options.models,
            tools=[] if options.no_tools else options.tools,
            exclude_tools=options.exclude_tools,
            no_builtin_tools=options.no_builtin_tools,
            provider_session_id=options.provider_session_id,
            mode=mode,
            extensions=ExtensionOptions(flags=options.unknown, front=_terminal() if mode == "print" else None),
            warn=warn,
        ),
        resources,
    )
    # Only now is it known which options extensions have added, and which model it is.
    problem = unknown_options(options, agent.extensions.flags())
    if options.api_key and agent.choice.model is None:
        problem = problem or "--api-key needs a model to be for: name one with --model"
    if problem:
        await agent.close()
        raise UsageError(problem)
    for found in (resources.registry.error, resources.registry.auth.problem):
        if found:
            warn(str(found))
    if options.name:
        agent.set_name(options.name)
    return agent


def _terminal() -> "Front | None":
    """Return where extensions may ask the user: here, if somebody sits here."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    from spindle.extensions.terminal import TerminalFront

    return TerminalFront()
