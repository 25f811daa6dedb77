"""What a tool is, how built-in tools are loaded, and the words their messages share."""

import os
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from spindle.shapes.builtin_tools import BUILTIN_TOOLS, Effect
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.shapes.model import Model
from spindle.workspace.disk import ToolError as ToolError
from spindle.workspace.disk import doing as doing
from spindle.workspace.disk import format_size as format_size
from spindle.workspace.disk import os_error_text as os_error_text
from spindle.workspace.settings import SESSION_VARIABLES, ToolSettings

if TYPE_CHECKING:  # loaded on use
    from spindle.shapes.approvals import Preview
    from spindle.workspace import Workspace

_NEEDING_RIPGREP = ("grep", "find")


StartBackground = Callable[[dict[str, Any], "ToolContext"], Awaitable[ToolResult]]
"""Takes the arguments of `bash`, and starts the command in the background."""


class Files(Protocol):
    """Text files as another program has them, perhaps with changes that are not saved. Paths are absolute.

    read, edit and write all use it, so that the model sees and changes the same text; permissions are checked before.
    """

    name: str
    """As results call it: `the editor`."""

    async def read(self, path: str) -> str | None:
        """Return the text of a file; None: the program cannot give it, so the disk counts. Raises `ToolError`."""

    async def write(self, path: str, text: str) -> bool:
        """Make or replace a file. Return False if the program refuses and cannot read the file either, so that the
        disk counts. Raises `ToolError`."""


class Terminals(Protocol):
    """Terminals of another program, in which `bash` runs commands: its user sees them, and may type into them.

    Commands there are outside of our sandbox, so they are used only if there is none.
    """

    async def open(self, call_id: str, argv: list[str], cwd: str, env: Mapping[str, str]) -> "Terminal":
        """Run a program beside the call that it belongs to. `env` is added to the variables of the other program.

        Raises `ToolError` if the other program refuses.
        """


class Terminal(Protocol):
    """A command in a terminal. Every method raises `ToolError` if the other program fails."""

    async def wait(self) -> int:
        """Return the exit code, 128 + n after signal n."""

    async def kill(self) -> None:
        """End the command; its output stays."""

    async def output(self) -> tuple[str, bool]:
        """Return the output as the program wrote it, and whether its beginning is missing."""

    async def release(self) -> None:
        """End the command if it still runs. The terminal is not used any more."""


class ToolContext(Struct):
    """What one call gets besides its arguments. An abort is an asyncio cancellation."""

    cwd: str
    update: Callable[[ToolResult], None] = lambda result: None
    """Report progress; the whole result so far, not a difference."""
    model: Model | None = None
    env: Mapping[str, str] = {}
    """Extra variables for child processes."""
    settings: ToolSettings = ToolSettings()
    files: Files | None = None
    """Used instead of the disk, as far as it goes."""
    start_background: StartBackground | None = None
    may_read: Callable[[str], bool] = lambda path: True
    """Whether the permissions let the model see a file that a search has found."""
    terminals: Terminals | None = None

    @property
    def workspace(self) -> "Workspace":
        return self.settings.workspace

    def require(self, path: str, *, write: bool = False) -> None:
        """Raise `ToolError` if the sandbox does not let a tool read, or with `write` change, the file at a path."""
        self.settings.sandbox.require(path, write=write)


