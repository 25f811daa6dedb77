"""Gemini on Google Cloud: addresses, keys, tokens of credentials; bodies and answers are those of the Gemini API."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from spindle.llm import vertex
from spindle.llm.errors import ModelError
from spindle.llm.stream import StreamOptions
from tests.support.mock_model import MockModel, Recorded, failure, raw

from .helpers import answer_of, collect, make_model, shape

API = "google-vertex"
CATALOGUE = "https://{location}-aiplatform.googleapis.com"
PLACE = {"GOOGLE_CLOUD_PROJECT": "p1", "GOOGLE_CLOUD_LOCATION": "europe-west4"}
END = "publishers/google/models/gemini-3-pro:streamGenerateContent?alt=sse"
ANSWER = raw(
    b'data: {"candidates":[{"content":{"parts":[{"text":"Hello"}]},"finishReason":"STOP"}],'
    b'"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":1}}\n\n'
)


@pytest.fixture(autouse=True)
def no_wishes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    vertex._credentials.cache_clear()


@pytest.mark.parametrize(
    ("base_url", "env", "key", "url"),
    [
        (
            CATALOGUE,
            PLACE,
            None,
            f"https://europe-west4-aiplatform.googleapis.com/v1/projects/p1/locations/europe-west4/{END}",
        ),
        (
            CATALOGUE,
            {**PLACE, "GOOGLE_CLOUD_LOCATION": "global"},
            None,
            f"https://aiplatform.googleapis.com/v1/projects/p1/locations/global/{END}",
        ),
        (
            "",
            {"GCLOUD_PROJECT": "p2", "GOOGLE_CLOUD_LOCATION": "eu"},
            None,
            f"https://aiplatform.eu.rep.googleapis.com/v1/projects/p2/locations/eu/{END}",
        ),
        (CATALOGUE, {}, "key", f"https://aiplatform.googleapis.com/v1/{END}"),
        (
            CATALOGUE,
            PLACE,
            "key",
            f"https://europe-west4-aiplatform.googleapis.com/v1/projects/p1/locations/europe-west4/{END}",
        ),
        ("https://proxy/v1/", {}, "key", f"https://proxy/v1/{END}"),
        ("https://proxy", PLACE, None, f"https://proxy/v1/projects/p1/locations/europe-west4/{END}"),
    ],
)
def test_addresses(base_url: str, env: dict[str, str], key: str | None, url: str) -> None:
    model = make_model(api=API, id="gemini-3-pro", base_url=base_url)
    assert vertex.vertex_url(model, StreamOptions(api_key=key, env=env)) == url


def test_a_project_must_be_named() -> None:
    with pytest.raises(ModelError, match="GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION"):
        vertex.vertex_url(make_model(api=API), StreamOptions(env={"GOOGLE_CLOUD_PROJECT": "p1"}))


def ask(step: Any = ANSWER, **options: Any) -> tuple[list[Any], list[Recorded]]:
    with MockModel([step]) as mock:
        return collect(make_model(api=API, id="gemini-3-pro", base_url=mock.url), **options), mock.requests


def test_a_key() -> None:
    chunks, [request] = ask(api_key="cloud-key")
    assert shape(answer_of(chunks)) == [("text", "Hello")]
    assert request.headers["x-goog-api-key"] == "cloud-key"
    assert request.path == f"/v1/{END}"
    assert request.body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]


def test_refusals() -> None:
    found = answer_of(
        ask(failure(403, {"error": {"code": 403, "status": "PERMISSION_DENIED"}}), api_key="cloud-key")[0]
    )
    assert "PERMISSION_DENIED" in (found.error_message or "")


def service_account(path: Path, token_uri: str) -> Path:
    pytest.importorskip("google.auth", reason="google-auth is not installed")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "p1",
        "client_email": "a@p1.example",
        "private_key": key.decode(),
        "token_uri": token_uri,
    }
    path.write_text(json.dumps(account))
    return path


def test_the_token_of_a_service_account_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    granted = {"access_token": "ya29.token", "expires_in": 3600, "token_type": "Bearer"}
    with MockModel([failure(200, granted)]) as login, MockModel([ANSWER]) as mock:
        file = service_account(tmp_path / "account.json", f"{login.url}/token")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        model = make_model(api=API, id="gemini-3-pro", base_url=mock.url)
        for _ in range(2):
            assert shape(answer_of(collect(model, env=PLACE))) == [("text", "Hello")]
        assert [request.headers["authorization"] for request in mock.requests] == ["Bearer ya29.token"] * 2
        assert mock.requests[0].path == f"/v1/projects/p1/locations/europe-west4/{END}"
        [request] = login.requests
        assert request.path == "/token"
        if isinstance(request.body, str):
            assert parse_qs(request.body)["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]


@pytest.mark.filterwarnings("ignore:The load_credentials_from_file method")
def test_an_account_that_was_disabled(tmp_path: Path) -> None:
    with MockModel([failure(400, {"error": "invalid_grant", "error_description": "account disabled"})]) as login:
        file = service_account(tmp_path / "account.json", f"{login.url}/token")
        chunks, requests = ask(env={**PLACE, "GOOGLE_APPLICATION_CREDENTIALS": str(file)})
    text = answer_of(chunks).error_message or ""
    assert text.startswith(f"Google Cloud credentials in {file}: ")
    assert "account disabled" in text
    assert requests == []


def test_no_credentials() -> None:
    pytest.importorskip("google.auth", reason="google-auth is not installed")
    text = answer_of(ask(env=PLACE)[0]).error_message or ""
    assert "gcloud auth application-default login" in text


def test_without_google_auth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    assert "'google-auth[requests]>=" in (answer_of(ask(env=PLACE)[0]).error_message or "")
