"""Finds modules of this package: a start imports 170 of them, and Python asks four finders and the disk for each.

What is not found here is looked for as ever, so nothing depends on it.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import BuiltinImporter, ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Final

_PACKAGE: Final = __name__.partition(".")[0]


class OwnModules:
    """Lists each folder of the package once."""

    def __init__(self) -> None:
        self._listed: dict[str, set[str]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, last = name.rpartition(".")
        if path is None or package.partition(".")[0] != _PACKAGE or not path:
            return None
        folder = path[0]
        if (names := self._listed.get(folder)) is None:
            try:
                names = self._listed[folder] = set(os.listdir(folder))
            except OSError:  # in an archive
                names = self._listed[folder] = set()
        if f"{last}.py" in names:
            return _spec(name, f"{folder}/{last}.py")
        if last in names and os.path.isfile(file := f"{folder}/{last}/__init__.py"):
            spec = _spec(name, file, is_package=True)
            spec.submodule_search_locations = [f"{folder}/{last}"]
            return spec
        return None


def _spec(name: str, file: str, *, is_package: bool = False) -> ModuleSpec:
    spec = ModuleSpec(name, SourceFileLoader(name, file), origin=file, is_package=is_package)
    spec.has_location = True
    return spec


def find_quickly() -> None:
    """Let our modules be looked for here before Python looks, and after import hooks of others."""
    if BuiltinImporter in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(BuiltinImporter), OwnModules())
