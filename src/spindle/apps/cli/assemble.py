"""Makes the agent that a command line asks for, and ends the process after its work."""

import asyncio
import os
import re
import sys
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from msgspec import Struct
from msgspec.structs import replace

from spindle.agent.fences.options import PermissionOptions
from spindle.agent.session import AgentSession
from spindle.apps.cli import end_of_start, tell, warn
from spindle.apps.cli.args import AnyOptions, Options, UsageError, unknown_options
from spindle.apps.cli.session_choice import choose_session
from spindle.base.spelling import did_you_mean
from spindle.base.terminal import guarded
from spindle.base.user_files import BadFile, Standing, report
from spindle.plugins.extensions.discover import find_candidates
from spindle.programs.children import kill_all
from spindle.recipe import AgentOptions, extension_flags, make_agent
from spindle.resources.loader import ResourceOptions, Resources, load_resources
from spindle.sessions.session import Session
from spindle.shapes.approvals import Allow, PermissionRequest, TextPreview
from spindle.shapes.builtin_tools import BUILTIN_TOOLS
from spindle.shapes.codec import DecodeError, decode
from spindle.shapes.run_limits import RUN_LIMITS, RunLimits
from spindle.shapes.sandbox import SandboxOptions, read_network, read_sandbox
from spindle.shapes.tool_lists import bare, unmatched

if TYPE_CHECKING:  # loaded only if there is a terminal
    from spindle.apps.cli.terminal import TerminalDialogs


def from_here(options: AnyOptions) -> AnyOptions:
    """Return the options with absolute paths, which mean the same to sessions that work in other directories."""
    here = os.getcwd()
    names = ("extensions", "skills", "prompt_templates", "append_system_prompt", "mcp_config")
    changed = {name: [_path(here, given) for given in getattr(options, name)] for name in names}
    prompt = options.system_prompt
    return replace(options, **changed, system_prompt=None if prompt is None else _path(here, prompt))


def _path(here: str, given: str) -> str:
    """Return the absolute path of an existing file or directory; another text stays as it is."""
    try:
        path = os.path.join(here, given)
        return path if os.path.exists(path) else given
    except ValueError:  # a whole prompt is no file name
        return given


def resource_options(options: Options) -> ResourceOptions:
    """Return what the command line says about resources: the options of the same names."""
    return ResourceOptions(**_same_named(ResourceOptions, options))


def resources_here(options: ResourceOptions) -> Resources:
    """Return the resources of the current directory. Raises `UsageError` if the settings cannot be used."""
    resources = load_resources(os.getcwd(), options)
    try:
        resources.require_settings()
    except BadFile as error:
        raise UsageError(str(error), 1) from None
    return resources


def _same_named(kind: type[Struct], options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in kind.__struct_fields__ if hasattr(options, name)}


async def assemble(options: Options, mode: str) -> AgentSession:
    """Make the agent a command line asks for. Raises `AgentError`, `SessionError`, `UsageError` with a text to show."""
    options = from_here(options)
    wanted = agent_options(options, mode)
    resources = resources_here(wanted.resources)
    session = choose_session(options, resources.settings, os.getcwd())
    resources = resources.at(session.cwd)
    report(resources.diagnostics, verbose=options.verbose)
    if wanted.exec is None and (dialogs := _terminal()) is not None and mode in ("chat", "print"):
        await _ask_about_place(session, resources, dialogs)
    agent, extensions = await make_agent(session, wanted, resources)
    # Only now is it known which options extensions have added, and which model it is.
    problem = unknown_options(options, [flag.name for flag in extensions.flags()])
    if options.api_key and agent.model is None:
        problem = problem or "--api-key needs a model to be for: name one with --model"
    if problem:
        await agent.close()
        raise UsageError(problem)
    if options.name:
        agent.set_name(options.name)
    tell_slips(options, agent)
    tell_unfenced(agent)
    end_of_start()
    return agent


