"""The sign-ins that providers offer, and how the logins are renewed and used.

An entry of `auth.json` is `{"type": "oauth", "access", "refresh", "expires"}` (milliseconds), with more keys for some
providers, as pi writes it. Not every login of pi can be made here, but all that are listed here can be renewed.
"""

import asyncio
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import UUID, uuid4

from msgspec import Struct
from msgspec.structs import replace

from spindle.base import limits
from spindle.base.user_files import edit_json
from spindle.llm.openai_codex import account_id
from spindle.models.credentials import Entry, ModelAuth, bearer
from spindle.models.sign_in import (
    Callback,
    LoginError,
    Person,
    Proof,
    ask,
    device_login,
    granted,
    number_in,
    refusal,
    show_code,
    text_in,
)

_MARGIN_MS = 5 * 60 * 1000
"""A token counts as expired this long before its end."""


class SignInOptions(Struct, frozen=True):
    """Options of the person on the command line."""

    agent_dir: Path
    enterprise: str = ""
    """Domain of a GitHub Enterprise server."""
    device: bool = False
    """Sign in with a code on a page, on any machine."""


class Login(ABC):
    """One provider's sign-in."""

    title: str

    @abstractmethod
    async def renew(self, entry: Entry, proxy: str | None) -> Entry:
        """Return the keys of an entry that have changed. Raises `LoginError`."""

    def auth(self, entry: Entry) -> ModelAuth:
        """Return the credentials for a request."""
        return bearer(entry["access"])


class SignIn(Login):
    @abstractmethod
    async def sign_in(self, person: Person, options: SignInOptions) -> Entry:
        """Return a new entry. Raises `LoginError`."""


def is_due(entry: Entry) -> bool:
    """Tell whether an entry has to be renewed before it is used."""
    return expires(entry) <= time.time() * 1000 + _MARGIN_MS


def expires(entry: Entry) -> float:
    value = entry.get("expires")
    return value if isinstance(value, int | float) else 0


def _entry(answer: Mapping[str, Any], *, refresh: str | None = None, margin_ms: int = 0) -> Entry:
    """Make an entry of a token server's answer; without a new refresh token the old one stays."""
    seconds = number_in(answer, "expires_in", 3600)
    new = answer.get("refresh_token")
    return {
        "type": "oauth",
        "access": text_in(answer, "access_token"),
        "refresh": (new if isinstance(new, str) else "") or refresh or text_in(answer, "refresh_token"),
        "expires": int((time.time() + seconds) * 1000) - margin_ms,
    }


# -- GitHub Copilot ------------------------------------------------------------------------------


