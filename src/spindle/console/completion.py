"""What may be written next: commands and their arguments behind a slash, files behind an @."""

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from spindle.agent_dir import agent_dir

_FILES = 20_000
_SHOWN = 30
_FRESH = 10.0
"""Seconds for which a list of files is good."""


class ChatCompleter(Completer):
    def __init__(
        self,
        commands: Callable[[], dict[str, str]],
        arguments: Callable[[str, str], Awaitable[list[tuple[str, str]]]],
        cwd: str,
    ) -> None:
        """`commands` gives names and descriptions; `arguments` what the argument of one may become, described too."""
        self._commands = commands
        self._arguments = arguments
        self._cwd = cwd
        self._files: list[str] = []
        self._listed = float("-inf")

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        return ()  # they are only asked for below

    async def get_completions_async(self, document: Document, event: CompleteEvent) -> AsyncGenerator[Completion, None]:
        text = document.text_before_cursor
        word = document.get_word_before_cursor(WORD=True)
        if text.startswith("/") and "\n" not in text:
            name, space, argument = text[1:].partition(" ")
            if not space:
                for command, about in sorted(self._commands().items()):
                    if command.startswith(name):
                        yield Completion(command, -len(name), display=f"/{command}", display_meta=about)
                return
            for found, about in (await self._arguments(name, argument))[:_SHOWN]:
                yield Completion(found, -len(argument), display_meta=about)
        elif word.startswith("@"):
            for path in await self._matching(word[1:]):
                yield Completion(path, 1 - len(word))

    async def _matching(self, typed: str) -> list[str]:
        if time.monotonic() - self._listed > _FRESH:
            self._files, self._listed = await _list_files(self._cwd), time.monotonic()
        wanted = typed.lower()
        ranked = sorted(
            (
                not os.path.basename(path).lower().startswith(wanted),
                not path.lower().startswith(wanted),
                len(path),
                path,
            )
            for path in self._files
            if _in_order(wanted, path.lower())
        )
        return [path for *_, path in ranked[:_SHOWN]]


def _in_order(letters: str, text: str) -> bool:
    rest = iter(text)
    return all(letter in rest for letter in letters)


async def _list_files(cwd: str) -> list[str]:
    """List the files below a directory that are not ignored; none without ripgrep."""
    from spindle.limits import FILE_LIST
    from spindle.process import run
    from spindle.tools.grep import find_ripgrep

    rg = find_ripgrep(str(agent_dir() / "bin"))
    output = b"" if rg is None else (await run([rg, "--files", "--null"], cwd=cwd, timeout=FILE_LIST)).output
    return [os.fsdecode(name) for name in output.split(b"\0")[:_FILES] if name]
