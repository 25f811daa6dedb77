"""What stands for the sandbox of a session that has none: commands and tools may touch what the user may."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:  # loaded with the first child
    from spindle.programs.process import Process
    from spindle.shapes.sandbox import Network, SandboxLevel
    from spindle.workspace import Running

T = TypeVar("T")


class NoSandbox:
    """Has the methods of `Sandbox`, and holds nothing."""

    level: "SandboxLevel" = "off"
    fence = None
    inner = None
    network: "Network" = "on"
    writable: Sequence[str] = ()

    def holds(self) -> list[str]:
        return []

    def does_not_hold(self) -> list[str]:
        return []

    def bind(self, is_outside: Callable[[str], bool], ask: Callable[[str, str], Awaitable[bool]]) -> None:
        pass

    def require(self, path: str, *, write: bool = False) -> None:
        pass

    def look(self, work: Callable[[], T]) -> T:
        return work()

    def change(self, work: Callable[[], T]) -> T:
        return work()

    def begin(self) -> list[str]:
        return []

    def finish(self) -> list[str]:
        return []

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return dict(env)

    def start(self, command: str, argv: Sequence[str], **how: Any) -> "Process":
        from spindle.programs.process import Process

        return Process(argv, **how)

    async def may_run_outside(self, process: "Running") -> bool:
        return False

    def end(self, owner: object, tell: Callable[[str], None]) -> None:
        pass


NO_SANDBOX: Final = NoSandbox()
