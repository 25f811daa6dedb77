"""Servers on this machine: what they list, what they tell, and that a dead or strange one does no harm."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spindle.models.loopback import ServerUnreachable
from spindle.models.model_registry import ModelRegistry
from spindle.models.select import ModelNotFound, resolve_model


@contextmanager
def server(answers: dict[str, Any], status: int = 200) -> Iterator[str]:
    """Serve JSON (or raw bytes) by path; yields the base address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(asked.get("model", ""))

        def answer(self, key: str = "") -> None:
            value = answers.get(self.path + key, answers.get(self.path, b""))
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/v1"
        finally:
            http.shutdown()
            thread.join()


def registry(agent: Path, write: Any, provider: str, url: str) -> ModelRegistry:
    write("agent/models.json", {"providers": {provider: {"baseUrl": url}}})
    return ModelRegistry(agent)


def test_ollama(agent: Path, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    show = {"capabilities": ["tools", "thinking", "vision"], "model_info": {"qwen3.context_length": 40960}}
    answers = {
        "/v1/models": {"data": [{"id": "qwen3:8b"}, {"id": "plain"}]},
        "/api/showqwen3:8b": show,
        "/api/show": {},
    }
    with server(answers) as url:
        models = registry(agent, write, "ollama", url)
        assert models.available() == []
        qwen, plain = models.probe("ollama")
        assert (qwen.reasoning, qwen.input, qwen.context_window) == (True, ["text", "image"], 40960)
        assert (plain.reasoning, plain.input, plain.context_window) == (False, ["text"], 128000)
        assert qwen.base_url == url
        assert models.available() == [qwen, plain]
        assert resolve_model(models, "ollama/qwen3:high").model.id == "qwen3:8b"
        assert resolve_model(models, "ollama/qwen3:high").level == "high"
        with pytest.raises(ModelNotFound, match=r'Model "llama" not found on ollama \(.*\)\. It has: qwen3:8b, plain'):
            resolve_model(models, "ollama/llama")


@pytest.mark.parametrize(
    ("provider", "item", "window"),
    [
        ("vllm", {"id": "m", "max_model_len": 8192}, 8192),
        ("llamacpp", {"id": "m", "meta": {"n_ctx_train": 4096}}, 4096),
        ("llamacpp", {"id": "m", "meta": {"n_ctx": 2048, "n_ctx_train": 4096}}, 2048),
        ("lmstudio", {"id": "m", "max_context_length": 32768}, 32768),
    ],
)
def test_windows(agent: Path, write: Any, provider: str, item: dict[str, Any], window: int) -> None:
    with server({"/v1/models": {"data": [item]}}) as url:
        (model,) = registry(agent, write, provider, url).probe(provider)
        assert (model.context_window, model.max_tokens) == (window, min(window, 16384))


@pytest.mark.parametrize("answer", [b"<html>", {"data": 5}, [], {"data": ["x", {"id": 5}]}, b""])
def test_something_else_on_the_port(agent: Path, write: Any, answer: Any) -> None:
    with server({"/v1/models": answer}) as url:
        models = registry(agent, write, "vllm", url)
        try:
            assert models.probe("vllm") == []
        except ServerUnreachable as error:
            assert url in str(error)


def test_an_error_of_the_server(agent: Path, write: Any) -> None:
    with server({}, status=500) as url, pytest.raises(ServerUnreachable, match="answered 500"):
        registry(agent, write, "vllm", url).probe("vllm")


def test_a_dead_server_is_told_at_once(agent: Path, write: Any) -> None:
    with server({}) as url:
        pass
    models = registry(agent, write, "vllm", url)
    for pattern, provider in (("vllm/any/model:x", None), (None, "vllm")):
        with pytest.raises(ModelNotFound, match=f"vllm: nothing listens at {url}"):
            resolve_model(models, pattern, provider)


def test_a_server_in_trouble_is_a_warning_and_the_model_is_tried_all_the_same(agent: Path, write: Any) -> None:
    with server({}, status=503) as url:
        choice = resolve_model(registry(agent, write, "vllm", url), "vllm/any/model:x")
    assert (choice.model.id, choice.model.base_url) == ("any/model:x", url)
    assert choice.warning is not None
    assert "answered 503" in choice.warning


def test_a_server_alone_means_its_first_model(agent: Path, write: Any) -> None:
    with server({"/v1/models": {"data": [{"id": "one"}, {"id": "two"}]}}) as url:
        models = registry(agent, write, "vllm", url)
        assert resolve_model(models, None, "vllm").model.id == "one"
        assert resolve_model(models, "vllm/").model.id == "one"
