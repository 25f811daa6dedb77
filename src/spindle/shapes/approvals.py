"""Questions about tool calls: what they show, what may be answered, and what is told of them.

A program makes an `Allow` or a `Deny`; a client sends the same as JSON.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, field

from spindle.shapes.events import Event
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


# -- what is told about it --------------------------------------------------------------------------

Behavior: TypeAlias = Literal["allow", "ask", "deny"]


class Decision(Wire):
    """The decision of the permissions about a tool call."""

    behavior: Behavior
    rule: str | None = None
    """The rule that decided; None: the mode."""
    source: str | None = None
    """Where that rule comes from."""
    reason: str = ""
    """Why, if the rule alone does not say it."""
    always: tuple[str, ...] = ()
    """Rules that would allow this call from now on."""


class Denial(Wire):
    """A tool call that was refused."""

    tool_name: str
    arguments: Any
    rule: str | None = None
    """The rule that refused the call, or required a question about it."""
    reason: str = ""
    """The text that the model gets."""
    by: By = "rule"
    error: str | None = None
    """Why there was no answer, if the program or client that was asked has failed. The model does not get it."""


class PermissionDenied(Event, tag="permission_denied"):
    """A tool call was refused. `tool_execution_end` follows, as for a call that failed."""

    type: ClassVar[Literal["permission_denied"]]
    tool_call_id: str
    tool_name: str
    arguments: Any
    rule: str | None = None
    reason: str = ""
    by: By = "rule"
    error: str | None = None


class PermissionRequest(Event, kw_only=True, tag="permission_request"):
    """A question about a tool call, or a yes-or-no one, with all that is needed to answer it; `answer_permission` does.
    A dialog (`extension_ui_request`) with the same id follows, for clients that know only dialogs: one answer is
    enough. A question about the trust in a project has none."""

    type: ClassVar[Literal["permission_request"]]
    id: str
    kind: QuestionKind
    session: str
    """The id of the session whose call it is; for a subagent, of the session that it works for."""
    run: str | None = None
    tool_call_id: str | None = None
    subagent: str | None = None
    """The name of the subagent whose call it is."""
    tool_name: str | None = None
    arguments: Any = None
    """A copy: changing it changes nothing."""
    summary: str
    """What the call would do, in words."""
    preview: Preview | None = None
    reason: str = ""
    """Why this is asked."""
    rule: str | None = None
    source: str | None = None
    """Where the rule comes from."""
    mode: str = ""
    """The permission mode."""
    may_destroy: bool = False
    suggestions: list[Suggestion] = field(default_factory=list)
    """Rules that the answer may keep, from narrow to wide."""
    keeps: list[Keep] = field(default_factory=list)
    """Where rules may be kept."""
    timeout: int | None = None
    """Milliseconds after which no answer is a no."""
    waits: bool
    """Whether the question can be answered after the process has ended; the id stays valid."""


class OpenCall(Wire):
    """A tool call without a result."""

    id: str
    name: str
    again: bool
    """Whether `resume_run` makes it: it only reads, or has not run. Else the model is told that it may have taken
    effect."""


class InterruptedRun(Wire, kw_only=True):
    """A run whose process ended before it. It can be resumed or abandoned; another prompt abandons it."""

    id: str
    prompt: str | None = None
    """The message that it began with, up to 200 characters."""
    prompt_id: str | None = None
    """The entry of that message."""
    began: str
    last: str
    """Time of the last entry."""
    turns: int
    """Model calls so far."""
    cost: float
    """US dollars so far, as far as known."""
    limits: dict[str, float]
    """Its limits, by the names that `prompt` has for them; what is used up of them stays used up."""
    open_calls: list[OpenCall]
    questions: list[PermissionRequest] = field(default_factory=list)
    """Questions that wait for an answer: `answer_question`."""


class PermissionAnswered(Event, kw_only=True, tag="permission_answered"):
    """A question is over. The first answer counts."""

    type: ClassVar[Literal["permission_answered"]]
    id: str
    tool_call_id: str | None = None
    behavior: Literal["allow", "deny", "withdrawn"]
    """`withdrawn`: the run was stopped before there was an answer."""
    by: By = "user"
    input: Any = None
    """The arguments that the call runs with, if they were changed."""
    keep: Keep | None = None
    rules: list[str] = field(default_factory=list)
    """Rules that are kept."""
    reason: str = ""
    stop: bool = False


class RunInterrupted(Event, tag="run_interrupted"):
    """The session was opened with a run that the end of its process cut off: `resume_run` or `abandon_run`."""

    type: ClassVar[Literal["run_interrupted"]]
    run: InterruptedRun
