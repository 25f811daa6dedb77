"""What programs may give: names of options, types of values, and hints for those who come from other libraries."""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Any

from msgspec import Struct

from spindle.agent import AgentError
from spindle.base.spelling import did_you_mean
from spindle.inprocess.budget import Budget
from spindle.shapes.model import Model
from spindle.shapes.run_limits import RUN_LIMITS
from spindle.shapes.sandbox import SandboxOptions
from spindle.tools.base import Tool

_WHOLE = frozenset(limit.name for limit in RUN_LIMITS if limit.type is int)


class _Kind(Struct, frozen=True):
    """What a value may be, besides None."""

    words: str
    types: tuple[Any, ...]
    items: tuple[Any, ...] = ()
    """Of a list: what each item may be."""
    may_be_empty: bool = True

    def fits(self, value: Any) -> bool:
        is_one = self.items and isinstance(value, str | bytes | Mapping)  # a text is iterable, too
        return isinstance(value, self.types) and not is_one


def _list(words: str, *items: Any) -> _Kind:
    return _Kind(f"a list of {words}", (Iterable,), items)


_TEXT, _NAME = _Kind("a str", (str,)), _Kind("a str", (str,), may_be_empty=False)
_PATH = _Kind("a path", (str, Path), may_be_empty=False)
_PATHS = _list("paths", str, Path)
_RULES = _list("permission rules", str)
_OPTIONS: dict[str, _Kind] = {
    "model": _Kind("a name or a Model", (str, Model), may_be_empty=False),
    "thinking": _NAME,
    "system_prompt": _TEXT,
    "append_system_prompt": _Kind("a str, or a list of them", (str, list, tuple)),
    "api_key": _NAME,
    "base_url": _NAME,
    "permission_mode": _NAME,
    "exec": _TEXT,
    "exec_cwd": _NAME,
    "tools": _list("names, functions and Tools", str, Tool, Callable),
    "extensions": _list("paths and functions", str, Callable),
    "allow": _RULES,
    "ask": _RULES,
    "deny": _RULES,
    "can_use_tool": _Kind("a function", (Callable,)),
    "on_question": _Kind('"deny" or "wait"', (str,)),
    "fallback": _list("names and Models", str, Model),
    "sandbox": _Kind("a level, or a dict with level, writable and network", (str, SandboxOptions, Mapping)),
    "mcp_servers": _Kind("a dict of servers by name, or False", (Mapping, list, bool)),
    "hermetic": _Kind("a bool", (bool,)),
    "sources": _list("sources", object),
    "skills": _PATHS,
    "add_dirs": _PATHS,
    "agents": _Kind("a dict of Subagents by name", (Mapping,)),
    "hooks": _Kind("a dict of functions by event", (Mapping,)),
    "env": _Kind("a dict of texts by name", (Mapping,)),
    "checkpoints": _Kind("a bool", (bool,)),
    "budget": _Kind("a Budget, as Budget(max_cost=5.0)", (Budget,)),
    "persist": _Kind("a bool", (bool,)),
    "cwd": _PATH,
    "session_file": _PATH,
    "store": _Kind("an address, or a SessionStore", (object,), may_be_empty=False),
}

_TO_RUN = "give it to run() or ask()"
_TO_CREATE = "give it to Agent.create()"
_ELSEWHERE = {
    **dict.fromkeys(("system", "system_message", "instructions", "prompt"), "system_prompt"),
    **dict.fromkeys(("resume", "session_id", "continue_conversation", "message_history", "conversation_id"), "session"),
    **dict.fromkeys(("directory", "path", "workdir", "working_dir", "working_directory"), "cwd"),
    **dict.fromkeys(("max_budget_usd", "budget"), "max_cost"),
    "timeout": "max_time",
    "allowed_tools": "tools",
    "disallowed_tools": "deny",
    **dict.fromkeys(("reasoning_effort", "max_thinking_tokens", "effort"), "thinking"),
    "setting_sources": "sources",
    "fallback_model": "fallback",
    "plugins": "extensions",
    **dict.fromkeys(("deps_type", "context"), "deps"),
    "handoffs": "agents",
    **dict.fromkeys(("output_type", "output_format", "response_format", "result_type"), "schema"),
}
"""Names that other libraries have for an option."""


def check_names(given: Iterable[str], known: Collection[str], function: str, elsewhere: Collection[str] = ()) -> None:
    """Raise `TypeError` for a keyword that is not in `known`; those in `elsewhere` belong to the other functions."""
    for name in given:
        if name in known:
            continue
        meant = _ELSEWHERE.get(name, name)
        place = _TO_CREATE if "create" not in function else _TO_RUN
        if meant in known:
            hint = f" Did you mean {meant}?"
        elif meant in elsewhere:
            hint = f" {'It' if meant == name else f'Here it is {meant}, which'} belongs elsewhere: {place}."
        else:
            hint = did_you_mean(name, known)
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}.{hint}")


def check_values(given: Mapping[str, Any]) -> None:
    """Raise `TypeError` for an option with a value of a type that it cannot have, `AgentError` for an empty text."""
    for name, value in given.items():
        kind = _OPTIONS.get(name)
        if value is None or kind is None:
            continue
        if not kind.fits(value):
            hint = f" Did you mean {name}=[{value!r}]?" if kind.items and isinstance(value, str) else ""
            raise TypeError(f"{name} must be {kind.words}, not {value!r}.{hint}")
        if not kind.may_be_empty and value == "":
            raise AgentError(f"{name} is empty: leave it out, or give None, for the usual one")
        if isinstance(value, list | tuple):
            items = kind.items or (str,)
            for index, item in enumerate(value if name != "mcp_servers" else ()):
                if not isinstance(item, items):
                    raise TypeError(f"{name} must be {kind.words}, but {name}[{index}] is {item!r}")


def check_number(name: str, value: Any) -> None:
    """Raise `AgentError` unless the value of a limit is a number above 0, and whole if it counts something."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 < value < inf):
        raise AgentError(f"{name} must be a number above 0, not {value!r}")
    if name in _WHOLE and not isinstance(value, int):
        raise AgentError(f"{name} must be a whole number, not {value!r}")


def check_type(function: str, name: str, value: Any, *types: type) -> None:
    """Raise `TypeError` unless the argument of a function has one of these types."""
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        words = " or ".join("None" if one is type(None) else one.__name__ for one in types)
        raise TypeError(f"{function}: {name} must be {words}, not {value!r}")