class Tool(Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments."""
    execute: Callable[[str, Any, ToolContext], Awaitable[ToolResult]]
    """`(tool_call_id, arguments, context)`. Fails by raising; on cancellation it may raise `ToolError`
    with the last words of the result, else the loop says `Operation aborted`."""
    label: str = ""
    snippet: str = ""
    """One line for the system prompt; a tool without one is not listed there."""
    guidelines: tuple[str, ...] = ()
    prepare: Callable[[Any], Any] | None = None
    """Repairs raw arguments before validation."""
    also_takes: frozenset[str] | None = None
    """Options besides those of `parameters` that it takes, or that change nothing here. The model is told of any other
    that it sends. None: others are not looked at."""
    doubt: Callable[[Any], str] | None = None
    """Says in what an argument may mean something else than its sender thinks; empty: in nothing."""
    sequential: bool = False
    """Whether the call never runs together with other calls of the same answer."""
    interruptible: bool = True
    """False: steering waits for it, because stopping half-way would leave a mess."""
    safe_to_retry: bool = False
    """Whether a call that may have been made already can be made again: it changes nothing."""
    lent: bool = True
    """Whether subagents may have it, too. A tool that changes its own session says no."""
    needs: str = ""
    """Another tool, without which the model is not told of this one."""
    offered: Callable[[], bool] | None = None
    """Says whether the model is told of it now, while it is active; None: it is."""
    beside: Mapping[str, "Tool"] = {}
    """Forms of the tool that take its place while another tool, named by the key, is active."""
    shown: bool = True
    """Whether the model may use it from the beginning, unless the user's list says otherwise."""
    effect: Effect | None = None
    """Effect of an external tool, for the permissions; those of built-in tools are in `shapes/builtin_tools.py`."""
    preview: Callable[[Any, ToolContext], Awaitable["Preview"]] | None = None
    """Shows what a call with these arguments would do, without doing it. Raises `ToolError` if the call would fail."""
    also: Callable[[Any], tuple[str, Effect | None] | None] | None = None
    """Returns the name of another tool, with its effect, whose rules hold for a call with these arguments, too."""


def session_variables(id: str, file: "os.PathLike[str] | None", model: Model | None, level: str) -> dict[str, str]:
    """Return the variables that tell a command which session it belongs to."""
    provider, model_id = (model.provider, model.id) if model else ("", "")
    values = id, os.fspath(file) if file else "", provider, model_id, level
    return {name: value for name, value in zip(SESSION_VARIABLES, values, strict=True) if value}


def text_result(text: str, details: Any = None) -> ToolResult:
    return ToolResult([Text(text)], details)


def arguments(*required: str, **properties: str | tuple[str, str] | dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments: described texts, `(type, description)`, or schemas."""
    schemas: dict[str, Any] = {}
    for name, given in properties.items():
        if not isinstance(given, dict):
            kind, text = ("string", given) if isinstance(given, str) else given
            given = {"type": kind, "description": text}
        schemas[name] = given
    return {"type": "object", "properties": schemas} | ({"required": list(required)} if required else {})


OTHER_PATH = {"file_path": "path", "filePath": "path", "absolute_path": "path"}
"""Names that models trained on other programs give to `path`."""
OTHER_FOLDER = OTHER_PATH | {"dir_path": "path", "directory": "path"}
OTHER_LIMIT = {"head_limit": "limit", "max_results": "limit"}
WORDS_ONLY = frozenset(("description", "justification", "explanation", "instructions", "toolCallId"))
"""Options that only say why a call is made."""


def renamed(args: Any, names: Mapping[str, str]) -> Any:
    """Return arguments with other names in the places of ours that are missing, and without other names for the same
    value."""
    if not isinstance(args, dict) or not names.keys() & args.keys():
        return args
    ours: dict[str, Any] = {}
    for name, value in args.items():
        new = names.get(name, name)
        if new == name or (new not in args and new not in ours):
            ours[new] = value
        elif ours.get(new, args.get(new)) != value:
            ours[name] = value
    return ours


def builtin_tools(bin_dir: str | None = None) -> dict[str, Tool]:
    """Return the built-in tools by name. grep and find need ripgrep, which may be in `bin_dir`."""
    # Loaded on use: a program that only wants the names need not load the rest.
    from spindle.programs.search_path import find_ripgrep

    missing = () if find_ripgrep(bin_dir) else _NEEDING_RIPGREP
    return {name: import_module(f"spindle.tools.{name}").TOOL for name in BUILTIN_TOOLS if name not in missing}
