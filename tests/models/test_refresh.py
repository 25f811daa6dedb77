"""`spindle models refresh` against a server that plays the part of models.dev, and `spindle models show`."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spindle.apps.cli import models_command
from spindle.models.catalog import load_catalog
from spindle.models.model_registry import ModelRegistry

NEW: dict[str, Any] = {
    "id": "brand-new",
    "name": "Brand New",
    "reasoning": True,
    "tool_call": True,
    "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]},
    "limit": {"context": 1_050_000, "output": 64_000},
    "cost": {
        "input": 7,
        "output": 8.5,
        "cache_read": 0.7,
        "tiers": [{"input": 14, "output": 17, "cache_read": 1.4, "tier": {"type": "context", "size": 272_000}}],
    },
    "release_date": "2026-11-14",
}
KNOWN = {**NEW, "id": "gpt-5.5", "name": "GPT-5.5"}


class ModelsDev(ThreadingHTTPServer):
    """Serves one document, with an ETag."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/api.json"
        self.status = 200
        self.etag: str | None = '"v1"'
        self.asked: list[str | None] = []
        self.serve(openai=[KNOWN, NEW])

    def serve(self, **providers: list[dict[str, Any]]) -> None:
        document = {
            name: {"id": name, "npm": f"@ai-sdk/{name}", "models": {model["id"]: model for model in models}}
            for name, models in providers.items()
        }
        self.body = json.dumps(document).encode()


class _Handler(BaseHTTPRequestHandler):
    server: ModelsDev

    def do_GET(self) -> None:
        known = self.headers.get("If-None-Match")
        self.server.asked.append(known)
        same = known is not None and known == self.server.etag
        self.send_response(304 if same else self.server.status)
        if self.server.etag:
            self.send_header("ETag", self.server.etag)
        self.send_header("Content-Length", "0" if same else str(len(self.server.body)))
        self.end_headers()
        if not same:
            self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[ModelsDev]:
    with ModelsDev() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def refresh(site: ModelsDev) -> int:
    return models_command.run(["refresh", "--from", site.url])


def test_prices_change_and_models_come(agent: Path, site: ModelsDev, capsys: pytest.CaptureFixture[str]) -> None:
    before = ModelRegistry(agent).find("openai", "gpt-5.5")
    assert refresh(site) == 0
    assert capsys.readouterr().out.startswith("1 price changed, 1 model added, 0 left out\n")
    registry = ModelRegistry(agent)
    model, added = registry.find("openai", "gpt-5.5"), registry.find("openai", "brand-new")
    assert before is not None and model is not None and added is not None
    for one in (model, added):
        cost = one.cost
        assert (cost.input, cost.output, cost.cache_read, cost.cache_write) == (7, 8.5, 0.7, 0)
        assert cost.tiers == [
            {"inputTokensAbove": 272_000, "input": 14, "output": 17, "cacheRead": 1.4, "cacheWrite": 0}
        ]
        assert one.context_window == 272_000, "not beyond its plain price"
    assert (model.max_tokens, model.thinking_level_map) == (before.max_tokens, before.thinking_level_map)
    assert (added.api, added.base_url, added.max_tokens) == ("openai-responses", "https://api.openai.com/v1", 64_000)
    assert (added.input, added.reasoning, added.compat) == (["text", "image"], True, {"supportsStrictMode": True})
    assert registry.source_of(model).startswith(f"{site.url}, 20")
    untouched = registry.find("openai", "gpt-5.4")
    assert untouched is not None
    assert registry.source_of(untouched).startswith("npm @earendil-works/pi-ai ")
    assert registry.all("groq") == ModelRegistry(agent.parent / "other").all("groq")
    assert (agent / "catalog").stat().st_mode & 0o777 == 0o700


