"""All settings with their meaning, for programs that let a person see and change them."""

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from spindle.base.errors import AgentError
from spindle.base.settings import Settings, SettingsStore, decode_settings
from spindle.base.spelling import did_you_mean
from spindle.resources.field_notes import field_notes
from spindle.shapes.owner import SettingItem

Kind = Literal["switch", "number", "text", "choice", "list", "object"]


def setting_items(store: SettingsStore) -> list[SettingItem]:
    """Return every setting, group by group."""
    return _items(Settings, store.settings, "", store.user, store.project)


def _items(kind: type[msgspec.Struct], values: Any, prefix: str, user: Any, project: Any) -> list[SettingItem]:
    notes, found, inner = field_notes(kind), [], []
    for item in msgspec.structs.fields(kind):
        name, value = item.encode_name, getattr(values, item.name)
        in_user, in_project = _inside(user, name), _inside(project, name)
        if isinstance(item.type, type) and issubclass(item.type, msgspec.Struct):
            inner += _items(item.type, value, f"{prefix}{name}.", in_user, in_project)
            continue
        sort, choices = _kind(item.type)
        found.append(
            SettingItem(
                key=f"{prefix}{name}",
                about=" ".join(notes.get(name, "").split()),
                kind=sort,
                choices=choices,
                default=item.default if item.default is not msgspec.NODEFAULT else item.default_factory(),
                value=_without_password(value),
                source="project" if in_project is not None else "user" if in_user is not None else "default",
            )
        )
    return found + inner


def _inside(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _without_password(value: Any) -> Any:
    """Return a value as it may be shown: the address of a proxy may have a password in it."""
    if not isinstance(value, str) or "://" not in value or "@" not in value:
        return value
    scheme, _, rest = value.partition("://")
    return f"{scheme}://…@{rest.rpartition('@')[2]}"


def _kind(given: Any) -> tuple[Kind, list[str]]:
    """Return how a value of this type is given, and the words that are allowed."""
    if hasattr(given, "__metadata__"):
        return _kind(get_args(given)[0])
    origin, inner = get_origin(given), get_args(given)
    if origin is Literal:
        return "choice", [str(value) for value in inner]
    if origin in (Union, UnionType):
        options = [option for option in inner if option is not NoneType]
        return _kind(options[0]) if len(options) == 1 else ("object", [])
    if origin is list:
        kind, choices = _kind(inner[0])
        return ("list", choices) if kind in ("text", "choice") else ("object", [])
    kinds: dict[Any, Kind] = {bool: "switch", int: "number", float: "number", str: "text"}
    return kinds.get(given, "object"), []


def change_setting(store: SettingsStore, key: str, value: Any) -> None:
    """Write a setting into the user's file; None takes it out. Raises `AgentError`, and then nothing has changed."""
    known = {item.key: item for item in setting_items(store)}
    if key not in known:
        raise AgentError(f"There is no setting {key}.{did_you_mean(key, list(known))}")
    nested: Any = value
    for name in reversed(key.split(".")):
        nested = {name: nested}
    if value is not None and (problems := decode_settings(nested)[1]):
        raise AgentError(problems[0].removesuffix(", using the default"))
    if isinstance(value, str) and "://…@" in value:
        raise AgentError(f"{key}: the password is not shown; give the whole address")
    try:
        store.save(key, value)
    except (ValueError, OSError) as error:  # a `BadFile` is a `ValueError`
        raise AgentError(f"Cannot change {store.global_path}: {error}") from None
