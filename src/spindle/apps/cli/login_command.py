"""`spindle login` and `spindle logout`: sign in to a provider that offers it; forget the login."""

import asyncio
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from spindle.apps.cli import tell
from spindle.apps.cli.args import UsageError
from spindle.apps.cli.usage import CommandParser
from spindle.base.agent_dir import agent_dir
from spindle.models.credentials import AuthStore, Entry

if TYPE_CHECKING:
    from spindle.models.logins import SignIn, SignInOptions

_ANTHROPIC = (
    "Anthropic's terms allow logins with a subscription in its own programs only, so there is none here. "
    "Set ANTHROPIC_API_KEY to a key of the Anthropic Console."
)


def login_parser() -> CommandParser:
    parser = CommandParser("spindle login", description="Sign in to a provider; without one, list those that offer it.")
    parser.add_argument("provider", nargs="?", metavar="PROVIDER", help="which one")
    parser.add_argument("--enterprise", default="", metavar="DOMAIN", help="a GitHub Enterprise server")
    parser.add_argument("--device", action="store_true", help="with a code to type on another machine")
    return parser


def logout_parser() -> CommandParser:
    parser = CommandParser("spindle logout", description="Forget a login or a key; without a provider, list them.")
    parser.add_argument("provider", nargs="?", metavar="PROVIDER", help="whose")
    return parser


def run_login(argv: list[str]) -> int:
    """Sign in, or list the providers that offer it. Raises `UsageError`."""
    from spindle.models.logins import SIGN_INS, SignInOptions

    given = login_parser().parse_args(argv)
    provider, enterprise, device = given.provider, given.enterprise, given.device
    store = AuthStore(agent_dir())
    if provider is None:
        for name, offered in SIGN_INS.items():
            print(f"{name:<16} {offered.title}{_state(store.stored(name))}")
        print("Sign in with: spindle login PROVIDER")
        return 0
    if provider == "anthropic":
        raise UsageError(_ANTHROPIC, 1)
    if provider not in SIGN_INS:
        raise UsageError(_no_sign_in(provider))
    if enterprise and provider != "github-copilot":
        raise UsageError("--enterprise is for github-copilot")
    if device and provider not in ("github-copilot", "openai-codex"):
        raise UsageError("--device is for github-copilot and openai-codex")
    _check_file(store)
    if not any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("A sign-in needs a terminal: without one, its address would be shown to nobody", 1)
    options = SignInOptions(agent_dir(), enterprise=enterprise, device=device)
    return asyncio.run(_sign_in(provider, SIGN_INS[provider], options, store))


async def sign_in_at(provider: str, store: AuthStore) -> int:
    """Sign in where the person sits. Returns the exit code. Raises `UsageError`."""
    from spindle.models.logins import SIGN_INS, SignInOptions

    _check_file(store)
    return await _sign_in(provider, SIGN_INS[provider], SignInOptions(agent_dir()), store)


def _check_file(store: AuthStore) -> None:
    """Raise `UsageError` if a login could not be kept: better before the person has signed in than after."""
    if store.problem:
        raise UsageError(f"{store.problem.message}. The login could not be kept there: mend the file first", 1)
    folder = store.path.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The login could not be kept: {folder}: {error.strerror}", 1) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"The login could not be kept: {folder} cannot be written to", 1)


def run_logout(argv: list[str]) -> int:
    """Remove an entry of `auth.json`. Raises `UsageError`."""
    from spindle.base.user_files import BadFile

    provider = logout_parser().parse_args(argv).provider
    store = AuthStore(agent_dir())
    names = [*store.entries()]
    if store.problem:
        raise UsageError(store.problem.message, 1)
    if provider is None:
        for name in names:
            print(f"{name:<16} {store.entries()[name].get('type')}{_state(store.stored(name))}")
        print("Log out with: spindle logout PROVIDER" if names else f"Nothing is stored in {store.path}")
        return 0
    if provider not in names:
        raise UsageError(f"{store.path} has nothing of {provider}", 1)
    try:
        asyncio.run(store.store(provider, None))
    except (BadFile, OSError) as error:
        raise UsageError(f"Cannot change {store.path}: {error}", 1) from None
    print(f"Removed {provider} from {store.path}. The provider was not told: to void the login, go to its website.")
    return 0


def _no_sign_in(provider: str) -> str:
    """Say why this provider offers no sign-in, and what to do instead."""
    from spindle.models.logins import LOGINS, SIGN_INS
    from spindle.models.model_registry import ModelRegistry

    registry = ModelRegistry(agent_dir())
    if provider not in registry.providers() and provider not in LOGINS:
        return f"There is no provider {provider!r} to sign in to. There are: {', '.join(SIGN_INS)}"
    goes_on = " A login made in pi is used and renewed." if provider in LOGINS else ""
    _, _, how = registry.no_key_text(provider).partition("\n\n")
    return f"{provider} has no sign-in here.{goes_on} {how}"


def _state(entry: Entry | None) -> str:
    if not entry or entry.get("type") != "oauth":
        return ""
    end = entry.get("expires")
    is_over = isinstance(end, int | float) and end <= time.time() * 1000
    return " (signed in; the token is renewed on the next use)" if is_over else " (signed in)"


async def _sign_in(provider: str, login: "SignIn", options: "SignInOptions", store: AuthStore) -> int:
    from spindle.base.user_files import BadFile
    from spindle.models.sign_in import LoginError

    try:
        entry = await login.sign_in(_Terminal(), options)
        await store.store(provider, entry)
    except LoginError as error:
        tell("Error", f"{error}.")
        return 1
    except (BadFile, OSError) as error:
        tell("Error", f"Cannot write {store.path}: {error}")
        return 1
    print(f"Signed in to {provider}. The login is kept in {store.path}")
    if isinstance(models := entry.get("availableModelIds"), list):
        print(f"Models of this account: {', '.join(models) or 'none; see the Copilot settings on GitHub'}")
    return 0


def open_page(url: str) -> None:
    """Open a page in the browser of the person at this machine, if there is a screen."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    has_screen = sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in screens)
    if has_screen and not os.environ.get("SSH_CONNECTION"):
        import webbrowser

        webbrowser.open(url)


class _Terminal:
    """The person at the terminal."""

    def tell(self, text: str) -> None:
        print(text, flush=True)

    def visit(self, url: str) -> None:
        print(f"  {url}", flush=True)
        if sys.stdout.isatty():
            open_page(url)

    async def pasted(self) -> str:
        """Read a line of stdin, in a thread that ends with the process: nothing can interrupt such a read."""
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str] = loop.create_future()

        def take(text: str) -> None:
            if not line.done():
                line.set_result(text)

        def read() -> None:
            text = next((text for text in sys.stdin if text.strip()), None)
            if text is not None:
                loop.call_soon_threadsafe(take, text)

        threading.Thread(target=read, daemon=True).start()
        return await line
