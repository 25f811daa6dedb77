"""The first minute: a list of the ways to a model, of which one is chosen; a key may be pasted at any question."""

import os
import re
import select
import sys
from collections.abc import Sequence

from msgspec.structs import replace

from spindle.agent.session import AgentSession
from spindle.apps.cli import tell
from spindle.apps.cli.args import Options, UsageError
from spindle.apps.cli.assemble import assemble
from spindle.base.settings import SettingsStore
from spindle.base.terminal import plain, unguarded
from spindle.base.user_files import BadFile
from spindle.models.model_registry import ModelRegistry
from spindle.models.ways import may_be_shown, provider_of_word, providers_of_key, ways_to_a_model
from spindle.shapes.owner import Way

_KEY = re.compile(r"\x1b(?:[\[O][0-9;]*[A-Za-z~])?|[\s\S]")
_OPEN = re.compile(rb"\x1b(?:[\[O][0-9;]*)?\Z")
"""The beginning of a key."""
_PIECE = 0.1
"""Seconds in which the rest of a key comes."""
_ADVICE = "Choose from the list, paste a key, or type what its models are called, as claude, gpt or gemini"
_HINT = "Arrows and Enter, a number, or paste a key (it is not shown); Esc leaves"


async def assemble_with_model(options: Options, mode: str) -> AgentSession:
    """Make the agent; if it has no model, let the person choose one. Raises `NothingChosen`, and as `assemble`."""
    agent = await assemble(options, mode)
    while agent.model is None:
        resources = agent.resources
        await agent.close()
        if (name := await _choose(resources.registry)) is not None:
            _keep(name, resources.store)
            options = replace(options, model=name)
        agent = await assemble(options, mode)
    return agent


def _keep(name: str, store: SettingsStore) -> None:
    """Keep the model that was chosen for the next time: a server has no key by which it would be found again."""
    provider, _, model = name.partition("/")
    try:
        store.save("defaultProvider", provider)
        store.save("defaultModel", model)
    except (BadFile, OSError) as error:
        tell("Note", f"The choice cannot be kept: {error}")
    else:
        tell("Note", f"New sessions begin with {name} ({store.global_path})")


async def _choose(registry: ModelRegistry) -> str | None:
    """Return the name of the model, or None: the one of the provider that has a key now. Raises `NothingChosen`."""
    import signal

    from spindle.apps.cli.session_choice import NothingChosen

    signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio's handler would wait for the answer
    ways = ways_to_a_model(registry)
    try:
        while (answer := _ask("There is no model yet. Which one?", [way.title for way in ways])) is not None:
            try:
                if isinstance(answer, int):
                    return await _go(ways[answer], registry)
                return await _take(answer, registry)
            except UsageError as error:
                tell("Error", str(error))
    except (KeyboardInterrupt, EOFError):
        print(file=sys.stderr)
    raise NothingChosen("No model was chosen")


async def _go(way: Way, registry: ModelRegistry) -> str | None:
    match way.kind:
        case "server":
            return way.name
        case "small":
            from spindle.apps.cli.models_command import SMALL, run

            if run(["pull", way.name]):
                raise UsageError("The model was not got")
            return f"local/{SMALL.name}"
        case "sign-in":
            from spindle.apps.cli.login_command import sign_in_at

            if await sign_in_at(way.name, registry.auth):
                raise UsageError("Nobody has signed in")
            return None
        case "keys":
            return await _keys_of_pi(way, registry)
    names = ["anthropic", "openai", "google", "openrouter", "another one"]
    at = _ask("A key of which provider? Or paste the key", names)
    if at is None:
        raise UsageError("No key was given")
    if isinstance(at, str):
        return await _take(at, registry)
    if at == len(names) - 1:
        raise UsageError("Type the provider's name, or what its models are called, in place of a number")
    return await _read(names[at], registry)


async def _keys_of_pi(way: Way, registry: ModelRegistry) -> str | None:
    from spindle.models.keys import BadKey, keys_of_pi

    try:
        await keys_of_pi(registry, way.name)
    except BadKey as error:
        raise UsageError(str(error)) from None
    print(f"Kept in {registry.auth.path}", file=sys.stderr)
    return None


async def _take(text: str, registry: ModelRegistry) -> str | None:
    """Take a key, the name of a provider, or that of a product. Raises `UsageError`, without the text."""
    from spindle.apps.cli.keys_command import known_provider, set_key

    if names := providers_of_key(text):
        at = _ask("Keys like this one are of several providers. Which?", names) if len(names) > 1 else 0
        if not isinstance(at, int):
            raise UsageError("No key was kept")
        await set_key(registry, names[at], text)
        return None
    if len(text) >= 20 and " " not in text:
        raise UsageError("That looks like a key, but not of whom: name its provider first. It was not kept")
    provider = provider_of_word(text) or known_provider(registry, text, _ADVICE)
    if provider == "github-copilot":
        return await _go(Way("sign-in", provider, "", ""), registry)
    return await _read(provider, registry)


