"""From places on disk to a generation of extensions that is ready to be used, the question of trust included."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from spindle.agent_dir import agent_dir
from spindle.extensions.discover import Candidate, Place, find_extensions
from spindle.resources.loader import Resources
from spindle.resources.sources import Source
from spindle.resources.trust import TrustStore, gated_paths
from spindle.tools.base import Tool

if TYPE_CHECKING:  # loaded only if there is an extension
    from spindle.extensions.loader import LoadFailure
    from spindle.extensions.record import Extension
    from spindle.extensions.runner import ExtensionHooks
    from spindle.extensions.runtime import Front

__all__ = ["ExtensionOptions", "Generation", "has_extensions", "load_generation"]

FOREIGN = "Extensions in TypeScript and JavaScript cannot be used here, not loaded: {}"


class ExtensionOptions(Struct, frozen=True):
    """What a command line or a program says about extensions, besides their paths."""

    factories: Sequence[Callable[[Any], Any]] = ()
    """Extensions of the embedding program: functions that take `agent`."""
    flags: Mapping[str, str | bool] = {}
    """Options of the command line that are not our own."""
    front: "Front | None" = None
    """Where dialogs are shown; None: as the mode has it."""


class Generation(Struct, frozen=True):
    """Extensions that were loaded together."""

    hooks: "ExtensionHooks"
    failures: "list[LoadFailure]"
    notes: list[str]


async def load_generation(
    resources: Resources,
    options: ExtensionOptions,
    builtin: Callable[[str], Tool | None],
    *,
    mode: str,
    before: "Sequence[Extension] | None" = None,
) -> Generation:
    """Load every extension there is for the working directory. Nothing is bound to an agent yet.

    `before` are those that these are to replace.
    """
    from spindle.extensions.loader import load_extensions
    from spindle.extensions.registry import Registry
    from spindle.extensions.runner import ExtensionHooks

    registry = Registry(options.flags, builtin)
    hooks = ExtensionHooks(registry)
    candidates, foreign = _find(resources, options)
    # Code of the project comes after the decision about its trust, in which the others have a say.
    own = [candidate for candidate in candidates if candidate.place.scope != "project"]
    failures = await load_extensions(own, registry, hooks.context_for, before=before)
    if "project_trust" in hooks.listening and await _ask_for_trust(resources, hooks, options, mode):
        candidates, foreign = _find(resources, options)
    project = [candidate for candidate in candidates if candidate.place.scope == "project"]
    failures += await load_extensions(project, registry, hooks.context_for, before=before)
    if project:
        registry.sort([_path(candidate) for candidate in candidates])
    notes = [FOREIGN.format(", ".join(map(str, foreign)))] if foreign else []
    return Generation(hooks, failures, notes + registry.conflicts())


def has_extensions(resources: Resources, options: ExtensionOptions) -> bool:
    """Say whether there is anything to load or to tell of, without importing what it takes to load it."""
    return any(_find(resources, options))


def _find(resources: Resources, options: ExtensionOptions) -> tuple[list[Candidate], list[Path]]:
    named = [source for source in resources.extension_sources if source.source == "cli"]
    others = [source for source in resources.extension_sources if source.source != "cli"]
    places = [_place(source, resources.cwd) for source in [*named, *others]]
    places += [
        Place(getattr(factory, "__module__", "inline"), resources.cwd, "inline", "temporary", factory=factory)
        for factory in options.factories
    ]
    return find_extensions(places)


def _place(source: Source, cwd: Path) -> Place:
    base = source.base_dir or cwd
    return Place(
        # What is no path may be the name of a module or of an entry point.
        named=str(source.path.relative_to(base) if source.path.is_relative_to(base) else source.path),
        path=source.path,
        source=source.source,
        scope=source.scope,
        origin=source.origin,
        base_dir=source.base_dir,
        wanted=source.selection.allows,
        explicit=source.explicit,
        strict=source.source == "cli",
    )


def _path(candidate: Candidate) -> str:
    return str(candidate.path or candidate.place.named)


# -- trust ---------------------------------------------------------------------------------------


async def _ask_for_trust(resources: Resources, hooks: "ExtensionHooks", options: ExtensionOptions, mode: str) -> bool:
    """Let extensions of the user decide about the project. Returns whether that changed what there is to load."""
    if resources.options.approve is not None or not gated_paths(resources.cwd):
        return False
    hooks.registry.binding.place(_BeforeTrust(resources.cwd, mode, options.front))
    verdict = await hooks.project_trust(str(resources.cwd))
    if verdict is None:
        return False
    trusted, remember = verdict
    if remember:
        TrustStore(agent_dir()).remember(resources.cwd, trusted)
    before = resources.trust.trusted
    cwd = resources.cwd
    resources.options = replace(resources.options, ask_trust=lambda asked: trusted if asked == cwd else None)
    if trusted != before:
        resources.reload()
    return trusted != before


class _BeforeTrust:
    """The little there is of an agent while a project's trust is undecided: where, how, and whom to ask."""

    is_aborting = False

    def __init__(self, cwd: Path, mode: str, front: "Front | None") -> None:
        from spindle.extensions.ui import NoFront

        self.cwd = cwd
        self.mode = mode
        self.front = front or NoFront()

    def report(self, path: str, event: str, error: str) -> None:
        """The traceback on stderr has to do: nobody listens yet."""
