"""What was made of a conversation for its last request, so that the next one costs what is new in it.

Messages do not change, and a conversation mostly grows at its end. A piece of work on the history (cleaning it, writing
it as JSON, counting it) is done for each message once, as long as the history begins with the same messages.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from spindle.shapes.codec import decode, encode
from spindle.shapes.messages import AssistantMessage, Text, ToolCall

_SHORT: Final = 1024
"""Bytes of a part whose JSON is remembered."""

T = TypeVar("T")
Make: TypeAlias = Callable[[Sequence[Any], int], list[Any]]
"""Gets messages of a history, and how many parts were made of those before them. Returns the parts that it makes."""


class Memory:
    """Belongs to one conversation."""

    def __init__(self) -> None:
        self._works: dict[str, _Work] = {}
        self._same: dict[str, tuple[tuple[Any, ...], Any]] = {}

    def same(self, name: str, make: Callable[[], T], *about: Any) -> T:
        """Return what `make` makes of what is `about`: of tools or a prompt that requests have in common, once."""
        known = self._same.get(name)
        if known is None or known[0] != about:
            known = self._same[name] = about, make()
        made: T = known[1]
        return made

    def parts(self, name: str, messages: Sequence[Any], make: Make, *about: Any, seal: bool = False) -> list[Any]:
        """Return what `make` makes of the messages; the parts of older ones are those of the last time.

        `make` gets the messages in pieces that begin with an answer; it must make the same parts of the pieces as of
        the whole. `about`: what the parts depend on besides the messages. `seal`: see `json`.
        """
        work = self._works.get(name)
        if work is None:
            self._works[name] = _Work(about)  # of a single request nothing is remembered
            return make(messages, 0)
        if work.about != about or not _begins_with(messages, work.seen):
            work = self._works[name] = _Work(about)
        since = len(work.seen)
        if (last := _last_answer(messages, since)) > since:
            new = messages[since:last]
            made = make(new, len(work.made))
            work.made += map(_sealed, made) if seal else made
            work.seen += new
        return [*work.made, *make(messages[last:], len(work.made))]

    def json(self, name: str, messages: Sequence[Any], make: Make, *about: Any) -> list[Any]:
        """Do the same as `parts` for parts that are sent: in the place of short older ones comes their JSON, as `Raw`.

        The parts belong to the memory: `from_the_end` gives those that may be changed.
        """
        return self.parts(name, messages, make, *about, seal=True)


class _Work:
    def __init__(self, about: tuple[Any, ...]) -> None:
        self.about = about
        self.seen: list[Any] = []
        """The first messages of the history."""
        self.made: list[Any] = []
        """The parts that were made of them."""


def _sealed(part: Any) -> Any:
    """Return the JSON of a part; a long one is kept as it is, because it shares its text with the message."""
    data = encode(part)
    return msgspec.Raw(data) if len(data) <= _SHORT else part


def from_the_end(parts: list[Any]) -> Iterator[Any]:
    """Give the parts of `Memory.json`, the last one first, so that they can be read and changed in their list."""
    from copy import deepcopy

    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]  # it may be remembered, and stay as it is there
        parts[index] = decode(bytes(part)) if isinstance(part, msgspec.Raw) else deepcopy(part)
        yield parts[index]


def _begins_with(messages: Sequence[Any], first: Sequence[Any]) -> bool:
    return len(messages) >= len(first) and all(map(is_, first, messages))


def _last_answer(messages: Sequence[Any], since: int) -> int:
    """Return the index of the last answer that says something, or `since` if there is none behind it."""
    for index in range(len(messages) - 1, since, -1):
        message = messages[index]
        if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            for block in message.content:
                if isinstance(block, ToolCall) or (isinstance(block, Text) and block.text):
                    return index
    return since
