"""The configuration file of a server: options of the command line as keys of a TOML file.

listen = "0.0.0.0:3838"
tokens = "/etc/spindle/tokens.json"
root = ["/srv"]
drain = 30

[remote-option]
max_connections = 500
"""

import tomllib
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from spindle.apps.cli.args import OPTIONS, Option, Options, UsageError, parse_into
from spindle.base.spelling import did_you_mean

LISTEN = "listen"
"""The address, which is an argument on the command line."""
_ONLY_ARGUMENTS = (
    *("--api-key", "--attach", "--check", "--config", "--continue", "--export", "--fork", "--help", "--list-models"),
    *("--mode", "--name", "--print", "--redact", "--remote", "--resume", "--session", "--session-id", "--version"),
)
"""Options that make no sense in the file: of one session, of other modes, and a key, which belongs into auth.json."""


def keys() -> dict[str, Option]:
    """Return the options that the file may have, by key."""
    found = {}
    for option in OPTIONS:
        name = option.names.split()[0]
        if name not in _ONLY_ARGUMENTS and (not option.modes or "remote" in option.modes.split()):
            found[name.removeprefix("--")] = option
    return found


def configured(options: Options, path: Path) -> Options:
    """Return the options with those of the file; the command line goes before the file. Raises `UsageError`."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        listen = values.pop(LISTEN, None)
        if listen is not None and not isinstance(listen, str):
            raise UsageError(f"{LISTEN} must be a text, as '127.0.0.1:3838'")
        known = keys()
        words = [word for key, value in values.items() for word in _words(key, value, known)]
        found = parse_into(Options(mode=options.mode), words)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, UsageError) as error:
        raise UsageError(f"{path}: {error}") from None
    if found.unknown:
        raise UsageError(f"{path}: {', '.join(found.unknown)} cannot be set in the file")
    plain = Options(mode=options.mode)
    given = {name: getattr(options, name) for name in Options.__struct_fields__}
    mine = {name: value for name, value in given.items() if value != getattr(plain, name)}
    if listen is not None and not options.messages and options.remote is None:
        mine["remote"] = listen
    return replace(found, **mine)


def _words(key: str, value: Any, known: dict[str, Option]) -> list[str]:
    """Return a key of the file as words of a command line. Raises `UsageError`."""
    option = known.get(key)
    if option is None:
        if f"--{key}" in _ONLY_ARGUMENTS:
            raise UsageError(f"{key} is not for files")
        raise UsageError(f"There is no key {key}.{did_you_mean(key, [*known, LISTEN])}")
    name = f"--{key}"
    if isinstance(value, bool):
        if option.value and option.kind != "maybe":
            raise UsageError(f"{key} needs a value ({option.value}), not {str(value).lower()}")
        return [name] if value else []
    if not option.value:
        raise UsageError(f"{key} must be true or false")
    if isinstance(value, dict):
        if "=" not in option.value:
            raise UsageError(f"{key} is no table")
        return [f"{name}={one}={_text(f'{key}.{one}', item)}" for one, item in value.items()]
    if isinstance(value, list):
        texts = [_text(key, item) for item in value]
        if option.kind == "words":
            return [f"{name}={','.join(texts)}"]
        if option.kind != "list":
            raise UsageError(f"{key} has one value, not a list")
        return [f"{name}={text}" for text in texts]
    return [f"{name}={_text(key, value)}"]


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return str(value)
    raise UsageError(f"{key} must be a text or a number")
