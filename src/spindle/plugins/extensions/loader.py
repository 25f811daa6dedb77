"""Loads extensions: imports each under its own module name, runs its `extension(agent)`, collects failures.

Reloading is loading again: the module is dropped first, and its source is compiled again whatever a cached `.pyc` says.
"""

import asyncio
import importlib
import importlib.util
import inspect
import os
import sys
import threading
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from msgspec import Struct

from spindle.base import limits
from spindle.models.model_registry import ModelRegistry
from spindle.plugins.extensions.api import Agent
from spindle.plugins.extensions.discover import Candidate
from spindle.plugins.extensions.generation import Extension, Generation
from spindle.plugins.extensions.handlers import ExtensionHooks
from spindle.plugins.extensions.threads import Contained, contained, run_in_thread
from spindle.resources.sources import SourceInfo

T = TypeVar("T")
FACTORY = "extension"
ENTRY_POINTS = "spindle.extensions"


class LoadFailure(Struct, frozen=True):
    path: str
    error: str
    strict: bool
    """Named on the command line: the start should fail."""
    missing: bool = False
    """There is nothing of that name."""

    def __str__(self) -> str:
        return f'Failed to load extension "{self.path}": {self.error}'


async def load_extensions(
    candidates: Iterable[Candidate], hooks: ExtensionHooks, *, before: Sequence[Extension] | None = None
) -> list[LoadFailure]:
    """Load into the generation of `hooks`, one after the other. Return the failures.

    `before` are the extensions of the generation that this one replaces: files may have changed since. An extension
    that does not load any more stays in force as it was: its rules must not vanish while its file is being edited.
    """
    failures = []
    if before is not None:
        importlib.invalidate_caches()
    known = {extension.path: extension.factory for extension in before or ()}
    for candidate in candidates:
        path = candidate.name
        try:
            factory = await _ready(run_in_thread(partial(_find_factory, candidate, before is not None)))
            hooks.generation.add(await _load(candidate, path, factory, hooks))
        except Exception as error:
            why = _explain(error, path)
            if path in known and candidate.factory is None:
                with suppress(Exception):  # the old code may depend on changed files; the first error tells more
                    hooks.generation.add(await _load(candidate, path, known[path], hooks))
                    why += ". What was loaded before stays in force"
            failures.append(LoadFailure(path, why, candidate.strict, isinstance(error, NotThere)))
    return failures


def register_providers(generation: Generation, registry: ModelRegistry) -> list[LoadFailure]:
    """Register the providers of extensions. Return the failures; the extensions work without those models."""
    failures = []
    for extension in generation.extensions:
        for name, provider in extension.providers.items():
            try:
                registry.register_provider(name, provider.config, provider.stream)
            except ValueError as error:
                failures.append(LoadFailure(extension.path, str(error), False))
    return failures


async def _load(candidate: Candidate, path: str, factory: Callable[[Agent], Any], hooks: ExtensionHooks) -> Extension:
    """Run a factory. If it fails, its registrations are dropped."""
    source = candidate.source
    base = str(source.base_dir) if source.base_dir else None
    extension = Extension(path, SourceInfo(path, source.source, source.scope, source.origin, base), factory)
    extension.agent = Agent(extension, hooks)
    if candidate.factory is None:
        extension.home = hooks.generation.home
        await _ready(extension.home.call(factory, extension.agent))
    else:  # part of the embedding program: it may rely on the program's thread
        with contained():
            result = factory(extension.agent)
            if inspect.isawaitable(result):
                await _ready(result)
    return extension


async def _ready(work: Awaitable[T]) -> T:
    """Wait for a step of loading. Blocking code is in a thread, so other sessions go on."""
    try:
        async with asyncio.timeout(limits.EXTENSION_FACTORY):
            return await work
    except TimeoutError:
        raise TimeoutError(f"It was not ready after {limits.EXTENSION_FACTORY:g} s") from None


