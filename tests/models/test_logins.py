"""Logins in `auth.json`: used, renewed by one process at a time, and what is said when that fails."""

import asyncio
import json
import stat
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

from spindle.models.credentials import MissingCredentials, ModelAuth
from spindle.models.model_registry import ModelRegistry
from spindle.models.models_file import open_model
from tests.support.agent_process import agent_environment
from tests.support.login_server import LoginServer
from tests.support.mock_model import MockModel, Step, failure, raw

HOUR_MS = 3_600_000
COPILOT_TOKEN = "api.github.com/copilot_internal/v2/token"
COPILOT_MODELS = "api.business.githubcopilot.com/models"
CODEX_TOKEN = "auth.openai.com/oauth/token"


def now_ms() -> int:
    return int(time.time() * 1000)


def login(access: str = "old", left_ms: int = HOUR_MS, **fields: Any) -> dict[str, Any]:
    return {"type": "oauth", "access": access, "refresh": "refresh-1", "expires": now_ms() + left_ms, **fields}


def jwt(account: str = "acc-1", salt: str = "") -> str:
    claims = {"https://api.openai.com/auth": {"chatgpt_account_id": account}, "salt": salt}
    return f"e30.{urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.sig"


def auth(agent: Path, provider: str) -> ModelAuth:
    model = open_model(provider, "m1", "openai-responses", "https://catalogue.example")
    return asyncio.run(ModelRegistry(agent).auth_for(model))


def refused(agent: Path, provider: str) -> str:
    with pytest.raises(MissingCredentials) as caught:
        auth(agent, provider)
    return str(caught.value)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Any:
    servers: list[LoginServer] = []

    def serve(**options: Any) -> Any:
        def start(steps: dict[str, Any]) -> LoginServer:
            server = LoginServer(steps, **options).__enter__()
            servers.append(server)
            monkeypatch.setenv("SPINDLE_TEST_LOGIN_SERVER", server.url)
            return server

        return start

    yield serve
    for server in servers:
        server.__exit__()


def stored(agent: Path) -> dict[str, Any]:
    value = json.loads((agent / "auth.json").read_text())
    assert isinstance(value, dict)
    return value


# -- what is there is used -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "entry", "headers"),
    [
        ("openai-codex", login(jwt(), accountId="acc-1"), {}),
        ("openai", login("t", clientId="c", scopes=["x"]), {"Authorization": "Bearer t"}),
        (
            "openrouter",
            {"type": "oauth", "access": "t", "refresh": "", "expires": 2**53 - 1},
            {"Authorization": "Bearer t"},
        ),
        ("xai", login("t"), {"Authorization": "Bearer t"}),
        ("kimi-coding", login("t"), {"Authorization": "Bearer t"}),
        ("meta", login("t"), {"Authorization": "Bearer t"}),
        ("of-an-extension", login("t"), {"Authorization": "Bearer t"}),
    ],
)
def test_logins_of_pi_are_used(agent: Path, write: Any, provider: str, entry: Any, headers: dict[str, str]) -> None:
    write("agent/auth.json", {provider: entry})
    registry = ModelRegistry(agent)
    assert registry.credential_source(provider) == "auth.json (login)"
    found = auth(agent, provider)
    assert (found.api_key, found.headers, found.base_url) == (entry["access"], headers, None)
    assert found.if_refused.startswith("Sign in again with ")


@pytest.mark.parametrize(
    ("access", "fields", "address"),
    [
        ("tid=1;proxy-ep=proxy.business.githubcopilot.com;x=1", {}, "https://api.business.githubcopilot.com"),
        ("opaque", {}, "https://api.individual.githubcopilot.com"),
        ("opaque", {"enterpriseUrl": "https://corp.ghe.com/x"}, "https://copilot-api.corp.ghe.com"),
    ],
)
def test_a_copilot_token_says_where_the_models_are(
    agent: Path, write: Any, access: str, fields: dict[str, Any], address: str
) -> None:
    write("agent/auth.json", {"github-copilot": login(access, **fields)})
    found = auth(agent, "github-copilot")
    assert found.base_url == address
    model = open_model("github-copilot", "m1", "openai-responses", "https://catalogue.example")
    assert found.at_its_address(model).base_url == address
    write(
        "agent/models.json",
        {
            "providers": {
                "github-copilot": {"baseUrl": "https://proxy", "api": "openai-responses", "models": [{"id": "m"}]}
            }
        },
    )
    assert auth(agent, "github-copilot").base_url is None  # the user's own address stands


