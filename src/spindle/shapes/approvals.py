"""What a question about a tool call shows, and what may be answered. The question itself is an event.

A program makes an `Allow` or a `Deny`; a client sends the same as JSON.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, field

from spindle.shapes.made_by_hand import MadeByHand
from spindle.shapes.messages import Wire
from spindle.shapes.sandbox import SandboxLevel

Keep: TypeAlias = Literal["session", "project", "user"]
"""Where rules are kept: in the session, or in the settings of the project or the user."""
By: TypeAlias = Literal["rule", "mode", "user", "program", "extension", "definition", "nobody", "error"]
"""Who refused: a rule, the mode, the user, the program that holds the agent, an extension, the definition of a
subagent, nobody (there was no answer), or an error: whoever was to answer failed."""
QuestionKind: TypeAlias = Literal["tool", "outside", "turns", "trust", "place", "confirm"]
"""`tool`: may this call run; `outside`: may a command that the sandbox has stopped run without it; `turns`: may the
model go on; `trust`: may files of the project be used; `place`: may a command run that a session names and that was
never used here; `confirm`: a yes-or-no question of an extension or a server."""
FOR_OWNER: Final = ("trust", "place")
"""Kinds of questions that only the owner of the machine may say yes to."""


# -- previews ------------------------------------------------------------------------------------


class DiffPreview(Wire, kw_only=True, tag_field="kind", tag="diff"):
    """The change of a file that an edit or a write would make."""

    path: str
    """Absolute."""
    diff: str
    """Numbered lines marked `+`, `-` or blank, as in the result of `edit`."""
    patch: str
    """The same as a unified diff."""
    added: int
    removed: int
    new_file: bool = False
    cut: bool = False
    """Whether the change is longer than what is shown."""
    place: str | None = None
    """Where the text was read, if not from the disk: `the editor`."""


class CommandPreview(Wire, kw_only=True, tag_field="kind", tag="command"):
    """The command that would run."""

    command: str
    directory: str
    sandbox: SandboxLevel
    unsure: str | None = None
    """What could not be decided about it."""
    stopped_by: str | None = None
    """What the sandbox has stopped, if the question is whether to run the command outside of it."""
    background: bool = False
    where: str | None = None
    """The command that leads to the far side, if it would run there."""


class CallField(Wire):
    name: str
    value: str
    """A text as it is, another value as JSON."""


class FieldsPreview(Wire, kw_only=True, tag_field="kind", tag="fields"):
    """The fields of a call whose tool is not ours: of an MCP server, an extension or the client."""

    fields: list[CallField]
    server: str | None = None
    """The MCP server."""


class AddressPreview(Wire, kw_only=True, tag_field="kind", tag="address"):
    """The address that would be asked for."""

    address: str
    fields: list[CallField] = field(default_factory=list)
    """The other fields of the call."""


class TextPreview(Wire, kw_only=True, tag_field="kind", tag="text"):
    """A text to read before answering."""

    text: str


class FailurePreview(Wire, kw_only=True, tag_field="kind", tag="failure"):
    """The call would fail."""

    reason: str


Preview: TypeAlias = DiffPreview | CommandPreview | FieldsPreview | AddressPreview | TextPreview | FailurePreview


class Suggestion(Wire):
    """Rules that would allow this call, and others like it, from now on."""

    text: str
    """For people."""
    rules: list[str]


# -- answers -------------------------------------------------------------------------------------


class Allow(Wire, metaclass=MadeByHand, tag_field="behavior", tag="allow"):
    """The call may run."""

    input: Any = UNSET
    """Arguments to run with, in the place of those of the model. They are checked again."""
    keep: Keep | None = None
    """Where to keep rules that allow such calls from now on; None: this call only. With the kind `trust`, `user` keeps
    the yes itself."""
    rules: Sequence[str] = ()
    """With `keep`: the rules; empty: those of the first suggestion."""


class Deny(Wire, metaclass=MadeByHand, tag_field="behavior", tag="deny"):
    """The call must not run."""

    reason: str = ""
    """Told to the model."""
    stop: bool = False
    """Whether the run ends, too."""
    keep: Literal["user"] | None = None
    """With the kind `trust`: whether the no is kept, so that the question is not put again."""


Answer: TypeAlias = Allow | Deny
