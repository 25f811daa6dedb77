"""Signing a browser in and out over plain HTTP: `POST /signin`, `/signin/ticket` and `/signout`.

These are for our own page: a request needs an Origin, which `Access` has checked, and a body of JSON.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from spindle.server.sign_ins import SECONDS, KnownBrowser, SignIns
from spindle.shapes.codec import DecodeError, decode
from spindle.wires.network.access import Access, given_tokens
from spindle.wires.network.answers import failed, json_answer

SIGN_IN, TICKET, SIGN_OUT = "/signin", "/signin/ticket", "/signout"
SIGN_IN_PATHS: Final = (SIGN_IN, TICKET, SIGN_OUT)
_MOST_BYTES: Final = 4096


class SignInDesk:
    def __init__(self, sign_ins: SignIns, on_end: Callable[[], None]) -> None:
        """`on_end` is called when a sign-in has ended."""
        self._sign_ins = sign_ins
        self._on_end = on_end

    async def signed_in(self, request: web.BaseRequest) -> KnownBrowser | None:
        """Return the sign-in that a browser shows with a request; None: it shows none that counts."""
        origin = request.headers.get("Origin")
        cookie = None if origin is None else request.cookies.get(cookie_name(origin))
        if cookie is None:
            return None
        keys = given_tokens({name: ", ".join(request.headers.getall(name)) for name in request.headers})
        return await asyncio.to_thread(self._sign_ins.find, cookie, keys)

    async def answer(self, request: web.BaseRequest, path: str, access: Access) -> web.Response | None:
        """Answer a request for one of `SIGN_IN_PATHS`; None: the token that came is wrong."""
        origin = request.headers.get("Origin")
        if request.method != "POST":
            return failed(405, "Only POST is allowed here")
        if origin is None or request.content_type != "application/json":
            return failed(403, "This is for the page of this server")
        if not access.needs_token:
            return failed(404, "This server needs no sign-in")
        before = await self.signed_in(request)
        if path == SIGN_IN:
            return await self._sign_in(request, origin, access, before)
        if before is None:
            return None
        if path == TICKET:
            return json_answer({"ticket": await asyncio.to_thread(self._sign_ins.ticket, before.user)})
        await asyncio.to_thread(self._sign_ins.end, before)
        self._on_end()
        answer = json_answer({})
        _set(answer, origin, "", 0)
        return answer

    async def _sign_in(
        self, request: web.BaseRequest, origin: str, access: Access, before: KnownBrowser | None
    ) -> web.Response | None:
        token = await _token_in(request)
        if token is None:
            return failed(400, 'Send {"token": "…"}')
        user = access.user_of(token)
        if not access.knows(token):
            taken = await asyncio.to_thread(self._sign_ins.take, token)
            if taken is None:
                return None
            user = taken.user
        if before is not None:  # its cookie is replaced
            await asyncio.to_thread(self._sign_ins.end, before)
        new = await asyncio.to_thread(self._sign_ins.begin, user)
        answer = json_answer({"key": new.key, "user": user})
        _set(answer, origin, new.cookie, SECONDS)
        return answer


def cookie_name(origin: str) -> str:
    """Return the name of the cookie for pages of this origin: servers on other ports of a host have other ones."""
    scheme, _, rest = origin.partition("://")
    port = re.search(r":(\d+)$", rest)
    return f"{'__Host-' if scheme == 'https' else ''}spindle-{port[1] if port else scheme}"


def _set(answer: web.Response, origin: str, cookie: str, seconds: int) -> None:
    secure = origin.startswith("https://")
    name = cookie_name(origin)
    answer.set_cookie(name, cookie, max_age=seconds, path="/", secure=secure, httponly=True, samesite="Strict")


async def _token_in(request: web.BaseRequest) -> str | None:
    """Return the token in the body of a request; None if there is none."""
    if not 0 < (request.content_length or 0) <= _MOST_BYTES:
        return None
    try:
        value: Any = decode(await request.read())
    except DecodeError:
        return None
    token = value.get("token") if isinstance(value, dict) else None
    return token if isinstance(token, str) else None