def test_what_is_the_same_is_not_sent_again(agent: Path, site: ModelsDev, capsys: pytest.CaptureFixture[str]) -> None:
    refresh(site)
    assert refresh(site) == 0
    assert site.asked == [None, '"v1"']
    assert "Nothing new at" in capsys.readouterr().out
    site.etag = '"v2"'
    refresh(site)
    assert site.asked[-1] == '"v1"'
    state = agent / "catalog" / "refreshed.json"
    state.write_text(state.read_text().replace("pi-ai", "older pi-ai"))
    refresh(site)
    assert site.asked[-1] is None, "a new built-in catalogue is refreshed from the start"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<html>", "is not in the form of models.dev"),
        (b"\xff\xfe", "is not in the form of models.dev"),
        (b'{"openai": {"models": [1]}}', "is not in the form of models.dev: Expected `object`, got `array`"),
        (b'{"elsewhere": {"models": {}}}', "lists none of the providers we know"),
    ],
    ids=["html", "no text", "wrong shape", "other providers"],
)
def test_rubbish_changes_nothing(
    agent: Path, site: ModelsDev, capsys: pytest.CaptureFixture[str], body: bytes, text: str
) -> None:
    refresh(site)
    files = {path: path.read_bytes() for path in (agent / "catalog").iterdir()}
    site.body, site.etag = body, '"v2"'
    assert refresh(site) == 1
    error = capsys.readouterr().err
    assert text in error and "Nothing was changed" in error
    assert {path: path.read_bytes() for path in (agent / "catalog").iterdir()} == files


def test_a_model_that_makes_no_sense_is_left_out(
    agent: Path, site: ModelsDev, capsys: pytest.CaptureFixture[str]
) -> None:
    negative = {**KNOWN, "cost": {"input": -1, "output": 1}}
    site.serve(openai=[negative, NEW, {"id": "half"}, {**NEW, "id": "endless", "limit": {"context": "much"}}])
    assert refresh(site) == 0
    said = capsys.readouterr()
    assert "0 prices changed, 1 model added, 3 left out" in said.out
    assert "Left out openai/gpt-5.5: Expected `float` >= 0.0 - at `$.cost.input`" in said.err
    model = ModelRegistry(agent).find("openai", "gpt-5.5")
    assert model is not None and model.cost.input == 5


def test_what_cannot_be_used_is_not_added_and_nothing_becomes_free(agent: Path, site: ModelsDev) -> None:
    free = {**KNOWN, "cost": {"input": 0, "output": 0}}
    draws = {**NEW, "id": "draws", "modalities": {"input": ["text"], "output": ["image"]}}
    mute = {**NEW, "id": "mute", "tool_call": False}
    unpriced = {**NEW, "id": "unpriced", "cost": None}
    odd = {**NEW, "id": "odd", "provider": {"npm": "@ai-sdk/never-heard-of"}}
    claude = {**NEW, "id": "claude-new", "provider": {"npm": "@ai-sdk/anthropic"}}
    site.serve(openai=[free, draws, mute, unpriced], opencode=[odd, claude])
    assert refresh(site) == 0
    registry = ModelRegistry(agent)
    known, new = registry.find("openai", "gpt-5.5"), registry.find("openai", "unpriced")
    assert known is not None and (known.cost.input, known.cost_unknown) == (5, False)
    assert new is not None and new.cost_unknown
    assert [registry.find("openai", name) for name in ("draws", "mute")] == [None, None]
    served = registry.find("opencode", "claude-new")
    assert served is not None and served.api == "anthropic-messages"
    assert registry.find("opencode", "odd") is None


