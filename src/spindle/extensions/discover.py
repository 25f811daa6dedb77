"""Where extensions lie: files and packages in directories, one level deep. Nothing is imported here.

Cheap enough to run at every start: a look at two directories that usually do not exist.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

__all__ = ["Candidate", "Place", "find_extensions"]

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
    """Somebody named it, so it must be there."""
    strict: bool = False
    """A failure should end the start (`-e`)."""
    factory: Callable[[Any], Any] | None = None
    """The extension itself, of a program that brings its own."""


class Candidate(Struct, frozen=True):
    """One extension to load."""

    place: Place
    path: Path | None = None
    """A Python file or the directory of a package; None: to be found by its name."""


def find_extensions(places: Iterable[Place]) -> tuple[list[Candidate], list[Path]]:
    """Return what there is to load, in order and each once, and extensions in languages we do not speak."""
    candidates: list[Candidate] = []
    foreign: list[Path] = []
    seen: set[Path] = set()
    for place in places:
        if place.factory is not None or (place.explicit and not place.path.exists()):
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
    if not path.is_dir():
        if path.exists():
            yield path
        return
    if place.explicit and ((path / "__init__.py").is_file() or _is_foreign(path)):
        yield path
        return
    if place.explicit and (path / "extensions").is_dir():
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
        if child.suffix == ".py" or (child / "__init__.py").is_file() or _is_foreign(child):
            yield child


def _is_foreign(path: Path) -> bool:
    if path.suffix in _FOREIGN:
        return not path.name.endswith(".d.ts")
    return any((path / name).is_file() for name in _FOREIGN_PACKAGE) and not (path / "__init__.py").is_file()
