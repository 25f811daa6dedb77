"""How a person signs in: with a code on a page, or in a browser that comes back to this machine.

Here are the steps that all providers share; `logins` has the rest. Nothing here prints or reads: the caller passes an
object that talks to the person (`Person`).
"""

import asyncio
import hashlib
import os
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode, urlsplit

from spindle.base import limits
from spindle.llm import http
from spindle.shapes.codec import DecodeError, decode, encode

_STAND_IN = "SPINDLE_TEST_LOGIN_SERVER"
"""For tests: the address of a server on this machine that stands in for every login server."""
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_POLL_SECONDS = 5.0
_SLOW_DOWN_SECONDS = 5.0
_MOST_SECONDS = 1e11
"""More than any duration or date (Unix time) that a login server may send."""


class LoginError(Exception):
    """A sign-in or its renewal failed; the text is for a person."""

    def __init__(self, text: str, *, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused
        """The provider refused: trying the same again is useless."""


class Person(Protocol):
    """The person who signs in."""

    def tell(self, text: str) -> None: ...

    def visit(self, url: str) -> None:
        """Show an address and open it, if there is a browser."""

    async def pasted(self) -> str:
        """Return the line that the person pastes; wait for ever if there is no person."""


# -- requests to login servers -------------------------------------------------------------------


def is_stand_in() -> bool:
    return os.environ.get(_STAND_IN, "").startswith("http://127.0.0.1:")


async def ask(
    method: str,
    url: str,
    *,
    form: Mapping[str, str] | None = None,
    json: Any = None,
    headers: Mapping[str, str] | None = None,
    proxy: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object of an answer, `{}` for anything else. Raises `LoginError`."""
    where = url
    if is_stand_in():
        where = f"{os.environ[_STAND_IN]}/{url.removeprefix('https://')}"
    sent = {"accept": "application/json", **(headers or {})}
    body = None
    if form is not None:
        sent["content-type"] = "application/x-www-form-urlencoded"
        body = urlencode(form).encode()
    elif json is not None:
        body = encode(json)
    try:
        status, text = await http.ask(method, where, sent, body, proxy=proxy)
    except http.ConnectError as error:
        raise LoginError(f"Connection error. {error}") from None
    try:
        value = decode(text) if text else {}
    except DecodeError:
        value = {"message": text.strip()[:200]} if status >= 400 and "<html" not in text.lower() else {}
    return status, value if isinstance(value, dict) else {}


async def granted(what: str, method: str, url: str, **request: Any) -> dict[str, Any]:
    """Return the JSON object of a successful answer. Raises `LoginError`, with `what` at its beginning."""
    status, answer = await ask(method, url, **request)
    if status >= 300:
        raise refusal(what, status, answer)
    return answer


def refusal(what: str, status: int, answer: Mapping[str, Any]) -> LoginError:
    error = answer.get("error")
    inner = error if isinstance(error, dict) else {}
    words = (
        error if isinstance(error, str) else inner.get("code") or inner.get("type"),
        answer.get("error_description") or answer.get("message") or inner.get("message"),
    )
    said = ": ".join(word for word in words if isinstance(word, str) and word)
    refused = 400 <= status < 500 and status not in (408, 429)
    return LoginError(f"{what} ({status}{f', {said}' if said else ''})", refused=refused)


def text_in(answer: Mapping[str, Any], *names: str) -> str:
    """Return the first of these texts. Raises `LoginError` if the answer has none."""
    for name in names:
        if isinstance(value := answer.get(name), str) and value:
            return value
    raise LoginError(f"The login server's answer has no {names[0]}")


# -- a code on a page ----------------------------------------------------------------------------


async def device_login(
    person: Person, device: Mapping[str, Any], token_url: str, client_id: str, headers: Mapping[str, str]
) -> dict[str, Any]:
    """Show the code of a device authorization (RFC 8628) and wait for the token. Raises `LoginError`."""
    show_code(person, text_in(device, "verification_uri_complete", "verification_uri"), text_in(device, "user_code"))
    seconds = number_in(device, "interval", _POLL_SECONDS)
    end = time.monotonic() + number_in(device, "expires_in", limits.LOGIN)
    form = {"client_id": client_id, "device_code": text_in(device, "device_code"), "grant_type": _DEVICE_GRANT}
    while time.monotonic() + seconds < end:
        await asyncio.sleep(seconds)
        status, answer = await ask("POST", token_url, form=form, headers=headers)
        match answer.get("error"):
            case None if status < 300 and answer.get("access_token"):
                return answer
            case "authorization_pending":
                pass
            case "slow_down":
                seconds = number_in(answer, "interval", seconds + _SLOW_DOWN_SECONDS)
            case "access_denied" | "authorization_denied":
                raise LoginError("The sign-in was refused on the page", refused=True)
            case "expired_token":
                break
            case _:
                raise refusal("The sign-in failed", status, answer)
    raise LoginError("The code was not entered in time; sign in again", refused=True)


def show_code(person: Person, url: str, code: str) -> None:
    if not url.startswith(("https://", "http://")):
        raise LoginError("The login server sent an address that is no web page")
    person.tell(f"Enter the code {code} on this page:")
    person.visit(url)


def number_in(answer: Mapping[str, Any], name: str, default: float) -> float:
    try:
        value = float(answer.get(name) or 0)
    except (TypeError, ValueError):
        return default
    return value if 0 < value < _MOST_SECONDS else default


# -- a browser that comes back -------------------------------------------------------------------


class Proof:
    """Proof that the same program asks for the code and uses it (PKCE)."""

    def __init__(self) -> None:
        self.verifier = secrets.token_urlsafe(32)
        digest = hashlib.sha256(self.verifier.encode()).digest()
        self.challenge = urlsafe_b64encode(digest).decode().rstrip("=")
        self.state = secrets.token_hex(16)


class Callback:
    """The page on this machine that the browser comes back to."""

    def __init__(self, host: str, path: str, state: str | None) -> None:
        self.url = ""
        """Its address, as sent to the provider."""
        self.is_open = False
        """Whether the page can be reached; if not, the address must be pasted."""
        self._host = host
        self._path = path
        self._state = state
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[None]:
        """Serve the page while the block runs; if the port is taken, the person has to paste."""
        server = None
        with suppress(OSError):
            server = await serve_page(0 if is_stand_in() else port, self._take)
            port = server.sockets[0].getsockname()[1]
        self.url = f"http://{self._host}:{port}{self._path}"
        self.is_open = server is not None
        try:
            yield
        finally:
            if server is not None:
                server.close()

    async def answer(self, person: Person) -> dict[str, str]:
        """Return the parameters that the provider sent back, by browser or by paste. Raises `LoginError`."""
        if not self.is_open:
            person.tell(f"The address {self.url} is in use by another program, perhaps another sign-in.")
        person.tell("When the browser cannot come back here, paste the address of its last page and press Enter.")
        pasting = asyncio.create_task(self._pasted(person))
        try:
            async with asyncio.timeout(limits.LOGIN):
                found = await self._answer
        except TimeoutError:
            raise LoginError("Nobody signed in in time", refused=True) from None
        finally:
            pasting.cancel()
        if "error" in found:
            said = found.get("error_description") or found["error"]
            raise LoginError(f"The sign-in was refused: {said}", refused=True)
        if not found.get("code"):
            raise LoginError("There is no code in what was pasted", refused=True)
        return found

    async def _pasted(self, person: Person) -> None:
        text = (await person.pasted()).strip()
        if not self._answer.done():
            try:
                self._answer.set_result(self._read(text))
            except LoginError as error:
                self._answer.set_exception(error)

    def _read(self, text: str) -> dict[str, str]:
        """Read a pasted line: an address, its query, `code#state`, or the code alone."""
        query = urlsplit(text).query if "://" in text else text
        if "code=" not in query and "error=" not in query:
            code, _, state = text.partition("#")
            query = urlencode({"code": code} | ({"state": state} if state else {})) if "://" not in text else ""
        found = _flat(query)
        if self._state is not None and found.get("state", self._state) != self._state:
            raise LoginError("That address belongs to another sign-in", refused=True)
        return found

    def _take(self, path: str, found: dict[str, str]) -> tuple[str, str]:
        """Take the parameters that the browser brings; return status and text of the page."""
        if path != self._path:
            return "404 Not Found", "There is nothing here."
        if self._state is not None and found.get("state") != self._state:
            return "400 Bad Request", "This page belongs to another sign-in."
        if not found.get("code") and "error" not in found:
            return "400 Bad Request", "The provider sent no code."
        if not self._answer.done():
            self._answer.set_result(found)
        if "error" in found:
            return "200 OK", "The sign-in was refused. You can close this page."
        return "200 OK", "You can close this page and go back to the terminal."


async def serve_page(port: int, take: Callable[[str, dict[str, str]], tuple[str, str]]) -> asyncio.Server:
    """Serve one page on this machine: `take(path, parameters)` returns its status and text. Raises `OSError`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(limits.LOOPBACK_SERVER):
                head = await reader.readuntil(b"\r\n\r\n")
            method, _, target = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
            parts = urlsplit(target.partition(" ")[0])
            status, text = take(parts.path if method == "GET" else "", _flat(parts.query))
            page = f"<!doctype html><meta charset=utf-8><title>Spindle</title><p>{text}</p>".encode()
            writer.write(
                f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncache-control: no-store\r\n"
                f"content-length: {len(page)}\r\nconnection: close\r\n\r\n".encode()
                + page
            )
            await writer.drain()
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a spare connection of the browser, or another program
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", port)


def _flat(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}
