"""Where paths lead by links, for the rules: as this machine has it, or as the far side tells.

Rules are tried without waiting. At a far side they are tried with what is known of its links, then again when the links
that they asked about are known, until they ask about no others.
"""

import os
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from spindle.workspace.far import Far
    from spindle.workspace.pipe import Pipe

T = TypeVar("T")

_there: ContextVar["FarLinks | None"] = ContextVar("spindle_far_links", default=None)
_MOST_TRIES = 8


def real_path(path: str) -> str:
    links = _there.get()
    return os.path.realpath(path) if links is None else links.real(path)


def is_far() -> bool:
    """Say whether the disk here tells nothing about files that a rule means; then it may mean any."""
    return _there.get() is not None


def home() -> str:
    links = _there.get()
    return os.path.expanduser("~") if links is None else links.home


def from_home(path: str) -> str:
    """Return a path with the home directory in place of `~`."""
    if not is_far():
        return os.path.expanduser(path)
    return home() + path[1:] if path == "~" or path.startswith("~/") else path


async def with_links(far: "Pipe | None", decide: Callable[[], T]) -> tuple[T, "FarLinks | None"]:
    """Return a decision about paths of this machine, or of a far side, and what was learnt there about links.

    Raises `ToolError` if the pipe breaks.
    """
    if far is None:
        return decide(), None
    from spindle.workspace.far import Far
    from spindle.workspace.settings import ToolSettings

    with FarLinks(Far(far, ToolSettings())) as links:
        return await links.settled(decide), links


class FarLinks:
    """The links of a far side, while rules are tried."""

    def __init__(self, far: "Far") -> None:
        self._far = far
        self.home = far.home
        self._known: dict[str, str] = {}
        self._asked: set[str] = set()
        self._token: Token[FarLinks | None] | None = None

    def __enter__(self) -> "FarLinks":
        self._token = _there.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _there.reset(self._token)

    def real(self, path: str) -> str:
        if path not in self._known:  # as it is written: `..` after a link leads out of the folder behind the link
            self._asked.add(path)
        return self._known.get(path) or os.path.normpath(path)

    async def settled(self, decide: Callable[[], T]) -> T:
        """Return the decision that is made with all links known. Raises `ToolError` if the pipe breaks."""
        decision = decide()
        for _ in range(_MOST_TRIES):
            if not self._asked:
                break
            paths = sorted(self._asked)
            self._asked.clear()
            self._known |= dict(zip(paths, await self._far.real_paths(paths), strict=True))
            decision = decide()
        return decision
