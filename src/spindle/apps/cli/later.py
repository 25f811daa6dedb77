"""Modules that are loaded when something of them is asked for.

asyncio, msgspec and pathlib import TLS and other modules that most processes never use: a quarter of the CPU and of the
memory of a start. Whoever imports such a module gets it as ever; its code runs with the first name that is taken from
it. Some names are asked for although nothing is done with the module; the one who asks gets a stand-in.
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.machinery import PathFinder
from types import FunctionType, ModuleType
from typing import Any, Final


class _NoSocket:
    """No socket is one of TLS while TLS is not loaded."""


def _is_coroutine_function(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)
    return bool(getattr(getattr(function, "__code__", None), "co_flags", 0) & 0x80)


def _unwrap(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _when_called(module: str, name: str) -> Callable[..., Any]:
    return lambda *args, **options: getattr(import_module(module), name)(*args, **options)


StandIns = Mapping[str, Mapping[str, Any]]
"""Who asks for names → what they get without the module."""
_PIPES: Final = {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3}
_LATER: Final[dict[str, StandIns]] = {
    "asyncio.sslproto": {},
    "asyncio.staggered": {},
    "inspect": {
        "asyncio.coroutines": {"iscoroutinefunction": _is_coroutine_function},
        "asyncio.format_helpers": {
            "isfunction": lambda value: isinstance(value, FunctionType),
            "unwrap": _unwrap,
        },
    },
    "ipaddress": {},
    "locale": {},
    "msgspec._json_schema": {
        "msgspec.json": {name: _when_called("msgspec._json_schema", name) for name in ("schema", "schema_components")}
    },
    "msgspec.inspect": {},
    "ntpath": {},
    "platform": {"uuid": {"system": lambda: os.uname().sysname}},
    "ssl": {"asyncio.base_events": {"SSLSocket": _NoSocket}},
    "subprocess": {"asyncio.base_events": _PIPES, "asyncio.events": _PIPES, "asyncio.subprocess": _PIPES},
    "tokenize": {},
    "urllib.parse": {"pathlib": {"quote_from_bytes": _when_called("urllib.parse", "quote_from_bytes")}},
}
"""They do nothing at their import but define names. To tell of an error none is needed but `tokenize`, for the lines of
a traceback: if the disk is out of reach, there are none of these either."""
_lock = threading.RLock()


def load_others_later() -> None:
    """Have modules of others loaded later, unless they are there."""
    for name, stand_ins in _LATER.items():
        if name not in sys.modules:
            load_later(name, stand_ins)


def load_later(name: str, stand_ins: StandIns) -> None:
    """Put a module into `sys.modules` that is loaded when something of it is asked for."""
    package = name.rpartition(".")[0]
    spec = PathFinder.find_spec(name, _folders(package))
    if spec is None or spec.loader is None:
        return
    module, loader = ModuleType(name), spec.loader
    vars(module).update(__spec__=spec, __loader__=loader, __file__=spec.origin, __package__=package)
    vars(module)["__getattr__"] = _after(module, lambda: loader.exec_module(module), stand_ins)
    sys.modules[name] = module


@cache
def _folders(package: str) -> list[str] | None:
    """Return where the modules of a package are; None: of no package."""
    if not package:
        return None
    spec = PathFinder.find_spec(package)
    return (spec and spec.submodule_search_locations) or []


def _after(module: ModuleType, load: Callable[[], None], stand_ins: StandIns) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that is not loaded."""
    begun = False

    def missing(name: str) -> Any:
        nonlocal begun
        if name == "__path__":  # `from … import` asks whether this is a package
            raise AttributeError(name)
        for asker, names in stand_ins.items():
            if not begun and name in names and sys._getframe(1).f_globals.get("__name__") == asker:
                return names[name]
        with _lock:  # another thread may be loading it
            if not begun:
                begun = True
                try:
                    load()
                except BaseException:
                    begun = False
                    raise
                if vars(module).get("__getattr__") is missing:
                    del module.__getattr__
        if name in vars(module):
            return vars(module)[name]
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    return missing
