"""`spindle login` and `spindle logout`: a server plays the providers' part, the test plays the browser."""

import json
import os
import pty
import socket
import stat
import subprocess
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.llm.frames import CONTENT_TYPE, event
from tests.support.login_server import LoginServer
from tests.support.mock_model import MockModel, failure, raw, reply

from .conftest import Place

DEVICE = {
    "device_code": "d1",
    "user_code": "ABCD-1234",
    "verification_uri": "https://github.com/login/device",
    "interval": 0.05,
    "expires_in": 60,
}
DEVICE_URL = "github.com/login/device/code"
TOKEN_URL = "github.com/login/oauth/access_token"
COPILOT = "api.github.com/copilot_internal/v2/token"
CODEX = "auth.openai.com/oauth/token"


def jwt() -> str:
    claims = {"https://api.openai.com/auth": {"chatgpt_account_id": "acc-1"}}
    return f"e30.{urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.sig"


def granted() -> dict[str, Any]:
    return {"access_token": jwt(), "refresh_token": "r1", "expires_in": 3600, "id_token": "x"}


def stored(place: Place) -> dict[str, Any]:
    path = place.agent / "auth.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    value = json.loads(path.read_text())
    assert isinstance(value, dict)
    return value


# -- a code on a page ----------------------------------------------------------------------------


@contextmanager
def at_a_terminal(place: Place, *arguments: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Sign in with a terminal for stdin; yield the process, and the terminal's other end."""
    ours, theirs = pty.openpty()
    process = place.start("login", *arguments, stdin=theirs, text=True)
    os.close(theirs)
    try:
        yield process, ours
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        os.close(ours)


def login(place: Place, *arguments: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    place.env |= env
    with at_a_terminal(place, *arguments) as (process, _):
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess([], process.returncode, out, err)


def copilot_server(*answers: Any, host: str = "github.com", **more: Any) -> LoginServer:
    return LoginServer(
        {
            f"{host}/login/device/code": [(200, DEVICE)],
            f"{host}/login/oauth/access_token": list(answers),
            f"api.{host}/copilot_internal/v2/token": [
                (200, {"token": "tid=1;proxy-ep=proxy.individual.githubcopilot.com", "expires_at": time.time() + 1800})
            ],
            "api.individual.githubcopilot.com/models": [(200, {"data": [{"id": "gpt", "model_picker_enabled": True}]})],
            **more,
        }
    )


def test_copilot(place: Place) -> None:
    place.write("agent/auth.json", {"openai": {"type": "api_key", "key": "k"}})
    pending, slow = {"error": "authorization_pending"}, {"error": "slow_down", "interval": 0.3}
    with copilot_server((200, pending), (200, slow), (200, {"access_token": "ghu_1"})) as server:
        done = login(place, "github-copilot", env={"SPINDLE_TEST_LOGIN_SERVER": server.url})
    assert (done.returncode, done.stderr) == (0, "")
    assert "Enter the code ABCD-1234 on this page:\n  https://github.com/login/device\n" in done.stdout
    assert "Signed in to github-copilot." in done.stdout
    assert "Models of this account: gpt" in done.stdout
    assert server.asked(DEVICE_URL)[0].form == {"client_id": "Iv1.b507a08c87ecfe98", "scope": "read:user"}
    polls = server.asked(TOKEN_URL)
    assert polls[0].form["device_code"] == "d1"
    assert polls[2].at - polls[1].at >= 0.3  # as the server asked
    entries = stored(place)
    assert entries["openai"] == {"type": "api_key", "key": "k"}
    entry = entries["github-copilot"]
    assert (entry["type"], entry["refresh"], entry["availableModelIds"]) == ("oauth", "ghu_1", ["gpt"])
    assert "enterpriseUrl" not in entry


def test_copilot_on_an_enterprise_server(place: Place) -> None:
    with copilot_server((200, {"access_token": "ghu_1"}), host="corp.ghe.com") as server:
        env = {"SPINDLE_TEST_LOGIN_SERVER": server.url}
        done = login(place, "github-copilot", "--enterprise", "https://corp.ghe.com/", env=env)
    assert done.returncode == 0
    assert stored(place)["github-copilot"]["enterpriseUrl"] == "corp.ghe.com"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"error": "access_denied"}, "The sign-in was refused on the page."),
        ({"error": "expired_token"}, "The code was not entered in time; sign in again."),
        ({"error": "incorrect_client_credentials", "error_description": "no"}, "The sign-in failed (200, incorrect"),
        ([], "The sign-in failed (200)"),
    ],
)
def test_copilot_refused(place: Place, answer: Any, text: str) -> None:
    with copilot_server((200, answer)) as server:
        done = login(place, "github-copilot", env={"SPINDLE_TEST_LOGIN_SERVER": server.url})
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {text}")
    assert not (place.agent / "auth.json").exists()