async def _ask_about_place(session: Session, resources: Resources, dialogs: "TerminalDialogs") -> None:
    """Ask whether the command may run that leads to where the session worked, if it was never used here.

    Without a yes `make_agent` refuses the session.
    """
    from spindle.agent.features.place import UnknownPlace, agree_to, wanted_place

    try:
        wanted_place(session, None, resources)
    except UnknownPlace as unknown:
        preview = TextPreview(text=unknown.text)
        request = PermissionRequest(
            id=str(uuid.uuid4()), kind="place", session=session.id, summary=unknown.title, preview=preview, waits=False
        )
        if isinstance(await dialogs.approve(request), Allow):
            try:
                agree_to(unknown.command)
            except (BadFile, OSError) as error:
                warn(f"Cannot remember it: {error}")


def tell_slips(options: Options, agent: AgentSession) -> None:
    """Warn of tools that lack a program, and of names that are almost one of ours.

    Other unknown names may be tools that a client brings later; with -p and --mode json they are an error.
    """
    given = [*(options.tools or ()), *options.exclude_tools]
    known = [tool.name for tool in agent.toolbox.all()]
    for name in map(bare, unmatched(given, known) if given else ()):
        if name in BUILTIN_TOOLS:
            warn(f"The tool {name} needs ripgrep (rg), which is not installed")
        elif agent.mode in ("print", "json"):
            continue
        elif name.startswith("mcp__") and not agent.mcp_servers.serves(name):
            warn(f'There is no MCP server for the tool "{name}".{_servers(agent)}')
        elif near := did_you_mean(name, BUILTIN_TOOLS):
            warn(f'There is no tool "{name}".{near}')


def _servers(agent: AgentSession) -> str:
    names = [server.name for server in agent.mcp_servers.states()]
    return f" The servers are: {', '.join(names)}" if names else " No server is configured"


def agent_options(options: Options, mode: str) -> AgentOptions:
    """Return what the command line says about an agent. Raises `UsageError`."""
    given = _same_named(AgentOptions, options) | {"mode": mode, "fallback": options.fallback or None}
    if options.no_tools:
        given["tools"] = []
    elif options.tools == []:
        warn("--tools is empty: the model has no tools")
    return AgentOptions(
        **given,
        limits=run_limits(options),
        dialogs=_terminal() if mode == "print" else None,
        permissions=_permissions(options),
        warn=warn,
        resources=resource_options(options),
        flags=options.unknown,
        mcp_servers=False if options.no_mcp else None,
    )


def _permissions(options: Options) -> PermissionOptions:
    """Return the permission options. Raises `UsageError` for a mode or rule that makes no sense."""
    if options.permission_mode or options.allow or options.ask or options.deny:
        from spindle.agent.fences.rules import mode_named, rules_of

        try:
            mode_named(options.permission_mode or "bypass")
            rules_of("deny", [*options.allow, *options.ask, *options.deny], "command line")
        except ValueError as error:
            raise UsageError(str(error)) from None
    return PermissionOptions(
        options.permission_mode,
        options.allow,
        options.ask,
        options.deny,
        directories=[_folder(path) for path in options.add_dir],
        sandbox=_sandbox(options),
        on_question=options.on_question,
    )


def _folder(path: str) -> str:
    found = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(found):
        raise UsageError(f"--add-dir {path}: there is no such folder")
    return found


def _sandbox(options: Options) -> SandboxOptions:
    """Raises `UsageError`."""
    if not (options.sandbox or options.sandbox_writable or options.sandbox_network):
        return SandboxOptions()
    try:
        network = None if options.sandbox_network is None else read_network(options.sandbox_network)
        writable = [os.path.abspath(os.path.expanduser(path)) for path in options.sandbox_writable]
        return replace(read_sandbox(options.sandbox), writable=writable or None, network=network)
    except ValueError as error:
        raise UsageError(str(error)) from None


