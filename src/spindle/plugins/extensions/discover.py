"""Finds extensions: files and packages in directories, one level deep. Nothing is imported here.

Cheap enough to run at every start: a look at two directories that usually do not exist.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from spindle.base.agent_dir import agent_dir
from spindle.resources.loader import Resources
from spindle.resources.sources import Source
from spindle.resources.trust import EXTENSIONS, TrustStore, content_of

_FOREIGN = frozenset((".ts", ".js", ".mts", ".mjs", ".cts", ".cjs", ".tsx", ".jsx"))
_FOREIGN_PACKAGE = ("package.json", "index.ts", "index.js")


class Candidate(Struct, frozen=True):
    """One extension to load."""

    source: Source
    named: str
    """The name as the user wrote it: a path, `module:attribute`, or the name of an entry point."""
    path: Path | None = None
    """A Python file or the directory of a package; None: find it by its name."""
    factory: Callable[[Any], Any] | None = None
    """The extension itself, if an embedding program brings it."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return str(self.path or self.named)

    @property
    def strict(self) -> bool:
        """Whether a failure should end the start (`-e`)."""
        return self.source.source in ("cli", "inline")


def find_candidates(
    resources: Resources, factories: Sequence[Callable[[Any], Any]]
) -> tuple[list[Candidate], list[Path]]:
    named = [source for source in resources.extension_sources if source.source == "cli"]
    others = [source for source in resources.extension_sources if source.source != "cli"]
    candidates, foreign = find_extensions([*named, *others], resources.cwd)
    own = Source(resources.cwd, "inline", "temporary")
    return [*candidates, *(Candidate(own, made.__module__, factory=made) for made in factories)], foreign


def find_extensions(sources: Iterable[Source], cwd: Path) -> tuple[list[Candidate], list[Path]]:
    """Return the extensions to load, in order and each once, and extensions in languages that cannot be loaded."""
    candidates: list[Candidate] = []
    foreign: list[Path] = []
    seen: set[Path] = set()
    for source in sources:
        base = source.base_dir or cwd
        # A text that is not a path may be the name of a module or of an entry point.
        named = str(source.path.relative_to(base) if source.path.is_relative_to(base) else source.path)
        if source.explicit and not os.path.exists(source.path):
            candidates.append(Candidate(source, named))
            continue
        for path in _look(source):
            real = path.resolve()
            if real in seen or not source.selection.allows(path):
                continue
            seen.add(real)
            if _is_foreign(path):
                foreign.append(path)
            else:
                candidates.append(Candidate(source, named, path))
    return candidates, foreign


def project_code(candidates: Iterable[Candidate], cwd: Path) -> dict[Path, list[Candidate]]:
    """Return the extensions of the project by the file or folder that the user agrees to as a whole.

    Not those that are installed: the project only names them.
    """
    found: dict[Path, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.source.scope == "project" and candidate.path is not None:
            folder = cwd / EXTENSIONS
            place = folder if candidate.path.is_relative_to(folder) else candidate.path
            found.setdefault(place, []).append(candidate)
    return found


def known_as(place: Path, resources: Resources) -> Path:
    """Return the name under which the user agrees: that of the project which a checkout was made of."""
    cwd = resources.cwd
    return resources.trust.project / place.relative_to(cwd) if place.is_relative_to(cwd) else place


def agree_to_extensions(resources: Resources) -> None:
    """Remember that the user agrees to all code of the project as it is now. Raises `BadFile`, `OSError`."""
    store = TrustStore(agent_dir())
    for place in project_code(find_candidates(resources, ())[0], resources.cwd):
        if content := content_of(place):
            store.agree(known_as(place, resources), content)


def _look(source: Source) -> Iterator[Path]:
    path = source.path
    if not os.path.isdir(path):
        if os.path.exists(path):
            yield path
        return
    if source.explicit and (os.path.isfile(path / "__init__.py") or _is_foreign(path)):
        yield path
        return
    if source.explicit and os.path.isdir(path / "extensions"):
        path = path / "extensions"
    try:
        children = sorted(path.iterdir())
    except OSError:
        yield path  # loading it will tell why
        return
    for child in children:
        # A leading underscore marks a file that is not to be loaded by itself.
        if child.name.startswith((".", "_")) or child.name == "node_modules":
            continue
        if child.suffix == ".py" or os.path.isfile(child / "__init__.py") or _is_foreign(child):
            yield child


def _is_foreign(path: Path) -> bool:
    if path.suffix in _FOREIGN:
        return not path.name.endswith(".d.ts")
    return any(os.path.isfile(path / name) for name in _FOREIGN_PACKAGE) and not os.path.isfile(path / "__init__.py")