def test_only_models_of_the_account_are_offered(agent: Path, write: Any) -> None:
    models = {"baseUrl": "https://x", "api": "openai-responses", "models": [{"id": "a"}, {"id": "b"}]}
    write("agent/models.json", {"providers": {"github-copilot": models}})
    write("agent/auth.json", {"github-copilot": login(availableModelIds=["b"])})
    offered = [model.id for model in ModelRegistry(agent).available() if model.provider == "github-copilot"]
    assert offered == ["b"]
    write("agent/auth.json", {"github-copilot": login()})
    offered = [model.id for model in ModelRegistry(agent).available() if model.provider == "github-copilot"]
    assert set(offered) >= {"a", "b"}


def test_an_anthropic_login_is_named_and_not_used(agent: Path, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write("agent/auth.json", {"anthropic": login("sk-ant-oat-1"), "radius": login()})
    registry = ModelRegistry(agent)
    assert registry.credential_source("anthropic") is None
    text = refused(agent, "anthropic")
    assert "auth.json holds a login to an Anthropic subscription" in text
    assert "API key is needed" in text
    assert "set ANTHROPIC_API_KEY" in text
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-key")
    assert auth(agent, "anthropic").api_key == "sk-key"
    assert "Radius" in refused(agent, "radius")
    assert "a login to an Anthropic subscription" in registry.no_model_text()


def test_missing_logins_name_the_command(agent: Path) -> None:
    assert "sign in (spindle login github-copilot)" in refused(agent, "github-copilot")


def test_a_login_made_while_we_run_is_seen(agent: Path, write: Any) -> None:
    registry = ModelRegistry(agent)
    assert not registry.has_credentials("openai-codex")
    write("agent/auth.json", {"openai-codex": login(jwt())})
    assert registry.has_credentials("openai-codex")
    (agent / "auth.json").unlink()
    assert not registry.has_credentials("openai-codex")


# -- renewal -------------------------------------------------------------------------------------


def test_copilot_is_renewed(agent: Path, write: Any, serve: Any) -> None:
    write("agent/auth.json", {"other": {"type": "api_key", "key": "k"}, "github-copilot": login(left_ms=-1, own=1)})
    (agent / "auth.json").chmod(0o644)
    end = int(time.time()) + 1800
    access = "tid=2;proxy-ep=proxy.business.githubcopilot.com"
    models = [
        {"id": "gpt", "model_picker_enabled": True},
        {"id": "claude", "model_picker_enabled": True, "policy": {"state": "disabled"}},
        {"id": "embed", "model_picker_enabled": True, "capabilities": {"supports": {"tool_calls": False}}},
        {"id": "hidden", "model_picker_enabled": False},
    ]
    server = serve()(
        {COPILOT_TOKEN: [(200, {"token": access, "expires_at": end})], COPILOT_MODELS: [(200, {"data": models})]}
    )
    assert auth(agent, "github-copilot").api_key == access
    [asked] = server.asked(COPILOT_TOKEN)
    assert (asked.method, asked.headers["authorization"]) == ("GET", "Bearer refresh-1")
    assert asked.headers["copilot-integration-id"] == "vscode-chat"
    assert server.asked(COPILOT_MODELS)[0].headers["authorization"] == f"Bearer {access}"
    assert stored(agent) == {
        "other": {"type": "api_key", "key": "k"},
        "github-copilot": {
            "type": "oauth",
            "access": access,
            "refresh": "refresh-1",
            "expires": end * 1000 - 300_000,
            "own": 1,
            "availableModelIds": ["gpt"],
        },
    }
    assert stat.S_IMODE((agent / "auth.json").stat().st_mode) == 0o600
    assert not (agent / "auth.json.lock").exists()
    auth(agent, "github-copilot")
    assert len(server.asked(COPILOT_TOKEN)) == 1


def test_copilot_on_an_enterprise_server(agent: Path, write: Any, serve: Any) -> None:
    write(
        "agent/auth.json", {"github-copilot": login(left_ms=-1, enterpriseUrl="corp.ghe.com", availableModelIds=["a"])}
    )
    token = "api.corp.ghe.com/copilot_internal/v2/token"
    server = serve()({token: [(200, {"token": "new", "expires_at": time.time() + 1800})]})
    assert auth(agent, "github-copilot").base_url == "https://copilot-api.corp.ghe.com"
    assert len(server.asked(token)) == 1
    assert server.asked("copilot-api.corp.ghe.com/models")
    assert stored(agent)["github-copilot"]["availableModelIds"] == ["a"]  # no new list: the old one goes on


def test_chatgpt_is_renewed_and_its_token_changes(agent: Path, write: Any, serve: Any) -> None:
    write("agent/auth.json", {"openai-codex": login(jwt(), left_ms=60_000, accountId="acc-1")})
    new = jwt("acc-2")
    granted = {"access_token": new, "refresh_token": "refresh-2", "expires_in": 3600}
    server = serve()({CODEX_TOKEN: [(200, granted)]})
    assert auth(agent, "openai-codex").api_key == new
    [asked] = server.asked(CODEX_TOKEN)
    assert asked.form == {
        "grant_type": "refresh_token",
        "refresh_token": "refresh-1",
        "client_id": "app_EMoamEEZ73f0CkXaXp7hrann",
    }
    entry = stored(agent)["openai-codex"]
    assert (entry["refresh"], entry["accountId"]) == ("refresh-2", "acc-2")
    assert entry["expires"] == pytest.approx(now_ms() + HOUR_MS, abs=60_000)


@pytest.mark.parametrize(
    ("provider", "where", "answer", "access"),
    [
        (
            "openai",
            "auth.openai.com/api/accounts/oauth/token",
            {"access_token": "new", "refresh_token": "r2", "expires_in": 3600, "scope": "a chatgpt.tokens.use.direct"},
            "new",
        ),
        ("xai", "auth.x.ai/oauth2/token", {"access_token": "new"}, "new"),
        ("kimi-coding", "auth.kimi.com/api/oauth/token", {"access_token": "new", "refresh_token": "r2"}, "new"),
        ("meta", "api.meta.ai/muse-code/key", {"api_key": "new"}, "new"),
    ],
)
def test_other_logins_of_pi_are_renewed(
    agent: Path, write: Any, serve: Any, provider: str, where: str, answer: dict[str, Any], access: str
) -> None:
    write("agent/auth.json", {provider: login(left_ms=-1, clientId="issued")})
    server = serve()({where: [(200, answer)]})
    assert auth(agent, provider).api_key == access
    [asked] = server.asked(where)
    assert asked.method == "POST"
    if provider == "openai":
        assert (asked.form["client_id"], asked.form["resource"]) == ("issued", "https://api.openai.com/v1")
    entry = stored(agent)[provider]
    assert entry["refresh"] == answer.get("refresh_token", "refresh-1")
    assert entry["expires"] > now_ms() + HOUR_MS // 2


# -- renewal that fails --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "answer", "text"),
    [
        (
            400,
            {"error": "invalid_grant", "error_description": "revoked"},
            "ChatGPT did not renew the sign-in (400, invalid_grant: revoked). "
            "Sign in again with spindle login openai-codex",
        ),
        (
            401,
            {"error": {"code": "refresh_token_reused", "message": "was used"}},
            "ChatGPT did not renew the sign-in (401, refresh_token_reused: was used). "
            "Sign in again with spindle login openai-codex",
        ),
        (503, b"<html>busy</html>", "ChatGPT did not renew the sign-in (503). Try again later."),
        (429, {"error": "slow_down"}, "ChatGPT did not renew the sign-in (429, slow_down). Try again later."),
        (200, {"access_token": "no-jwt"}, "The token of ChatGPT names no account. Sign in again"),
        (200, [], "The login server's answer has no access_token"),
    ],
)
def test_refused(agent: Path, write: Any, serve: Any, status: int, answer: Any, text: str) -> None:
    before = {"openai-codex": login("old", left_ms=-1)}
    write("agent/auth.json", before)
    serve()({CODEX_TOKEN: [(status, answer)]})
    found = refused(agent, "openai-codex")
    assert found.startswith(f"The login for openai-codex could not be renewed: {text}")
    assert stored(agent) == before
    assert not (agent / "auth.json.lock").exists()


