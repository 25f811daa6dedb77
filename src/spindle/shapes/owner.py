"""What the owner of an agent directory is told of it: ways to a model, keys, settings."""

from typing import Any, Literal

from msgspec import field

from spindle.shapes.messages import Wire


class Way(Wire):
    """A way to a model for who has none."""

    kind: Literal["server", "keys", "sign-in", "key", "small"]
    name: str
    """A model for `server` and `small`, else a provider; empty: any. For `keys` the file that has them."""
    title: str
    command: str
    """What does the same in a shell."""


class KeyState(Wire, kw_only=True):
    provider: str
    source: str | None = None
    """Where the key comes from: `auth.json`, a variable, …; left out if the stored one cannot be used."""
    stored: str | None = None
    """What `auth.json` has of the provider: `key` or `login`; left out if nothing."""


class SettingItem(Wire, kw_only=True):
    key: str
    """As in the file; `compaction.enabled` stands in an object `compaction`."""
    about: str
    kind: Literal["switch", "number", "text", "choice", "list", "object"]
    choices: list[str] = field(default_factory=list)
    """Of a `choice`, or of the words in a `list`."""
    default: Any
    value: Any
    """What holds in this working directory."""
    source: Literal["default", "user", "project"]
