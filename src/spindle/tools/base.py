"""What a tool is, how built-in tools are loaded, and the words their messages share."""

import os
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from spindle.base.workspace.disk import ToolError as ToolError
from spindle.base.workspace.disk import doing as doing
from spindle.base.workspace.disk import format_size as format_size
from spindle.base.workspace.disk import os_error_text as os_error_text
from spindle.shapes.builtin_tools import BUILTIN_TOOLS, Effect
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.shapes.model import Model

if TYPE_CHECKING:  # loaded on use
    from spindle.base.workspace import Workspace
    from spindle.base.workspace.pipe import Pipe
    from spindle.tools.sandbox import Sandbox

_NEEDING_RIPGREP = ("grep", "find")


class ToolSettings(Struct, frozen=True):
    """User settings that built-in tools obey."""

    shell_path: str | None = None
    shell_command_prefix: str | None = None
    auto_resize_images: bool = True
    bin_dir: str | None = None
    """`<agent dir>/bin`: searched for rg, and put in front of PATH of shell commands."""
    withheld_variables: frozenset[str] = frozenset()
    """Variables with our secrets: child processes of tools do not get them."""
    keep_background_processes: bool = False
    """Processes that a shell command starts in the background may outlive the agent."""
    owner: Any = None
    """The owner of child processes: they end with it."""
    sandbox: "Sandbox | None" = None
    """What commands and tools may touch; None: what the user may."""

    far: "Pipe | None" = None
    """Leads to the far side where tools work; None: they work here."""

    @property
    def workspace(self) -> "Workspace":
        """Where tools work."""
        if self.far is not None:
            from spindle.tools.elsewhere import Far

            return Far(self.far, self)
        from spindle.tools.workspace import Local

        return Local(self)


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
        if self.settings.sandbox is not None:
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
    sequential: bool = False
    """Whether the call never runs together with other calls of the same answer."""
    interruptible: bool = True
    """False: steering waits for it, because stopping half-way would leave a mess."""
    lent: bool = True
    """Whether subagents may have it, too. A tool that changes its own session says no."""
    needs: str = ""
    """Another tool, without which the model is not told of this one."""
    offered: Callable[[], bool] = lambda: True
    """Whether the model is told of it now, while it is active."""
    beside: Mapping[str, "Tool"] = {}
    """Forms of the tool that take its place while another tool, named by the key, is active."""
    effect: Effect | None = None
    """Effect of an external tool, for the permissions; those of built-in tools are in `shapes/builtin_tools.py`."""
    also: Callable[[Any], tuple[str, Effect | None] | None] | None = None
    """Returns the name of another tool, with its effect, whose rules hold for a call with these arguments, too."""


SESSION_VARIABLES = ("PI_SESSION_ID", "PI_SESSION_FILE", "PI_PROVIDER", "PI_MODEL", "PI_REASONING_LEVEL")


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


OTHER_PATH = {"file_path": "path"}
"""The name that models trained on another program give to `path`."""


def renamed(args: Any, names: Mapping[str, str]) -> Any:
    """Return arguments with other names in the places of ours that are missing."""
    if not isinstance(args, dict) or not names.keys() & args.keys():
        return args
    return {new if (new := names.get(name, name)) not in args else name: value for name, value in args.items()}


def builtin_tools(bin_dir: str | None = None) -> dict[str, Tool]:
    """Return the built-in tools by name. grep and find need ripgrep, which may be in `bin_dir`."""
    # Loaded on use: a program that only wants the names need not load the rest.
    from spindle.tools.grep import find_ripgrep

    missing = () if find_ripgrep(bin_dir) else _NEEDING_RIPGREP
    return {name: import_module(f"spindle.tools.{name}").TOOL for name in BUILTIN_TOOLS if name not in missing}


def well_formed(text: str) -> str:
    """Replace lone surrogates, which JSON can carry but UTF-8 cannot, by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