def test_what_is_left_of_a_token_is_used(agent: Path, write: Any, serve: Any) -> None:
    write("agent/auth.json", {"openai-codex": login(jwt(), left_ms=60_000)})
    serve()({CODEX_TOKEN: [(503, {})]})
    assert auth(agent, "openai-codex").api_key == jwt()


def test_a_server_that_cannot_be_reached(agent: Path, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write("agent/auth.json", {"openai-codex": login(left_ms=-1)})
    monkeypatch.setenv("SPINDLE_TEST_LOGIN_SERVER", "http://127.0.0.1:9")
    found = refused(agent, "openai-codex")
    assert "could not be renewed: Connection error. Cannot reach 127.0.0.1:9: " in found
    assert found.endswith("Try again later.")


@pytest.mark.parametrize("entry", [login(left_ms=-1, refresh=None), {"type": "oauth", "access": "x"}])
def test_an_entry_without_a_refresh_token(agent: Path, write: Any, entry: Any) -> None:
    write("agent/auth.json", {"openai-codex": entry})
    assert "its entry has no refresh token. Sign in again with spindle login" in refused(agent, "openai-codex")


def test_a_login_of_an_extension_that_has_expired(agent: Path, write: Any) -> None:
    write("agent/auth.json", {"mine": login(left_ms=-1)})
    assert refused(agent, "mine") == "The login for mine has expired. Sign in again with pi: /login mine"


# -- several at once -----------------------------------------------------------------------------

ASK = """
import asyncio, sys
from pathlib import Path
from spindle.models.model_registry import ModelRegistry
from spindle.models.models_file import open_model
registry = ModelRegistry(Path(sys.argv[1]))
model = open_model("openai-codex", "m", "openai-codex-responses", "https://x")
print("ready", flush=True)
sys.stdin.readline()
print(asyncio.run(registry.auth_for(model)).api_key)
"""


def test_processes_that_renew_at_once_renew_once(agent: Path, write: Any, serve: Any) -> None:
    write("agent/auth.json", {"openai-codex": login(left_ms=-1)})
    first, second = jwt(salt="first"), jwt(salt="second")
    server = serve(delay=0.3)(
        {
            CODEX_TOKEN: [
                (200, {"access_token": first, "refresh_token": "r2", "expires_in": 3600}),
                (200, {"access_token": second, "refresh_token": "r3", "expires_in": 3600}),
            ]
        }
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", ASK, str(agent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    assert [child.communicate(timeout=30)[0].strip() for child in children] == [first] * 3
    assert len(server.asked(CODEX_TOKEN)) == 1
    assert stored(agent)["openai-codex"]["refresh"] == "r2"


def test_requests_of_one_process_renew_once(agent: Path, write: Any, serve: Any) -> None:
    write("agent/auth.json", {"openai-codex": login(left_ms=-1)})
    server = serve(delay=0.1)(
        {CODEX_TOKEN: [(200, {"access_token": jwt(), "refresh_token": "r2", "expires_in": 3600})]}
    )
    model = open_model("openai-codex", "m", "openai-codex-responses", "https://x")

    async def many() -> list[ModelAuth]:
        registry = ModelRegistry(agent)
        return await asyncio.gather(*(registry.auth_for(model) for _ in range(5)))

    assert [found.api_key for found in asyncio.run(many())] == [jwt()] * 5
    assert len(server.asked(CODEX_TOKEN)) == 1


def test_an_aborted_request_does_not_lose_the_new_token(agent: Path, write: Any, serve: Any) -> None:
    write("agent/auth.json", {"openai-codex": login(left_ms=-1)})
    server = serve(delay=0.3)(
        {CODEX_TOKEN: [(200, {"access_token": jwt(), "refresh_token": "r2", "expires_in": 3600})]}
    )
    model = open_model("openai-codex", "m", "openai-codex-responses", "https://x")

    async def aborted() -> None:
        registry = ModelRegistry(agent)
        request = asyncio.create_task(registry.auth_for(model))
        await asyncio.to_thread(server.arrived.wait, 20)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert (await registry.auth_for(model)).api_key == jwt()

    asyncio.run(aborted())
    assert stored(agent)["openai-codex"]["refresh"] == "r2"
    assert len(server.asked(CODEX_TOKEN)) == 1


def test_another_program_that_holds_the_lock_is_waited_for(agent: Path, write: Any, serve: Any) -> None:
    write("agent/auth.json", {"openai-codex": login(left_ms=-1)})
    server = serve()({})
    lock = agent / "auth.json.lock"
    lock.mkdir()
    model = open_model("openai-codex", "m", "openai-codex-responses", "https://x")

    async def wait() -> str | None:
        request = asyncio.create_task(ModelRegistry(agent).auth_for(model))
        await asyncio.sleep(0.2)
        assert not request.done()
        write("agent/auth.json", {"openai-codex": login(jwt(), accountId="acc-1")})  # pi has renewed it
        lock.rmdir()
        return (await request).api_key

    assert asyncio.run(wait()) == jwt()
    assert server.requests == []


def test_an_abandoned_lock_is_taken_away(agent: Path, write: Any, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from spindle.base import limits

    monkeypatch.setattr(limits, "LOGIN_LOCK_STALE", 0.2)
    write("agent/auth.json", {"openai-codex": login(left_ms=-1)})
    (agent / "auth.json.lock").mkdir()
    serve()({CODEX_TOKEN: [(200, {"access_token": jwt(), "refresh_token": "r2", "expires_in": 3600})]})
    assert auth(agent, "openai-codex").api_key == jwt()


def test_a_held_lock_shows_that_its_holder_lives(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spindle.base import limits
    from spindle.base.user_files import BadFile, hold_lock

    monkeypatch.setattr(limits, "LOGIN_LOCK_STALE", 0.4)
    monkeypatch.setattr(limits, "LOGIN_LOCK_TOUCH", 0.05)
    monkeypatch.setattr(limits, "LOGIN_LOCK_WAIT", 1.0)

    async def hold() -> None:
        async with hold_lock(agent / "auth.json"):
            with pytest.raises(BadFile, match="another program holds"):
                async with hold_lock(agent / "auth.json"):
                    pass

    asyncio.run(hold())


# -- clouds --------------------------------------------------------------------------------------


def test_credentials_of_a_machine(agent: Path, write: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "PROFILE", "SHARED_CREDENTIALS_FILE", "BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)

    def source(provider: str) -> str | None:
        return ModelRegistry(agent).credential_source(provider)

    assert source("amazon-bedrock") is None
    write("home/.aws/credentials", "[default]\n")
    pytest.importorskip("botocore", reason="botocore is not installed")
    assert source("amazon-bedrock") == str(tmp_path / "home/.aws/credentials")
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert source("amazon-bedrock") == "AWS_PROFILE"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert source("amazon-bedrock") == "AWS_ACCESS_KEY_ID"
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "token")
    assert source("amazon-bedrock") == "AWS_BEARER_TOKEN_BEDROCK"
    write("agent/auth.json", {"amazon-bedrock": {"type": "api_key", "env": {"AWS_PROFILE": "mine"}}})
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK")
    assert source("amazon-bedrock") == "auth.json"
    assert auth(agent, "amazon-bedrock").env == {"AWS_PROFILE": "mine"}

    for name in ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    assert source("google-vertex") is None
    file = write("home/.config/gcloud/application_default_credentials.json", {})
    assert source("google-vertex") is None
    env = {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "global"}
    write("agent/auth.json", {"google-vertex": {"type": "api_key", "env": env}})
    assert source("google-vertex") == str(file)
    assert auth(agent, "google-vertex").env == env
    monkeypatch.setenv("GOOGLE_CLOUD_API_KEY", "key")
    assert source("google-vertex") == "GOOGLE_CLOUD_API_KEY"


def test_keys_stored_under_a_former_name(agent: Path, write: Any) -> None:
    write("agent/auth.json", {"azure-openai-responses": {"type": "api_key", "key": "k"}})
    assert auth(agent, "azure").api_key == "k"
    found = ModelRegistry(agent).find("azure-openai-responses", "gpt-5.2")  # as sessions name it
    assert found is not None and found.provider == "azure"


@pytest.mark.parametrize(
    ("provider", "env"),
    [
        (
            "google-vertex",
            {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "l", "GOOGLE_APPLICATION_CREDENTIALS": 5},
        ),
        ("google-vertex", {"GOOGLE_CLOUD_PROJECT": ["p"]}),
        ("amazon-bedrock", {"AWS_SHARED_CREDENTIALS_FILE": "~no-such-user/x"}),
        ("amazon-bedrock", {"AWS_PROFILE": 5, "AWS_SHARED_CREDENTIALS_FILE": "/none"}),
    ],
)
def test_settings_that_make_no_sense_are_no_credentials(
    agent: Path, write: Any, monkeypatch: pytest.MonkeyPatch, provider: str, env: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(agent))
    write("agent/auth.json", {provider: {"env": env}})
    assert ModelRegistry(agent).credential_source(provider) is None


@pytest.mark.parametrize("odd", ["inf", 1e300, "nan", -5, None, [], "soon"])
def test_a_time_that_makes_no_sense_is_an_hour(agent: Path, write: Any, serve: Any, odd: Any) -> None:
    write("agent/auth.json", {"openai-codex": login(left_ms=-1)})
    serve()({CODEX_TOKEN: [(200, {"access_token": jwt(), "refresh_token": 7, "expires_in": odd})]})
    assert auth(agent, "openai-codex").api_key == jwt()
    entry = stored(agent)["openai-codex"]
    assert entry["expires"] == pytest.approx(now_ms() + HOUR_MS, abs=60_000)
    assert entry["refresh"] == "refresh-1", "the old one goes on"


# -- a token that is refused before its time -------------------------------------------------------


def codex(agent: Path, *steps: Step) -> "tuple[str, MockModel]":
    """Ask a model as the agent does; return the answer or its error, and the server."""
    from spindle.llm.stream import Finished, Request, StreamOptions, builtin_stream
    from spindle.shapes.messages import UserMessage, text_of

    with MockModel(list(steps)) as mock:
        registry = ModelRegistry(agent)
        model = open_model("openai-codex", "m", "openai-codex-responses", mock.openai_url)

        async def run() -> Any:
            auth = await registry.auth_for(model)
            options = StreamOptions(
                api_key=auth.api_key,
                headers=auth.headers,
                if_refused=auth.if_refused,
                renew=lambda: registry.auth_after_refusal(model, auth),
            )
            stream = builtin_stream(model.api)(model, Request("", [UserMessage("hi", 1)]), options)
            return [chunk async for chunk in stream]

        chunks = asyncio.run(run())
        assert [type(chunk) for chunk in chunks].count(Finished) == 1
        message = chunks[-1].message
        return message.error_message or text_of(message.content), mock


def responses_answer() -> Step:
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m1"}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hello"},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "id": "m1"}},
        {"type": "response.completed", "response": {"id": "r1", "status": "completed"}},
    ]
    return raw(*(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))