def _explain(error: Exception, path: str) -> str:
    if isinstance(error, NotLoadable | TimeoutError | Contained):
        return str(error)
    text = f"{type(error).__name__}: {error}"
    lines = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"{text} (line {lines[-1]})" if lines else text


# -- finding the function ------------------------------------------------------------------------


class NotLoadable(Exception):
    """No extension was found; the text says why."""


class NotThere(NotLoadable):
    pass


def _find_factory(candidate: Candidate, fresh: bool) -> Callable[[Agent], Any]:
    if candidate.factory is not None:
        return candidate.factory
    if candidate.path is not None:
        return _attribute(_import_file(candidate.path, fresh), FACTORY)
    module, colon, attribute = candidate.named.partition(":")
    if colon and all(part.isidentifier() for part in module.split(".")):
        return _attribute(importlib.import_module(module), attribute or FACTORY)
    if "/" not in candidate.named and "\\" not in candidate.named:
        installed = _entry_point(candidate.named)
        if installed is not None:
            return installed
    raise NotThere(f"Extension path does not exist: {candidate.source.path}{_near(candidate)}")


def _near(candidate: Candidate) -> str:
    """Return which extension may have been meant: one that is installed, or a file or folder with one beside."""
    from importlib.metadata import entry_points

    from spindle.base.spelling import did_you_mean

    names = {point.name for point in entry_points(group=ENTRY_POINTS)}
    folder = candidate.source.path.parent
    files = {path.name for path in folder.glob("*.py")} if folder.is_dir() else set()
    folders = {path.parent.name for path in folder.glob("*/*.py")} if folder.is_dir() else set()
    near = did_you_mean(candidate.named, names) or did_you_mean(candidate.source.path.name, files | folders)
    return f".{near}" if near else ""


def _attribute(module: ModuleType, name: str) -> Callable[[Agent], Any]:
    factory: Callable[[Agent], Any] | None = getattr(module, name, None)
    if not callable(factory):
        raise NotLoadable(f"It has no function {name!r}. An extension is a module with `def extension(agent):`")
    return factory


def _entry_point(name: str) -> Callable[[Agent], Any] | None:
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS, name=name):
        found = point.load()
        return _attribute(found, FACTORY) if isinstance(found, ModuleType) else found
    return None


def forget_compiled(candidates: Iterable[Candidate]) -> None:
    """Remove what Python keeps of compiled files: anybody may have put it there, and the user agreed to the texts.

    Also behind links, as the texts are read.
    """
    import shutil

    for candidate in candidates:
        if candidate.path is not None:
            top = candidate.path if candidate.path.is_dir() else candidate.path.parent
            for folder, folders, _ in os.walk(top, followlinks=True):
                if "__pycache__" in folders:
                    folders.remove("__pycache__")
                    place = os.path.join(folder, "__pycache__")
                    with suppress(OSError):
                        (os.unlink if os.path.islink(place) else shutil.rmtree)(place)


# -- importing -----------------------------------------------------------------------------------


class _FreshLoader(SourceFileLoader):
    """Compiles the source each time: file times are too coarse to tell whether a cached `.pyc` is current."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _import_file(path: Path, fresh: bool) -> ModuleType:
    file = path / "__init__.py" if path.is_dir() else path
    if file.suffix != ".py":
        raise NotLoadable("It is not a Python file")
    # Two extensions of the same file name must not meet in sys.modules.
    name = f"_spindle_extension_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    with _importing[name]:
        return _import_as(name, path, file, fresh)


_importing: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""Held while a module is imported: sessions may load the same file at the same time."""


def _import_as(name: str, path: Path, file: Path, fresh: bool) -> ModuleType:
    _forget(name)
    loader = (_FreshLoader if fresh else SourceFileLoader)(name, str(file))
    locations = [str(path)] if path.is_dir() else None
    spec = importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=locations)
    assert isinstance(spec, ModuleSpec)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        _forget(name)
        raise
    return module


def _forget(name: str) -> None:
    for known in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[known]