class Copilot(SignIn):
    """The GitHub token is kept as `refresh`; it is exchanged for a short-lived token that the models accept."""

    title = "GitHub Copilot"
    _CLIENT_ID = "Iv1.b507a08c87ecfe98"
    _HEADERS = {  # noqa: RUF012
        "User-Agent": "GitHubCopilotChat/0.35.0",
        "Editor-Version": "vscode/1.107.0",
        "Editor-Plugin-Version": "copilot-chat/0.35.0",
        "Copilot-Integration-Id": "vscode-chat",
    }

    async def sign_in(self, person: Person, options: SignInOptions) -> Entry:
        domain = _domain(options.enterprise)
        host = domain or "github.com"
        agent = {"User-Agent": self._HEADERS["User-Agent"]}
        form = {"client_id": self._CLIENT_ID, "scope": "read:user"}
        url = f"https://{host}/login/device/code"
        device = await granted(f"{host} gave no code", "POST", url, form=form, headers=agent)
        token_url = f"https://{host}/login/oauth/access_token"
        token = await device_login(person, device, token_url, self._CLIENT_ID, agent)
        entry = {"type": "oauth", "refresh": token["access_token"]}
        if domain:
            entry["enterpriseUrl"] = domain
        return entry | await self.renew(entry, None)

    async def renew(self, entry: Entry, proxy: str | None) -> Entry:
        domain = _domain(str(entry.get("enterpriseUrl") or ""))
        url = f"https://api.{domain or 'github.com'}/copilot_internal/v2/token"
        headers = {"Authorization": f"Bearer {entry['refresh']}", **self._HEADERS}
        answer = await granted("GitHub gave no Copilot token", "GET", url, headers=headers, proxy=proxy)
        access = text_in(answer, "token")
        new: Entry = {
            "access": access,
            "expires": int(number_in(answer, "expires_at", time.time() + 1800) * 1000) - _MARGIN_MS,
        }
        try:
            new["availableModelIds"] = await self._models(access, domain, proxy)
        except LoginError:
            pass  # the previous list stays
        return new

    async def _models(self, access: str, domain: str, proxy: str | None) -> list[str]:
        """Return the models that the account may use."""
        base = _copilot_url(access, domain)
        headers = {"Authorization": f"Bearer {access}", "X-GitHub-Api-Version": "2026-06-01", **self._HEADERS}
        status, answer = await ask("GET", f"{base}/models", headers=headers, proxy=proxy)
        listed = answer.get("data")
        if status >= 300 or not isinstance(listed, list):
            raise refusal("GitHub gave no list of models", status, answer)
        found = [item for item in listed if isinstance(item, dict) and isinstance(item.get("id"), str)]
        found = [item for item in found if _at(item, "capabilities", "supports", "tool_calls") is not False]
        picked = [item["id"] for item in found if item.get("model_picker_enabled") is True]
        denied = {item["id"] for item in found if _at(item, "policy", "state") == "disabled"}
        # Some accounts have no model marked for the picker although their policies allow some.
        allowed = picked or [item["id"] for item in found if _at(item, "policy", "state") == "enabled"]
        return [id for id in allowed if id not in denied]

    def auth(self, entry: Entry) -> ModelAuth:
        base_url = _copilot_url(entry["access"], _domain(str(entry.get("enterpriseUrl") or "")))
        return replace(super().auth(entry), base_url=base_url)


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _domain(text: str) -> str:
    """Return the host name in an address or a bare name; empty if there is none. Raises `LoginError`."""
    if not (text := text.strip()):
        return ""
    try:
        host = urlsplit(text if "://" in text else f"https://{text}").hostname or ""
    except ValueError:
        host = ""
    if not re.fullmatch(r"[A-Za-z0-9.-]+", host):
        raise LoginError(f"{text!r} is not the domain of a GitHub Enterprise server")
    return host


def _copilot_url(token: str, domain: str) -> str:
    """Return the address of the models, which the token names."""
    if found := re.search(r"proxy-ep=([A-Za-z0-9.-]+)", token):
        return f"https://{re.sub(r'^proxy[.]', 'api.', found[1])}"
    return f"https://copilot-api.{domain}" if domain else "https://api.individual.githubcopilot.com"


# -- ChatGPT -------------------------------------------------------------------------------------

_PORT = 1455
_SCOPE = "openid profile email offline_access"