def tell_unfenced(agent: AgentSession) -> None:
    """Suggest a sandbox for an agent that asks no user and has none."""
    if agent.approval.state().mode == "dontAsk" and agent.approval.sandbox_for() is None:
        tell("Note", without_sandbox())


def without_sandbox() -> str:
    from spindle.workspace.sandbox import level_that_works

    return f"Commands run without a sandbox. A level would fence them: {level_that_works()}"


def run_limits(options: Options) -> RunLimits:
    """Return the limits of a run. Raises `UsageError`."""
    given = dict(options.run_limits)
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)", given["--max-time"]) if "--max-time" in given else None:
        given["--max-time"] = str(float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]])
    limits = [limit for limit in RUN_LIMITS if limit.option in given]
    return RunLimits(**{one.name: number_of(one.option[2:], given[one.option], one.type) for one in limits})


def number_of(name: str, text: str, kind: Callable[[str], float], least: int | None = None) -> Any:
    """Return the value of an option: above 0, or from `least` on. Raises `UsageError`."""
    try:
        value = kind(text)
        if (value > 0 if least is None else value >= least) and value < float("inf"):
            return value
    except ValueError:
        pass
    what = f"{'whole ' if kind is int else ''}number {'above 0' if least is None else f'from {least} on'}"
    raise UsageError(f"--{name} must be a {what}, not {text!r}")


def result_schema(options: Options) -> dict[str, Any] | None:
    """Return the JSON Schema that the result has to fit. Raises `UsageError`."""
    given = options.json_schema
    if given is None:
        return None
    try:
        text = given if given.lstrip().startswith("{") else Path(given).read_text()
        schema = decode(text)
    except OSError as error:
        raise UsageError(f"--json-schema: cannot read {given}: {error.strerror or error}") from None
    except (DecodeError, UnicodeError, ValueError) as error:
        raise UsageError(f"--json-schema is no JSON: {error}") from None
    if not isinstance(schema, dict):
        raise UsageError("--json-schema must be a JSON object")
    return schema


def _terminal() -> "TerminalDialogs | None":
    """Return dialogs on the terminal, if there is one."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    from spindle.apps.cli.terminal import TerminalDialogs

    return TerminalDialogs()


def take_stdout() -> TextIO:
    """Return the real stdout; all other prints go to stderr from now on."""
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", newline="")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return guarded(out)


def run_and_exit(work: Coroutine[Any, Any, int]) -> NoReturn:
    """Run the work to its end and exit at once with the code it returns; no child of ours outlives the process.

    The runner is not closed: it would wait for worker threads that may be blocked in the system forever.
    """
    end_telemetry = _begin_telemetry()
    try:
        code = asyncio.Runner().run(work)
    finally:
        kill_all()
    end_telemetry()
    sys.stderr.flush()
    os._exit(code)


def _begin_telemetry() -> Callable[[], None]:
    """Begin OpenTelemetry if the environment names a collector. Returns a function that ends it."""
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if not any(map(os.environ.get, names)) or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return lambda: None
    try:
        from spindle import otel
    except ImportError:
        from spindle.base.installation import extra_command

        warn(Standing(f"OTEL_EXPORTER_OTLP_ENDPOINT is set, and nothing is sent: {extra_command('otel')} adds that"))
        return lambda: None
    return otel.from_environment()


def run_help(options: Options) -> int:
    """Print the help, with the options of the extensions that a run with these options would load."""
    from spindle.apps.cli.usage import help_text

    resources = load_resources(os.getcwd(), resource_options(options))
    if any(find_candidates(resources, ())):
        run_and_exit(_help_with_extensions(options, resources))  # extensions may have started threads that never end
    print(help_text(), end="")
    return 0


async def _help_with_extensions(options: Options, resources: Resources) -> int:
    from spindle.apps.cli.usage import help_text

    flags = await extension_flags(AgentOptions(flags=options.unknown, mode="print", warn=warn), resources)
    print(help_text(flags), end="", flush=True)
    return 0