def test_an_account_without_copilot(place: Place) -> None:
    no = [(403, {"message": "No access to GitHub Copilot found"})]
    with copilot_server((200, {"access_token": "ghu_1"}), **{COPILOT: no}) as server:
        done = login(place, "github-copilot", env={"SPINDLE_TEST_LOGIN_SERVER": server.url})
    assert done.stderr == "Error: GitHub gave no Copilot token (403, No access to GitHub Copilot found).\n"


def test_chatgpt_with_a_code(place: Place) -> None:
    base = "auth.openai.com/api/accounts/deviceauth"
    steps = {
        f"{base}/usercode": [(200, {"device_auth_id": "a1", "user_code": "WXYZ", "interval": "0.05"})],
        f"{base}/token": [(403, {}), (200, {"authorization_code": "c1", "code_verifier": "v1"})],
        CODEX: [(200, granted())],
    }
    with LoginServer(steps) as server:
        done = login(place, "openai-codex", "--device", env={"SPINDLE_TEST_LOGIN_SERVER": server.url})
    assert done.returncode == 0
    assert "Enter the code WXYZ on this page:\n  https://auth.openai.com/codex/device\n" in done.stdout
    form = server.asked(CODEX)[0].form
    assert (form["code"], form["code_verifier"]) == ("c1", "v1")
    assert form["redirect_uri"] == "https://auth.openai.com/deviceauth/callback"
    assert stored(place)["openai-codex"]["accountId"] == "acc-1"


# -- a browser that comes back -------------------------------------------------------------------