class Codex(SignIn):
    """A ChatGPT subscription, as the provider `openai-codex`."""

    title = "ChatGPT Plus, Pro or Business (models of Codex)"
    _CLIENT_ID = "app_EMoamEEZ73f0CkXaXp7hrann"
    _HOST = "https://auth.openai.com"
    _TOKEN_URL = f"{_HOST}/oauth/token"

    async def sign_in(self, person: Person, options: SignInOptions) -> Entry:
        if options.device:
            code, verifier, redirect = await self._with_code(person)
        else:
            code, verifier, redirect = await self._with_browser(person)
        form = {
            "grant_type": "authorization_code",
            "client_id": self._CLIENT_ID,
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": redirect,
        }
        what = "ChatGPT did not accept the sign-in"
        return self._checked(await granted(what, "POST", self._TOKEN_URL, form=form))

    async def _with_browser(self, person: Person) -> tuple[str, str, str]:
        proof = Proof()
        callback = Callback("localhost", "/auth/callback", proof.state)
        async with callback.listening(_PORT):
            query = {
                "response_type": "code",
                "client_id": self._CLIENT_ID,
                "redirect_uri": callback.url,
                "scope": _SCOPE,
                "code_challenge": proof.challenge,
                "code_challenge_method": "S256",
                "state": proof.state,
                "id_token_add_organizations": "true",
                "codex_cli_simplified_flow": "true",
                "originator": "spindle",
            }
            person.visit(f"{self._HOST}/oauth/authorize?{urlencode(query)}")
            return (await callback.answer(person))["code"], proof.verifier, callback.url

    async def _with_code(self, person: Person) -> tuple[str, str, str]:
        url = f"{self._HOST}/api/accounts/deviceauth"
        device = await granted("ChatGPT gave no code", "POST", f"{url}/usercode", json={"client_id": self._CLIENT_ID})
        id, code = text_in(device, "device_auth_id"), text_in(device, "user_code")
        show_code(person, f"{self._HOST}/codex/device", code)
        seconds, end = number_in(device, "interval", 5), time.monotonic() + limits.LOGIN
        while time.monotonic() < end:
            await asyncio.sleep(seconds)
            status, answer = await ask("POST", f"{url}/token", json={"device_auth_id": id, "user_code": code})
            if status < 300:
                redirect = f"{self._HOST}/deviceauth/callback"
                return text_in(answer, "authorization_code"), text_in(answer, "code_verifier"), redirect
            error = answer.get("error")
            word = error.get("code") if isinstance(error, dict) else error
            if word == "slow_down":
                seconds += 5
            elif status not in (403, 404) and word != "deviceauth_authorization_pending":
                raise refusal("The sign-in failed", status, answer)
        raise LoginError("The code was not entered in time; sign in again", refused=True)

    async def renew(self, entry: Entry, proxy: str | None) -> Entry:
        form = {"grant_type": "refresh_token", "refresh_token": entry["refresh"], "client_id": self._CLIENT_ID}
        what = "ChatGPT did not renew the sign-in"
        answer = await granted(what, "POST", self._TOKEN_URL, form=form, proxy=proxy)
        return self._checked(answer, entry["refresh"])

    def _checked(self, answer: Mapping[str, Any], refresh: str | None = None) -> Entry:
        entry = _entry(answer, refresh=refresh)
        account = account_id(entry["access"])
        if account is None:
            raise LoginError("The token of ChatGPT names no account", refused=True)
        return entry | {"accountId": account}

    def auth(self, entry: Entry) -> ModelAuth:
        return ModelAuth(entry["access"])


class ChatGPT(SignIn):
    """A ChatGPT subscription for OpenAI's API, as the provider `openai`: every sign-in registers its own client."""

    title = "OpenAI with a ChatGPT subscription"
    _RESOURCE = "https://api.openai.com/v1"
    _DIRECT = "chatgpt.tokens.use.direct"
    _TOKEN_URL = "https://auth.openai.com/api/accounts/oauth/token"
    _EARLY_MS = 3 * 60 * 1000

    async def sign_in(self, person: Person, options: SignInOptions) -> Entry:
        proof = Proof()
        callback = Callback("127.0.0.1", "/auth/callback", proof.state)
        async with callback.listening(_PORT):
            query = {
                "client_id": "dynamic_agent_client",
                "agent_name_hint": "Spindle",
                "ext_agent_host_id": f"urn:uuid:{_device_id(options.agent_dir)}",
                "response_type": "code",
                "redirect_uri": callback.url,
                "resource": self._RESOURCE,
                "scope": f"{_SCOPE} resource.invoke {self._DIRECT}",
                "state": proof.state,
                "code_challenge": proof.challenge,
                "code_challenge_method": "S256",
                "nonce": Proof().state,
            }
            person.visit(f"https://auth.openai.com/api/accounts/authorize?{urlencode(query)}")
            found = await callback.answer(person)
        form = {
            "grant_type": "authorization_code",
            "client_id": text_in(found, "client_id"),
            "code": found["code"],
            "code_verifier": proof.verifier,
            "redirect_uri": callback.url,
            "resource": self._RESOURCE,
        }
        answer = await granted("OpenAI did not accept the sign-in", "POST", self._TOKEN_URL, form=form)
        return self._checked(answer, form["client_id"])

    async def renew(self, entry: Entry, proxy: str | None) -> Entry:
        client = entry.get("clientId")
        if not isinstance(client, str) or not client:
            raise LoginError("The entry in auth.json has no clientId", refused=True)
        form = {
            "grant_type": "refresh_token",
            "client_id": client,
            "refresh_token": entry["refresh"],
            "resource": self._RESOURCE,
        }
        answer = await granted("OpenAI did not renew the sign-in", "POST", self._TOKEN_URL, form=form, proxy=proxy)
        return self._checked(answer, client, entry["refresh"])

    def _checked(self, answer: Mapping[str, Any], client: str, refresh: str | None = None) -> Entry:
        scopes = text_in(answer, "scope").split()
        if self._DIRECT not in scopes:
            raise LoginError("OpenAI gave a token that may not be used for models", refused=True)
        return _entry(answer, refresh=refresh, margin_ms=self._EARLY_MS) | {"clientId": client, "scopes": scopes}