def test_trouble_is_named(
    agent: Path, site: ModelsDev, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.status = 503
    assert refresh(site) == 1
    assert f"{site.url} answered 503" in capsys.readouterr().err
    assert models_command.run(["refresh", "--from", "http://127.0.0.1:1/"]) == 1
    told = capsys.readouterr().err
    assert "Cannot get http://127.0.0.1:1/" in told and "Errno" not in told
    assert models_command.run(["refresh", "--from", "file:///etc/passwd"]) == 1
    assert "Not an http address" in capsys.readouterr().err
    monkeypatch.setenv("PI_OFFLINE", "1")
    asked = len(site.asked)
    assert refresh(site) == 1
    assert "PI_OFFLINE is set" in capsys.readouterr().err
    assert len(site.asked) == asked
    assert not (agent / "catalog").exists()


def test_the_newer_one_counts(agent: Path, site: ModelsDev) -> None:
    refresh(site)
    path, own = agent / "catalog" / "openai.json", load_catalog("openai")
    text = path.read_text()
    refreshed = load_catalog("openai", agent)
    assert own is not None and refreshed is not None and refreshed.updated > own.updated
    path.write_text(text.replace(f'"updated": "{refreshed.updated}"', '"updated": "2020-01-01"'))
    assert load_catalog("openai", agent) == own
    path.write_text(text[:100])
    assert load_catalog("openai", agent) == own


# -- show ----------------------------------------------------------------------------------------


def test_what_is_known_of_a_model(
    agent: Path, write: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert models_command.run(["show", "openai/gpt-5.5"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "openai/gpt-5.5  GPT-5.5",
        "  API       openai-responses at https://api.openai.com/v1",
        "  Key       from OPENAI_API_KEY",
        "  Context   272,000 tokens, answers of up to 128,000",
        "  Input     text, image",
        "  Thinking  off, low, medium, high, xhigh",
        "  Price     $5 input, $30 output, $0.5 cache read, $0 cache write per million tokens",
        "            $10 input, $45 output, $1 cache read, $0 cache write with more than 272,000 tokens sent",
        "  Source    npm @earendil-works/pi-ai 1.5.0, 2026-11-02",
    ]
    mine = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "k", "models": [{"id": "own"}]}
    write("agent/models.json", {"providers": {"mine": mine}})
    models_command.run(["show", "mine/own"])
    own = capsys.readouterr().out
    assert "  Price     unknown\n" in own and "  Source    models.json\n" in own
    models_command.run(["show", "radius/balanced"])
    assert 'Cannot use radius/balanced: it speaks the API "pi-messages"' in capsys.readouterr().out
    assert models_command.run(["show", "no-such-model"]) == 1
    assert 'Model "no-such-model" not found' in capsys.readouterr().err


@pytest.mark.parametrize("models", ['[{"id": 5}]', "[{}]", '[{"id": "x", "cost": {"input": "1"}}]', "[", ""])
def test_a_damaged_file_leaves_the_built_in_models(agent: Path, models: str) -> None:
    (agent / "catalog").mkdir()
    head = '{"source": "s", "updated": "2999-01-01", "api": "openai-responses", "baseUrl": "https://x", "models": '
    (agent / "catalog" / "openai.json").write_text(head + models + "}")
    registry = ModelRegistry(agent)
    model = registry.find("openai", "gpt-5.5")
    assert model is not None and model.base_url == "https://api.openai.com/v1"
    assert registry.source_of(model).startswith("npm ")


def test_tiers_of_another_kind_are_no_tiers_of_input(agent: Path, site: ModelsDev) -> None:
    cost = {"input": 7, "output": 8, "tiers": [{"input": 1, "output": 1, "tier": {"type": "output", "size": 10}}]}
    site.serve(openai=[{**NEW, "cost": cost}])
    assert refresh(site) == 0
    model = ModelRegistry(agent).find("openai", "brand-new")
    assert model is not None and (model.cost.input, model.cost.tiers) == (7, None)


def test_half_a_file_changes_nothing(agent: Path, site: ModelsDev, capsys: pytest.CaptureFixture[str]) -> None:
    site.body = site.body[: len(site.body) // 2]
    assert refresh(site) == 1
    assert "Nothing was changed" in capsys.readouterr().err
    assert not (agent / "catalog").exists()