class Browser:
    """A sign-in that runs, and what its page asks for."""

    def __init__(self, process: subprocess.Popen[str], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        assert process.stdout is not None
        self.said = ""
        while not self.said.endswith("press Enter.\n"):
            line = process.stdout.readline()
            assert line, self.said
            self.said += line
        self.page = next(line.strip() for line in self.said.splitlines() if line.startswith("  https://"))
        self.query = {name: values[0] for name, values in parse_qs(urlsplit(self.page).query).items()}
        self.back = self.query.get("redirect_uri") or self.query.get("callback_url") or ""

    def go(self, url: str = "", **query: str) -> int:
        try:
            with urllib.request.urlopen(f"{url or self.back}?{urlencode(query)}", timeout=20) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    def end(self, pasted: str = "") -> tuple[int, str, str]:
        os.write(self._terminal, pasted.encode())
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@contextmanager
def signing_in(place: Place, server: LoginServer, *arguments: str, **env: str) -> Any:
    place.env |= {"SPINDLE_TEST_LOGIN_SERVER": server.url, **env}
    with at_a_terminal(place, *arguments) as (process, terminal):
        yield Browser(process, terminal)


def test_chatgpt(place: Place) -> None:
    with LoginServer({CODEX: [(200, granted())]}) as server, signing_in(place, server, "openai-codex") as browser:
        assert browser.page.startswith("https://auth.openai.com/oauth/authorize?")
        query = browser.query
        assert (query["response_type"], query["client_id"]) == ("code", "app_EMoamEEZ73f0CkXaXp7hrann")
        assert query["scope"] == "openid profile email offline_access"
        assert browser.back.startswith("http://localhost:")
        # Strangers on this machine do not end it.
        assert browser.go(code="evil", state="guessed") == 400
        assert browser.go(state=query["state"]) == 400
        assert browser.go(browser.back.replace("/auth/callback", "/other"), code="c") == 404
        assert browser.go(code="c1", state=query["state"]) == 200
        code, out, err = browser.end()
    assert (code, err) == (0, "")
    assert "Signed in to openai-codex." in out
    form = server.asked(CODEX)[0].form
    challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
    assert query["code_challenge"] == challenge
    assert (form["code"], form["redirect_uri"]) == ("c1", browser.back)
    entry = stored(place)["openai-codex"]
    assert (entry["access"], entry["refresh"], entry["accountId"]) == (jwt(), "r1", "acc-1")
    assert entry["expires"] == pytest.approx((time.time() + 3600) * 1000, abs=60_000)


@pytest.mark.parametrize("form", ["{back}?code=c1&state={state}", "code=c1&state={state}", "c1#{state}", "c1"])
def test_the_address_may_be_pasted(place: Place, form: str) -> None:
    with LoginServer({CODEX: [(200, granted())]}) as server, signing_in(place, server, "openai-codex") as browser:
        pasted = form.format(back=browser.back, state=browser.query["state"])
        code, _, err = browser.end(f"\n{pasted}\n")
    assert (code, err) == (0, "")
    assert server.asked(CODEX)[0].form["code"] == "c1"


@pytest.mark.parametrize(
    ("pasted", "text"),
    [
        ("http://localhost/auth/callback?code=c1&state=other", "That address belongs to another sign-in."),
        ("https://example.com/", "There is no code in what was pasted."),
        ("http://localhost/auth/callback?error=access_denied", "The sign-in was refused: access_denied."),
    ],
)
def test_something_wrong_is_pasted(place: Place, pasted: str, text: str) -> None:
    with LoginServer({}) as server, signing_in(place, server, "openai-codex") as browser:
        assert browser.end(f"{pasted}\n")[::2] == (1, f"Error: {text}\n")
    assert not (place.agent / "auth.json").exists()


def test_the_person_says_no(place: Place) -> None:
    with LoginServer({}) as server, signing_in(place, server, "openai-codex") as browser:
        browser.go(error="access_denied", error_description="You said no", state=browser.query["state"])
        assert browser.end()[::2] == (1, "Error: The sign-in was refused: You said no.\n")


def test_the_code_is_not_accepted(place: Place) -> None:
    no = [(400, {"error": "invalid_grant", "error_description": "expired"})]
    with LoginServer({CODEX: no}) as server, signing_in(place, server, "openai-codex") as browser:
        browser.go(code="c1", state=browser.query["state"])
        assert browser.end()[::2] == (1, "Error: ChatGPT did not accept the sign-in (400, invalid_grant: expired).\n")


def test_openai_with_a_chatgpt_subscription(place: Place) -> None:
    token = "auth.openai.com/api/accounts/oauth/token"
    place.write("agent/settings.json", {"theme": "dark"})
    answer = {**granted(), "scope": "openid chatgpt.tokens.use.direct"}
    with LoginServer({token: [(200, answer)]}) as server, signing_in(place, server, "openai") as browser:
        assert browser.query["client_id"] == "dynamic_agent_client"
        assert browser.query["agent_name_hint"] == "Spindle"
        browser.go(code="c1", state=browser.query["state"], client_id="issued-1")
        assert browser.end()[0] == 0
    settings = json.loads((place.agent / "settings.json").read_text())
    assert settings["theme"] == "dark"
    assert browser.query["ext_agent_host_id"] == f"urn:uuid:{settings['deviceId']}"
    assert server.asked(token)[0].form["client_id"] == "issued-1"
    assert stored(place)["openai"]["clientId"] == "issued-1"


def test_openrouter(place: Place) -> None:
    keys = "openrouter.ai/api/v1/auth/keys"
    with LoginServer({keys: [(200, {"key": "sk-or-1"})]}) as server, signing_in(place, server, "openrouter") as browser:
        assert browser.page.startswith("https://openrouter.ai/auth?")
        assert browser.go(browser.back.rpartition("/")[0] + "/guessed", code="evil") == 404
        assert browser.go(code="c1") == 200
        assert browser.end()[0] == 0
    sent = server.asked(keys)[0].json
    challenge = urlsafe_b64encode(sha256(sent["code_verifier"].encode()).digest()).decode().rstrip("=")
    assert (sent["code"], browser.query["code_challenge"]) == ("c1", challenge)
    entry = {"type": "oauth", "access": "sk-or-1", "refresh": "", "expires": 2**53 - 1}
    assert stored(place) == {"openrouter": entry}


def test_the_port_is_taken(place: Place) -> None:
    """The real port, without the stand-in: nothing is asked before something is pasted."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 1455))
            taken.listen()
        except OSError:
            pass  # then it is taken already, which is the point
        with at_a_terminal(place, "openai-codex") as (process, terminal):
            os.write(terminal, b"https://example.com/\n")
            out, err = process.communicate(timeout=30)
    assert "redirect_uri=http%3A%2F%2Flocalhost%3A1455%2Fauth%2Fcallback" in out
    assert "The address http://localhost:1455/auth/callback is in use by another program" in out
    assert (process.returncode, err) == (1, "Error: There is no code in what was pasted.\n")


def test_an_interrupted_sign_in_leaves_nothing(place: Place) -> None:
    with LoginServer({}) as server, signing_in(place, server, "openai-codex") as browser:
        browser.process.send_signal(2)
        code, _, err = browser.end()
    assert (code, "Traceback" in err) == (130, False)
    assert os.listdir(place.agent) == []


# -- the rest of the command ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["openai-codex"], ["openai-codex", "--device"], ["github-copilot"], ["openrouter"]]
)
def test_without_a_terminal_it_ends_at_once(place: Place, arguments: list[str]) -> None:
    with LoginServer({}) as server:
        done = place.run("login", *arguments, env={"SPINDLE_TEST_LOGIN_SERVER": server.url})
        assert server.requests == []
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: A sign-in needs a terminal")


def test_what_one_can_sign_in_to(place: Place) -> None:
    entry = {"type": "oauth", "access": "a", "refresh": "r", "expires": 1}
    place.write("agent/auth.json", {"openai-codex": entry, "openrouter": {**entry, "expires": 2**53 - 1}})
    lines = place.run("login").stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["github-copilot", "openai", "openai-codex", "openrouter"]
    assert lines[2].endswith("(signed in; the token is renewed on the next use)")
    assert lines[3].endswith("(signed in)")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["anthropic"], 1, "Error: Anthropic's terms allow logins with a subscription in its own programs only"),
        (
            ["groq"],
            2,
            "Error: groq has no sign-in here. To use it, store its key (spindle keys set groq), set GROQ_API_KEY",
        ),
        (["xai"], 2, "Error: xai has no sign-in here. A login made in pi is used and renewed."),
        (["nope"], 2, "Error: There is no provider 'nope' to sign in to. There are: github-copilot, "),
        (["openai", "--device"], 2, "Error: --device is for "),
        (["openai", "--enterprise", "x"], 2, "Error: --enterprise is for github-copilot"),
        (["--enterprise"], 2, "Error: spindle login: argument --enterprise: expected one argument"),
        (["a", "b"], 2, "Error: spindle login: unrecognized arguments: b"),
        (["github-copilot", "--enterprise", "a b"], 1, "Error: 'a b' is not the domain of a GitHub Enterprise server"),
    ],
)
def test_what_cannot_be_done(place: Place, arguments: list[str], code: int, text: str) -> None:
    done = login(place, *arguments, env={})
    assert done.returncode == code
    assert done.stderr.startswith(text)
    assert len(done.stderr.splitlines()) == 1


def test_logout(place: Place) -> None:
    assert place.run("logout").stdout == f"Nothing is stored in {place.agent / 'auth.json'}\n"
    place.write("agent/auth.json", {"openai-codex": {"type": "oauth"}, "groq": {"type": "api_key", "key": "sk-secret"}})
    listed = place.run("logout").stdout
    assert "openai-codex     oauth" in listed
    assert "sk-secret" not in listed
    done = place.run("logout", "openai-codex")
    assert (done.returncode, done.stdout.startswith("Removed openai-codex from ")) == (0, True)
    assert stored(place) == {"groq": {"type": "api_key", "key": "sk-secret"}}
    assert place.run("logout", "openai-codex").returncode == 1
    assert place.run("logout", "--all").returncode == 2


def test_a_broken_file_is_not_touched(place: Place) -> None:
    place.write("agent/auth.json", "{broken")
    for arguments in (("logout", "x"), ("logout",)):
        done = place.run(*arguments)
        assert (done.returncode, "auth.json" in done.stderr) == (1, True)
    with copilot_server((200, {"access_token": "ghu_1"})) as server:
        done = login(place, "github-copilot", env={"SPINDLE_TEST_LOGIN_SERVER": server.url})
    assert done.returncode == 1
    assert done.stderr.startswith("Error: Cannot use ")
    assert server.requests == [], "told before anybody has signed in"
    assert (place.agent / "auth.json").read_text() == "{broken"


# -- a run with a login --------------------------------------------------------------------------


def models(provider: str, mock: MockModel, api: str) -> dict[str, Any]:
    entry = {"baseUrl": mock.url, "api": api, "models": [{"id": "m1", "input": ["text"]}]}
    return {"providers": {provider: entry}}


def old_login(**fields: Any) -> dict[str, Any]:
    return {"type": "oauth", "access": "old", "refresh": "r0", "expires": 1, **fields}


def test_a_run_with_a_copilot_login_of_pi(place: Place) -> None:
    with copilot_server() as server, MockModel([reply("Hello from Copilot")]) as mock:
        place.write("agent/auth.json", {"github-copilot": old_login(availableModelIds=["m1"])})
        place.write("agent/models.json", models("github-copilot", mock, "openai-completions"))
        env = {"SPINDLE_TEST_LOGIN_SERVER": server.url}
        done = place.run("-p", "--model", "github-copilot/m1", "hi", env=env)
        [request] = mock.requests
    assert (done.returncode, done.stdout) == (0, "Hello from Copilot\n"), done.stderr
    assert request.headers["authorization"] == "Bearer tid=1;proxy-ep=proxy.individual.githubcopilot.com"
    assert (request.headers["x-initiator"], request.headers["openai-intent"]) == ("user", "conversation-edits")
    assert stored(place)["github-copilot"]["refresh"] == "r0"


def test_a_run_with_a_chatgpt_login_of_pi(place: Place) -> None:
    def sse(**fields: Any) -> bytes:
        return f"data: {json.dumps(fields)}\n\n".encode()

    hello = raw(
        sse(type="response.output_item.added", output_index=0, item={"type": "message", "id": "m"}),
        sse(type="response.output_text.delta", output_index=0, delta="Hello from ChatGPT"),
        sse(type="response.completed", response={"status": "completed"}),
    )
    with LoginServer({CODEX: [(200, granted())]}) as server, MockModel([hello]) as mock:
        place.write("agent/auth.json", {"openai-codex": old_login(accountId="acc-1")})
        place.write("agent/models.json", models("openai-codex", mock, "openai-codex-responses"))
        env = {"SPINDLE_TEST_LOGIN_SERVER": server.url}
        done = place.run("-p", "--model", "openai-codex/m1", "hi", env=env)
        [request] = mock.requests
    assert (done.returncode, done.stdout) == (0, "Hello from ChatGPT\n"), done.stderr
    assert request.headers["authorization"] == f"Bearer {jwt()}"
    assert request.path == "/codex/responses"


def test_a_run_whose_login_is_void(place: Place) -> None:
    with LoginServer({CODEX: [(400, {"error": "invalid_grant"})]}) as server, MockModel() as mock:
        place.write("agent/auth.json", {"openai-codex": old_login()})
        place.write("agent/models.json", models("openai-codex", mock, "openai-codex-responses"))
        env = {"SPINDLE_TEST_LOGIN_SERVER": server.url}
        done = place.run("-p", "--model", "openai-codex/m1", "hi", env=env)
        assert mock.requests == []
    assert done.returncode != 0
    assert "could not be renewed: ChatGPT did not renew the sign-in (400, invalid_grant)" in done.stderr
    assert "Sign in again with spindle login openai-codex" in done.stderr


def test_a_token_that_the_models_refuse(place: Place) -> None:
    with MockModel([failure(401, "bad token")]) as mock:
        place.write("agent/auth.json", {"openrouter": old_login(expires=2**53 - 1)})
        place.write("agent/models.json", models("openrouter", mock, "openai-completions"))
        done = place.run("-p", "--model", "openrouter/m1", "hi")
    assert done.returncode != 0
    assert "Sign in again with spindle login openrouter" in done.stderr


def test_a_run_on_bedrock_with_keys_that_are_stored(place: Place) -> None:
    answer = b"".join(
        (
            event("contentBlockDelta", contentBlockIndex=0, delta={"text": "Hello from Bedrock"}),
            event("messageStop", stopReason="end_turn"),
        )
    )
    with MockModel([raw(answer, content_type=CONTENT_TYPE)]) as mock:
        keys = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-3"}
        place.write("agent/auth.json", {"amazon-bedrock": {"type": "api_key", "env": keys}})
        place.write("agent/models.json", models("amazon-bedrock", mock, "bedrock-converse-stream"))
        done = place.run("-p", "--model", "amazon-bedrock/m1", "hi")
        [request] = mock.requests
    assert (done.returncode, done.stdout) == (0, "Hello from Bedrock\n"), done.stderr
    assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKID/")
    assert "/eu-west-3/bedrock/aws4_request" in request.headers["authorization"]


def test_nothing_of_a_login_is_imported_without_one(place: Place) -> None:
    code = (
        "import sys; sys.argv = ['spindle', '--list-models']\n"
        "from spindle.apps.cli import main; main()\n"
        "found = {'logins', 'sign_in', 'aiohttp', 'botocore'} & {name.rpartition('.')[2] for name in sys.modules}\n"
        "sys.exit(str(found) if found else 0)"
    )
    place.write("agent/auth.json", {"openai": {"type": "api_key", "key": "k"}})
    done = place.program(place.command()[0], "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
