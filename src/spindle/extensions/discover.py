"""Where extensions lie: files and packages in directories, one level deep. Nothing is imported here.

Cheap enough to run at every start: a look at two directories that usually do not exist.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from spindle.resources.loader import Resources
from spindle.resources.sources import Source

_FOREIGN = frozenset((".ts", ".js", ".mts", ".mjs", ".cts", ".cjs", ".tsx", ".jsx"))
_FOREIGN_PACKAGE = ("package.json", "index.ts", "index.js")


class Place(Struct, frozen=True):
    """Something that is, or may hold, extensions."""

    named: str
    """As the user wrote it: a path, `module:attribute`, or the name of an entry point."""
    path: Path
    """The same as an absolute path."""
    source: str = "auto"
    scope: str = "user"
    origin: str = "top-level"
    base_dir: Path | None = None
    wanted: Callable[[Path], bool] = lambda path: True
    """Whether the user's settings leave a file in."""
    explicit: bool = False
    """The user named it, so it must be there."""
    strict: bool = False
    """A failure should end the start (`-e`)."""
    factory: Callable[[Any], Any] | None = None
    """The extension itself, of a program that brings its own."""


class Candidate(Struct, frozen=True):
    """One extension to load."""

    place: Place
    path: Path | None = None
    """A Python file or the directory of a package; None: to be found by its name."""


def find_candidates(
    resources: Resources, factories: Sequence[Callable[[Any], Any]]
) -> tuple[list[Candidate], list[Path]]:
    named = [source for source in resources.extension_sources if source.source == "cli"]
    others = [source for source in resources.extension_sources if source.source != "cli"]
    places = [_place(source, resources.cwd) for source in [*named, *others]]
    places += [
        Place(factory.__module__, resources.cwd, "inline", "temporary", strict=True, factory=factory)
        for factory in factories
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


def find_extensions(places: Iterable[Place]) -> tuple[list[Candidate], list[Path]]:
    """Return what there is to load, in order and each once, and extensions in languages that cannot be loaded."""
    candidates: list[Candidate] = []
    foreign: list[Path] = []
    seen: set[Path] = set()
    for place in places:
        if place.factory is not None or (place.explicit and not os.path.exists(place.path)):
            candidates.append(Candidate(place))
            continue
        for path in _look(place):
            real = path.resolve()
            if real in seen or not place.wanted(path):
                continue
            seen.add(real)
            if _is_foreign(path):
                foreign.append(path)
            else:
                candidates.append(Candidate(place, path))
    return candidates, foreign


def _look(place: Place) -> Iterator[Path]:
    path = place.path
    if not os.path.isdir(path):
        if os.path.exists(path):
            yield path
        return
    if place.explicit and (os.path.isfile(path / "__init__.py") or _is_foreign(path)):
        yield path
        return
    if place.explicit and os.path.isdir(path / "extensions"):
        path = path / "extensions"
    try:
        children = sorted(path.iterdir())
    except OSError:
        yield path  # loading it will tell why
        return
    for child in children:
        # A leading underscore says that it is not meant to be loaded by itself.
        if child.name.startswith((".", "_")) or child.name == "node_modules":
            continue
        if child.suffix == ".py" or os.path.isfile(child / "__init__.py") or _is_foreign(child):
            yield child


def _is_foreign(path: Path) -> bool:
    if path.suffix in _FOREIGN:
        return not path.name.endswith(".d.ts")
    return any(os.path.isfile(path / name) for name in _FOREIGN_PACKAGE) and not os.path.isfile(path / "__init__.py")