def _device_id(agent_dir: Path) -> str:
    """Return the id of this installation from the settings, after making it if it is missing."""
    found: list[str] = []

    def change(settings: dict[str, Any]) -> None:
        try:
            found.append(str(UUID(str(settings.get("deviceId")))))
        except ValueError:
            found.append(str(uuid4()))
            settings["deviceId"] = found[0]

    edit_json(agent_dir / "settings.json", change)
    return found[0]


# -- others --------------------------------------------------------------------------------------


class OpenRouter(SignIn):
    """The sign-in gives an ordinary key, which does not expire."""

    title = "OpenRouter"
    _NEVER = 2**53 - 1

    async def sign_in(self, person: Person, options: SignInOptions) -> Entry:
        proof = Proof()
        # OpenRouter sends no state back; the path does its work.
        callback = Callback("127.0.0.1", f"/oauth/callback/{uuid4()}", None)
        async with callback.listening(0):
            query = {"callback_url": callback.url, "code_challenge": proof.challenge, "code_challenge_method": "S256"}
            person.visit(f"https://openrouter.ai/auth?{urlencode(query)}")
            code = (await callback.answer(person))["code"]
        body = {"code": code, "code_verifier": proof.verifier, "code_challenge_method": "S256"}
        url = "https://openrouter.ai/api/v1/auth/keys"
        answer = await granted("OpenRouter gave no key", "POST", url, json=body)
        return {"type": "oauth", "access": text_in(answer, "key"), "refresh": "", "expires": self._NEVER}

    async def renew(self, entry: Entry, proxy: str | None) -> Entry:
        raise LoginError("A key of OpenRouter cannot be renewed", refused=True)


class Renewable(Login):
    """A login made in pi that is renewed here by the usual exchange of a refresh token."""

    def __init__(self, title: str, token_url: str, client_id: str, margin_ms: int = 0) -> None:
        self.title = title
        self._token_url = token_url
        self._client_id = client_id
        self._margin_ms = margin_ms

    async def renew(self, entry: Entry, proxy: str | None) -> Entry:
        form = {"grant_type": "refresh_token", "client_id": self._client_id, "refresh_token": entry["refresh"]}
        what = f"{self.title} did not renew the sign-in"
        answer = await granted(what, "POST", self._token_url, form=form, proxy=proxy)
        return _entry(answer, refresh=entry["refresh"], margin_ms=self._margin_ms)


class Meta(Login):
    """A login made in pi that is renewed here: its token is exchanged for a key that lasts a day."""

    title = "Meta"
    _DAY_MS = 24 * 60 * 60 * 1000

    async def renew(self, entry: Entry, proxy: str | None) -> Entry:
        headers = {"Authorization": f"Bearer {entry['refresh']}", "x-api-version": "1.0.0"}
        url = "https://api.meta.ai/muse-code/key"
        answer = await granted("Meta gave no key", "POST", url, json={}, headers=headers, proxy=proxy)
        return {"access": text_in(answer, "api_key"), "expires": int(time.time() * 1000) + self._DAY_MS}


SIGN_INS: dict[str, SignIn] = {
    "github-copilot": Copilot(),
    "openai": ChatGPT(),
    "openai-codex": Codex(),
    "openrouter": OpenRouter(),
}
"""The sign-ins of `spindle login`."""

LOGINS: dict[str, Login] = {
    **SIGN_INS,
    "xai": Renewable("xAI", "https://auth.x.ai/oauth2/token", "b1a00492-073a-47ea-816f-4c329264a828", _MARGIN_MS),
    "kimi-coding": Renewable("Kimi", "https://auth.kimi.com/api/oauth/token", "17e5f671-d194-4dfb-9706-5516cb48c098"),
    "meta": Meta(),
}
"""The logins that can be renewed."""
