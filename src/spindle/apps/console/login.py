"""`/login`: sign in to a provider that offers it, or store its key, without leaving the chat."""

from typing import TYPE_CHECKING

from spindle.apps.console.input import Question
from spindle.apps.console.look import clean
from spindle.base.agent_dir import agent_dir
from spindle.base.user_files import BadFile
from spindle.models.catalog import builtin_providers
from spindle.models.credentials import AuthStore, Entry
from spindle.models.sign_in import LoginError

if TYPE_CHECKING:
    from spindle.apps.console.talk import Talk

_KEY = "Enter a key"


def _ways(provider: str) -> list[str]:
    """Return how one gets in at a provider."""
    from spindle.models.logins import SIGN_INS

    login, info = SIGN_INS.get(provider), builtin_providers().get(provider)
    return [*([f"Sign in: {login.title}"] if login else []), *([_KEY] if info and info.env else [])]


def offered() -> list[tuple[str, str]]:
    """Return the providers, each with how to get in there."""
    from spindle.models.logins import SIGN_INS

    names = dict.fromkeys([*SIGN_INS, *builtin_providers()])
    return [(name, ", or ".join(ways)) for name in names if (ways := _ways(name))]


class ChatLogin:
    """The `Person` who signs in, at the chat."""

    def __init__(self, talk: "Talk") -> None:
        self._talk = talk

    def tell(self, text: str) -> None:
        self._talk.view.say(clean(text))

    def visit(self, url: str) -> None:
        self._talk.view.say(f"  {clean(url)}", "cyan", kind="more")

    async def pasted(self) -> str:
        text = await self._talk.editor.ask(Question("Paste the code or the address here, if you are asked to"))
        if not text:
            raise LoginError("Interrupted")
        return str(text)

    async def run(self, provider: str) -> None:
        """Get in, and keep that in `auth.json`, which the agent reads again by itself."""
        from spindle.models.logins import SIGN_INS, SignInOptions

        store = AuthStore(agent_dir())
        if store.problem:
            self._talk.view.fail(store.problem.message)
            return
        ways = _ways(provider)
        chosen = 0 if len(ways) == 1 else await self._talk.editor.ask(Question(f"How, at {provider}?", ways))
        if chosen is None:
            return
        try:
            if ways[chosen] == _KEY:
                entry = await self._key(provider, store)
            else:
                entry = await SIGN_INS[provider].sign_in(self, SignInOptions(agent_dir()))
            await store.store(provider, entry)
        except LoginError as error:
            self._talk.view.fail(f"{error}")
        except (BadFile, OSError) as error:
            self._talk.view.fail(f"Cannot write {store.path}: {error}")
        else:
            self._talk.view.say(f"Kept in {store.path}. /model chooses a model of {provider}", "dim")

    async def _key(self, provider: str, store: AuthStore) -> Entry:
        if self._talk.is_plain:
            raise LoginError(f"On this terminal a key would be seen. Use: spindle keys set {provider}")
        text = await self._talk.editor.ask(Question(f"The API key of {provider}? It is not shown", secret=True))
        key = str(text or "").strip()
        if not key:
            raise LoginError("No key was given")
        if key.startswith(("!", "$")) or not key.isprintable() or " " in key:
            raise LoginError("That is no key: it has a character that keys do not have")
        before = store.stored(provider) or {}
        return {**({"env": before["env"]} if "env" in before else {}), "type": "api_key", "key": key}
