"""What a tool is, how built-in tools are loaded, and the words their messages share."""

import errno
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from spindle.shapes.builtin_tools import BUILTIN_TOOLS, Effect
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.shapes.model import Model

if TYPE_CHECKING:  # loaded only if there is a sandbox
    from spindle.tools.sandbox import Sandbox

_NEEDING_RIPGREP = ("grep", "find")


class ToolError(Exception):
    """A tool failed in a way the model should read about: the text becomes an error result."""

    def __init__(self, text: str, details: Any = None) -> None:
        super().__init__(text)
        self.details = details
        """Details of the error result."""


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


# -- words ---------------------------------------------------------------------------------------

_ERROR_TEXTS = {
    "EBUSY": "resource busy or locked",
    "EEXIST": "file already exists",
    "EIO": "i/o error",
    "EISDIR": "illegal operation on a directory",
    "ELOOP": "too many symbolic links encountered",
    "ENAMETOOLONG": "name too long",
    "ENXIO": "no such device or address",
    "EROFS": "read-only file system",
    "ETXTBSY": "text file is busy",
    "EXDEV": "cross-device link not permitted",
}
"""Errors of the operating system in the words Node programs use, where the C library's differ: models know Node's."""


def error_code(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "UNKNOWN")


def os_error_text(error: OSError, operation: str, path: str | None = None) -> str:
    """Describe a failed `operation` (`open`, `mkdir`, …) on `path`."""
    if error.errno is None:  # not from the system; its text is readable already
        return str(error)
    code = error_code(error)
    text = _ERROR_TEXTS.get(code) or os.strerror(error.errno).lower()
    return f"{code}: {text}, {operation}" + (f" '{path}'" if path is not None else "")


@contextmanager
def doing(operation: str, path: str | None = None) -> Iterator[None]:
    """Turn an `OSError` of this operation into a `ToolError`."""
    try:
        yield
    except OSError as error:
        raise ToolError(os_error_text(error, operation, path)) from None


def format_size(count: int) -> str:
    """Write a number of bytes for people: `512B`, `50.0KB`, `1.5MB`."""
    if count < 1024:
        return f"{count}B"
    if count < 1024 * 1024:
        return f"{count / 1024:.1f}KB"
    return f"{count / (1024 * 1024):.1f}MB"


def well_formed(text: str) -> str:
    """Replace lone surrogates, which JSON can carry but UTF-8 cannot, by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
