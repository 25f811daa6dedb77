"""Signing in to a provider through the client: it opens the address, and asks for what has to be pasted."""

import asyncio
import uuid

from spindle.agent import AgentError
from spindle.agent.dialogs import Dialogs
from spindle.base.agent_dir import agent_dir
from spindle.base.user_files import BadFile
from spindle.models.credentials import AuthStore
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.messages import Wire


class LoginProvider(Wire, omit_defaults=False):
    id: str
    name: str
    available: bool
    authenticated: bool


def login_providers(store: AuthStore) -> list[LoginProvider]:
    """Return the providers that offer a sign-in."""
    from spindle.models.logins import SIGN_INS

    return [
        LoginProvider(name, offered.title, True, (store.stored(name) or {}).get("type") == "oauth")
        for name, offered in SIGN_INS.items()
    ]


async def log_in(provider: str, dialogs: Dialogs, store: AuthStore) -> None:
    """Sign in and keep the login. Raises `AgentError`."""
    from spindle.models.logins import SIGN_INS, SignInOptions
    from spindle.models.sign_in import LoginError

    if provider not in SIGN_INS:
        raise AgentError(f"There is no provider {provider} to sign in to. There are: {', '.join(SIGN_INS)}")
    if not dialogs.has_ui:
        raise AgentError("A sign-in needs a client that can show an address")
    if store.problem:
        raise AgentError(f"{store.problem.message}. The login could not be kept there: mend the file first")
    try:
        entry = await SIGN_INS[provider].sign_in(_Client(dialogs), SignInOptions(agent_dir()))
        await store.store(provider, entry)
    except LoginError as error:
        raise AgentError(str(error)) from None
    except (BadFile, OSError) as error:
        raise AgentError(f"Cannot write {store.path}: {error}") from None


class _Client:
    """The person at the client."""

    def __init__(self, dialogs: Dialogs) -> None:
        self._dialogs = dialogs
        self._said = ""

    def tell(self, text: str) -> None:
        self._said = text
        self._dialogs.tell(ExtensionUIRequest(id=str(uuid.uuid4()), method="notify", message=text, notify_type="info"))

    def visit(self, url: str) -> None:
        said = self._said or None
        self._dialogs.tell(ExtensionUIRequest(id=str(uuid.uuid4()), method="open_url", url=url, instructions=said))

    async def pasted(self) -> str:
        request = ExtensionUIRequest(id=str(uuid.uuid4()), method="input", title="Paste the code or the address here")
        answer = await self._dialogs.ask(request)
        value = None if answer is None else answer.get("value")
        if isinstance(value, str):
            return value
        await asyncio.get_running_loop().create_future()  # it may still come back by browser
        return ""
