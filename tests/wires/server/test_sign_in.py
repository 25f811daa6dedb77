"""A browser is signed in once: a cookie that no script reads, and a key that the page keeps. Neither counts alone."""

import itertools
import json
import re
import time
from base64 import urlsafe_b64encode
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from spindle.apps.cli.tokens_command import run as tokens
from spindle.server.records import Records
from spindle.server.sign_ins import SignIns
from spindle.sessions.file_store import FileStore
from tests.support.mock_model import gate, reply

from .server import TOKEN, ServerProcess
from .test_team import Team

_hosts = itertools.count(2)


def somewhere() -> tuple[str, int]:
    """Return an address to connect from: who guesses from one has to wait."""
    return f"127.1.{(number := next(_hosts)) // 250}.{2 + number % 250}", 0


class Browser:
    """What a browser keeps of a server, and sends by itself."""

    def __init__(self, server: ServerProcess, origin: str | None = None) -> None:
        self.server = server
        self.origin = origin or f"http://{server.address}"
        self.cookies: dict[str, str] = {}
        self.key = ""
        self.set_cookie = ""

    def headers(self, **more: str | None) -> dict[str, str]:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        found = {"Origin": self.origin, "Cookie": cookies or None, **more}
        return {name: value for name, value in found.items() if value is not None}

    def post(self, path: str, body: Any = None, **more: str | None) -> tuple[int, Any]:
        wire = HTTPConnection(self.server.address, timeout=20, source_address=somewhere())
        try:
            key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
            sent = {"Content-Type": "application/json", **self.headers(**{**key, **more})}
            wire.request("POST", path, json.dumps(body or {}), sent)
            answer = wire.getresponse()
            self.set_cookie = answer.getheader("Set-Cookie") or ""
            value = json.loads(answer.read())
        finally:
            wire.close()
        if self.set_cookie:
            name, _, rest = self.set_cookie.partition("=")
            self.cookies[name] = rest.partition(";")[0].strip('"')
        self.key = value.get("key", self.key)
        return answer.status, value

    def sign_in(self, token: str) -> tuple[int, Any]:
        return self.post("/signin", {"token": token})

    def socket(self, query: str = "", *, key: str | None = None, **more: str | None) -> Any:
        """Open a WebSocket as the page does."""
        given = urlsafe_b64encode((self.key if key is None else key).encode()).decode().rstrip("=")
        headers = self.headers(**more)
        origin = headers.pop("Origin", None)
        protocols: Any = ["spindle", *([f"spindle.token.{given}"] if given else [])]
        options = {"additional_headers": headers, "origin": origin, "subprotocols": protocols}
        return self.server.rpc(query, source_address=somewhere(), **options)

    def is_let_in(self, **more: Any) -> bool:
        try:
            with self.socket(**more) as wire:
                return bool(wire.call("get_state")["success"])
        except InvalidStatus as error:
            assert error.response.status_code in (401, 403)
            return False


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Team(tmp_path_factory.mktemp("team"), {"anna": {}, "bob": {}, "eve": {}}, [reply("ok")] * 9) as server:
        yield server


def test_a_sign_in_stands_for_the_token(team: Team) -> None:
    browser = Browser(team)
    assert not browser.is_let_in()
    assert browser.sign_in("wrong")[0] == 401 and not browser.cookies
    status, said = browser.sign_in(team.tokens["anna"])
    assert status == 200 and said["user"] == "anna"
    assert re.search(r"; HttpOnly; Max-Age=2592000; Path=/; SameSite=Strict$", browser.set_cookie)
    with browser.socket() as wire:
        assert wire.call("get_account")["data"]["name"] == "anna"
    kept = team.agent_dir / "signed-in" / "anna.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    (cookie,) = browser.cookies.values()
    for secret in (cookie, cookie.partition(":")[2], browser.key, team.tokens["anna"]):
        assert secret not in kept.read_text()
    assert team.tokens["anna"] not in json.dumps([browser.cookies, said])


def test_neither_half_counts_alone_nor_from_another_origin(team: Team) -> None:
    browser, other = Browser(team), Browser(team)
    browser.sign_in(team.tokens["anna"])
    other.sign_in(team.tokens["bob"])
    assert browser.is_let_in()
    assert not browser.is_let_in(key="") and not browser.is_let_in(key=other.key)
    assert not browser.is_let_in(Cookie=None), "the key alone"
    assert not browser.is_let_in(Origin=None), "a program that has stolen the cookie and the key has no page"
    for origin in ("https://evil.example", f"http://{team.address.replace('127.0.0.1', 'localhost')}", "null"):
        assert not browser.is_let_in(Origin=origin), origin
    (name,) = browser.cookies
    for forged in ("", "anna:", "bob:" + browser.cookies[name].partition(":")[2], "../bob:x", ":" + "a" * 43):
        assert not browser.is_let_in(Cookie=f"{name}={forged}")
    # The way of programs is not theirs: no request but that of the page's socket counts a cookie.
    with_key = {"Authorization": f"Bearer {browser.key}"}
    wire = HTTPConnection(team.address, source_address=somewhere())
    wire.request("GET", "/v1/sessions", headers={**browser.headers(), **with_key})
    assert wire.getresponse().status == 401
    wire.close()


