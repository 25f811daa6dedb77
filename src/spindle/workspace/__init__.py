"""Where the files and commands of a session are: on this machine, or on the far side of a pipe.

All tools work through a `Workspace`. Its operations are functions of `disk`, `replacing`, `texts` and `search`: called
here, or sent as the source of the helper at the far side (`helper`) and called there. `pipe` is our end of the pipe;
the workspace behind it is in `workspace/far.py`, the local one in `workspace/local.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from spindle.workspace.disk import Cancel

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[Concatenate[Cancel, P], T]
"""An operation: it looks at its first argument now and then, and stops if the result is not wanted any more."""


Sink = Callable[[bytes], None]


class KeptOutput(Protocol):
    """The file with a whole output."""

    path: str | None
    """None: there is none yet."""
    error: str | None
    """Why there is none, though there should be one."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class CommandOutput(Protocol):
    """The file that a background command writes to."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Size of the file when it was last looked at."""

    @property
    def dropped(self) -> int:
        """Bytes that were in the file when it began again."""

    async def part(self, begin: int, most: int) -> tuple[int, bytes]:
        """Read a part of the file, as `texts.read_output` does. Raises `ToolError` if the file was deleted."""

    def close(self) -> None:
        """Watch the file no more."""


class Running(Protocol):
    """A program that runs; `programs/process.py` has the local one."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int: ...

    async def wait(self) -> int: ...

    async def stop(self, grace: float) -> None: ...

    def on_end(self, call: Callable[[], None]) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def kill(self) -> None: ...

    def kill_rest(self) -> None: ...


class Findings(NamedTuple):
    """What a program that looked at a file has said of it."""

    passed: bool
    output: bytes
    remarks: Sequence[str] = ()
    """What the sandbox has to say."""


NO_FINDINGS = Findings(True, b"")


class Workspace(Protocol):
    @property
    def home(self) -> str:
        """The home directory of the user there."""

    async def do(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Carry out an operation that only reads. When cancelled, return at once. Raises as the operation does."""

    async def change(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Carry out an operation that changes something. When cancelled, return only when it has ended."""

    async def edit(self, path: str, shown: str, cwd: str, largest: int, new: Callable[[bytes], tuple[bytes, T]]) -> T:
        """Replace the content of a file by what `new` makes of it. Raises `ToolError`."""

    async def real_paths(self, paths: list[str]) -> list[str]:
        """Return where paths lead, by whatever links. Raises `ToolError`."""

    def hides(self, path: str) -> bool:
        """Say whether a file that a search has found shows secrets of a process."""

    async def ripgrep(self, options: Sequence[str], cwd: str, on_output: Sink, on_errors: Sink) -> Running:
        """Start ripgrep, or what stands in for it there. Raises `OSError`, and `ToolError` if there is none."""

    async def look_at(self, path: str, words: Sequence[str], cwd: str, seconds: float) -> Findings:
        """Let a program of the user look at a file: no shell, no input. It finds nothing if there is no such file, or
        if it cannot be run, or not in time."""

    def kept(self) -> KeptOutput:
        """Return a file for the whole output of a command; it is made when it is needed."""

    async def shell(
        self, command: str, cwd: str, env: Mapping[str, str], on_output: Sink, kept: KeptOutput | None = None
    ) -> Running:
        """Start a command in the user's shell. `env` is added to the environment there. Raises `ToolError`.

        `kept` gets the output too, from `on_output` or there.
        """

    async def background(
        self, command: str, cwd: str, env: Mapping[str, str], on_change: Callable[[], None]
    ) -> tuple[Running, CommandOutput]:
        """Start a command whose output goes to a file; `on_change` is called when the file has changed.

        Raises `ToolError`.
        """