def sent_tokens(mock: MockModel) -> list[str]:
    return [request.headers["authorization"] for request in mock.requests]


def test_a_token_refused_before_its_time_is_renewed_and_the_request_made_again(
    agent: Path, write: Any, serve: Any
) -> None:
    old, new = jwt(salt="old"), jwt(salt="new")
    write("agent/auth.json", {"openai-codex": login(old)})
    server = serve()({CODEX_TOKEN: [(200, {"access_token": new, "refresh_token": "r2", "expires_in": 3600})]})
    text, mock = codex(agent, failure(401, "token_expired"), responses_answer())
    assert text == "Hello"
    assert sent_tokens(mock) == [f"Bearer {old}", f"Bearer {new}"]
    assert len(server.asked(CODEX_TOKEN)) == 1
    assert stored(agent)["openai-codex"]["refresh"] == "r2"


def test_it_is_made_again_once(agent: Path, write: Any, serve: Any) -> None:
    write("agent/auth.json", {"openai-codex": login(jwt(salt="old"))})
    server = serve()(
        {CODEX_TOKEN: [(200, {"access_token": jwt(salt="new"), "refresh_token": "r2", "expires_in": 3600})]}
    )
    text, mock = codex(agent, failure(401, "token_revoked"))
    assert "(401)" in text and text.endswith("Sign in again with spindle login openai-codex")
    assert (len(mock.requests), len(server.asked(CODEX_TOKEN))) == (2, 1)