def test_only_our_own_page_can_sign_in_and_out(team: Team) -> None:
    browser = Browser(team)
    token = {"token": team.tokens["anna"]}
    assert browser.post("/signin", token, Origin=None)[0] == 403
    assert browser.post("/signin", token, Origin="https://evil.example")[0] == 403
    assert browser.post("/signin", token, **{"Content-Type": "text/plain"})[0] == 403
    assert browser.post("/signin", ["x"])[0] == 400 and browser.post("/signin", {"token": "x" * 9999})[0] == 400
    assert not browser.cookies
    # A cookie that somebody has planted is not taken over: the browser gets another one.
    planted = {f"spindle-{team.port}": "anna:" + "x" * 43}
    browser.cookies = dict(planted)
    assert browser.sign_in(team.tokens["anna"])[0] == 200 and browser.cookies.keys() == planted.keys()
    assert browser.cookies != planted
    # The one before ends.
    before = dict(browser.cookies), browser.key
    browser.sign_in(team.tokens["anna"])
    assert browser.is_let_in()
    browser.cookies, browser.key = before
    assert not browser.is_let_in()
    assert browser.post("/signout")[0] == 401


def test_signing_out_ends_open_sockets_of_that_browser_alone(team: Team) -> None:
    browser, other = Browser(team), Browser(team)
    for one in (browser, other):
        one.sign_in(team.tokens["anna"])
    with browser.socket() as wire, other.socket() as stays:
        assert browser.post("/signout", Origin="https://evil.example")[0] == 403
        assert browser.post("/signout", Authorization=None)[0] == 401, "a form of another site has no key"
        assert browser.is_let_in()
        cookies = dict(browser.cookies)
        assert browser.post("/signout")[0] == 200 and "Max-Age=0" in browser.set_cookie
        with pytest.raises(ConnectionClosed) as closed:
            wire.wait(lambda frame: False)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4003
        browser.cookies = cookies
        assert not browser.is_let_in()
        assert stays.call("get_state")["success"]


def test_the_operator_ends_sign_ins_with_the_token(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPINDLE_DIR", str(team.agent_dir))
    browser = Browser(team)
    browser.sign_in(team.tokens["eve"])
    with browser.socket() as wire:
        assert tokens(["rotate", "eve"]) == 0
        with pytest.raises(ConnectionClosed):
            wire.wait(lambda frame: False)
    assert not browser.is_let_in()
    assert tokens(["revoke", "eve"]) == 0 and tokens(["add", "eve"]) == 0
    time.sleep(1.2)  # the server looks at the file every second
    assert not browser.is_let_in(), "another user of the same name"
    assert tokens(["remove", "eve", "--with-data"]) == 0
    assert not (team.agent_dir / "signed-in" / "eve.json").exists()


def test_a_ticket_signs_one_other_browser_in(team: Team) -> None:
    browser, phone, third = Browser(team), Browser(team), Browser(team)
    assert browser.post("/signin/ticket")[0] == 401
    browser.sign_in(team.tokens["bob"])
    assert browser.post("/signin/ticket", Authorization=None)[0] == 401
    ticket = browser.post("/signin/ticket")[1]["ticket"]
    with pytest.raises(InvalidStatus):
        team.rpc(additional_headers={"Authorization": f"Bearer {ticket}"})
    assert phone.sign_in(ticket) == (200, {"key": phone.key, "user": "bob"}) and phone.is_let_in()
    assert third.sign_in(ticket)[0] == 401, "once"


def test_behind_tls_the_cookie_is_bound_to_the_host() -> None:
    args = ["--remote-origin", "https://agent.example"]
    with ServerProcess(args=args, env={"SPINDLE_REMOTE_TOKEN": TOKEN}) as server:
        browser = Browser(server, "https://agent.example")
        assert browser.sign_in(TOKEN)[0] == 200
        assert browser.set_cookie.startswith("__Host-spindle-https=") and "; Secure" in browser.set_cookie
        assert browser.is_let_in()
        # A bearer token works as before.
        with server.rpc(additional_headers={"Authorization": f"Bearer {TOKEN}"}) as wire:
            assert wire.call("get_state")["success"]


def test_a_server_without_a_token_has_no_sign_in() -> None:
    with ServerProcess([reply("a", gate("g"))]) as server:
        assert Browser(server).sign_in("x")[0] == 404


@pytest.mark.parametrize("kind", ["files", "store"])
def test_a_sign_in_ends_in_time(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(str(tmp_path / "store")) if kind == "store" else None
    users = {"anna": "sha256:1"}
    both = [SignIns(Records("signed-in", tmp_path, store), users.get) for _ in range(2)]
    new = both[0].begin("anna")
    found = both[1].find(new.cookie, [new.key])
    assert found is not None and found.user == "anna", "on every node"
    ticket = both[1].ticket("anna")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 301)
    assert both[0].take(ticket) is None and both[0].holds(found)
    monkeypatch.setattr(time, "time", lambda: now + 31 * 86400)
    assert not both[0].holds(found) and both[0].find(new.cookie, [new.key]) is None
    monkeypatch.setattr(time, "time", lambda: now)
    assert both[0].holds(found)
    for _ in range(201):
        last = both[0].begin("anna")
    assert not both[1].holds(found), "the oldest go first"
    both[1].end(both[1].find(last.cookie, [last.key]) or found)
    assert both[0].find(last.cookie, [last.key]) is None