async def _read(provider: str, registry: ModelRegistry) -> str | None:
    from spindle.apps.cli.keys_command import read_key, set_key

    key = read_key(provider)
    names = providers_of_key(key) or (provider,)
    await set_key(registry, provider if provider in names else names[0], key)  # pasted at the wrong question
    return None


# -- asking ------------------------------------------------------------------------------------------


def _ask(title: str, options: Sequence[str]) -> int | str | None:
    """Return the number of the chosen option, a typed text, or None: the person leaves."""
    try:
        import termios

        termios.tcgetattr(0)
    except (ImportError, OSError, termios.error):
        return None
    print(title, file=sys.stderr)
    if os.environ.get("TERM", "dumb") in ("dumb", ""):
        return _ask_on_a_line(options)
    return _Menu(options).run()


def _ask_on_a_line(options: Sequence[str]) -> int | str | None:
    import getpass

    for number, option in enumerate(options, 1):
        print(f"  {number}. {plain(option)}", file=sys.stderr)
    while text := getpass.getpass("Number, or a key (it is not shown; Enter leaves): ", sys.stderr).strip():
        if (answer := _meant(text, options)) is not None:
            return answer
    return None


def _meant(text: str, options: Sequence[str]) -> int | str | None:
    """Return the option with this number or beginning, else the text; None: there is no option of this number."""
    if text.isdecimal():
        return int(text) - 1 if 0 < int(text) <= len(options) else None
    fits = [at for at, option in enumerate(options) if option.lower().startswith(text.lower())]
    return fits[0] if len(fits) == 1 else text


class _Menu:
    """A list with a marked row. What is typed is only shown if it begins a word that we know."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = options
        self._at = 0
        self._typed = ""
        self._lines = 0
        self._out = unguarded(sys.stderr)

    def run(self) -> int | str | None:
        import termios
        import tty

        before = termios.tcgetattr(0)
        tty.setcbreak(0, termios.TCSADRAIN)
        try:
            while True:
                self._draw()
                for key in self._keys():
                    if key in ("\x1b", "\x04", ""):
                        return self._end(None)
                    if key in "\r\n":
                        if (answer := self._answer()) is not None:
                            return self._end(answer)
                    elif key in ("\x1b[A", "\x1bOA", "\x1b[B", "\x1bOB"):
                        self._at = (self._at + (1 if key[-1] == "B" else -1)) % len(self._options)
                    else:
                        self._type(key)
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)

    def _keys(self) -> list[str]:
        """Read what was typed: over a slow line, one key comes in pieces, and several come at once. "": the end."""
        data = os.read(0, 4096)
        while data and _OPEN.search(data) and select.select([0], [], [], _PIECE)[0]:
            data += os.read(0, 4096)
        return _KEY.findall(data.decode("utf-8", "replace")) or [""]

    def _type(self, key: str) -> None:
        if key in "\x7f\b":
            self._typed = self._typed[:-1]
        elif key == "\x15":
            self._typed = ""
        elif key.isprintable():
            self._typed += key

    def _answer(self) -> int | str | None:
        text = self._typed.strip()
        self._typed = ""
        return _meant(text, self._options) if text else self._at

    def _draw(self) -> None:
        size = os.get_terminal_size(0)
        width, most = max(20, size.columns) - 1, max(3, size.lines - 4)
        rows = [f"{'>' if at == self._at else ' '} {at + 1}. {option}" for at, option in enumerate(self._options)]
        first = max(0, min(self._at - most // 2, len(rows) - most))
        rows = rows[first : first + most]
        typed = self._typed if may_be_shown(self._typed) or self._typed.isdecimal() else "*" * min(len(self._typed), 20)
        rows += [_HINT, f"? {typed}"]
        self._erase()
        self._out.write("\n".join(plain(row)[:width] for row in rows))
        self._out.flush()
        self._lines = len(rows)

    def _erase(self) -> None:
        if self._lines:
            self._out.write(f"\r\x1b[{self._lines - 1}A\x1b[J" if self._lines > 1 else "\r\x1b[J")

    def _end(self, answer: int | str | None) -> int | str | None:
        self._erase()
        if isinstance(answer, int):
            self._out.write(f"  {plain(self._options[answer])}\n")
        self._out.flush()
        self._lines = 0
        while select.select([0], [], [], 0)[0] and answer is None and os.read(0, 4096):
            pass
        return answer