def test_if_there_is_no_other_token_the_refusal_is_told(agent: Path, write: Any, serve: Any) -> None:
    entry = login(jwt())
    write("agent/auth.json", {"openai-codex": entry})
    serve()({CODEX_TOKEN: [(400, {"error": "invalid_grant"})]})
    text, mock = codex(agent, failure(401, "token_revoked"))
    assert "token_revoked" in text and len(mock.requests) == 1
    assert stored(agent)["openai-codex"] == entry


def test_a_token_that_another_process_has_renewed_is_taken(agent: Path, write: Any, serve: Any) -> None:
    old, new = jwt(salt="old"), jwt(salt="new")
    write("agent/auth.json", {"openai-codex": login(old)})
    server = serve()({CODEX_TOKEN: [(500, {})]})
    registry = ModelRegistry(agent)
    model = open_model("openai-codex", "m", "openai-codex-responses", "https://x")

    async def refused() -> ModelAuth | None:
        auth = await registry.auth_for(model)
        write("agent/auth.json", {"openai-codex": login(new, refresh_is="another")})
        return await registry.auth_after_refusal(model, auth)

    found = asyncio.run(refused())
    assert found is not None and found.api_key == new
    assert server.asked(CODEX_TOKEN) == []


def test_the_program_goes_on_after_a_refusal(agent: Path, write: Any, serve: Any) -> None:
    old, new = jwt(salt="old"), jwt(salt="new")
    write("agent/auth.json", {"openai-codex": login(old)})
    server = serve()({CODEX_TOKEN: [(200, {"access_token": new, "refresh_token": "r2", "expires_in": 3600})]})
    with MockModel([failure(401, "token_expired"), responses_answer()]) as mock:
        write("agent/models.json", {"providers": {"openai-codex": {"baseUrl": mock.openai_url}}})
        done = subprocess.run(
            [sys.executable, "-m", "spindle", "--no-session", "--model", "openai-codex/gpt-6.1-sol", "-p", "hi"],
            env=agent_environment(agent, SPINDLE_TEST_LOGIN_SERVER=server.url),
            cwd=agent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "Hello\n", "")
        assert sent_tokens(mock) == [f"Bearer {old}", f"Bearer {new}"]
