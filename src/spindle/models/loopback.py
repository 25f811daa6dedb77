"""Model servers on this machine that can be used by naming them, without a key and without editing a file.

A server gets no request until its list of models is wanted.
"""

import os
from typing import Any

from msgspec.structs import replace

from spindle.base import limits
from spindle.models.models_file import open_model
from spindle.shapes.codec import DecodeError, decode
from spindle.shapes.model import Model, masked_url

_ANSWER_LIMIT = 4 << 20
LOOPBACK = {
    "ollama": "http://127.0.0.1:11434/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "vllm": "http://127.0.0.1:8000/v1",
}


class ServerUnreachable(Exception):
    """No model server answers there."""


class ServerDown(ServerUnreachable):
    """Nothing listens at the address. A server that is only slow is not down."""


def server_url(provider: str) -> str:
    """Return the usual address of a server; Ollama's own variable may move it."""
    host = os.environ.get("OLLAMA_HOST") if provider == "ollama" else None
    if not host:
        return LOOPBACK[provider]
    scheme, _, rest = host.rpartition("://")
    rest = rest.rstrip("/").replace("0.0.0.0", "127.0.0.1")
    return f"{scheme or 'http'}://{rest if ':' in rest else f'{rest}:11434'}/v1"


def is_loopback_url(url: str) -> bool:
    from urllib.parse import urlsplit

    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def list_models(provider: str, base_url: str) -> list[Model]:
    """Ask a server for its models; blocks for a second at most per question. Raises `ServerUnreachable`."""
    answer = _ask("GET", f"{base_url}/models")
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise ServerUnreachable(f"{masked_url(base_url)} does not answer like a model server")
    models = []
    for item in listed:
        if isinstance(item, dict) and isinstance(model_id := item.get("id"), str):
            model = open_model(provider, model_id, "openai-completions", base_url)
            models.append(_with_window(model, item))
    return _describe_ollama(models) if provider == "ollama" else models


def _with_window(model: Model, item: dict[str, Any]) -> Model:
    meta = item.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    # vLLM, llama.cpp (running, then trained), LM Studio
    known = (item.get("max_model_len"), meta.get("n_ctx"), meta.get("n_ctx_train"), item.get("max_context_length"))
    window = next((value for value in known if isinstance(value, int) and value > 0), None)
    if window is None:
        return model
    return replace(model, context_window=window, max_tokens=min(model.max_tokens, window))


def _describe_ollama(models: list[Model]) -> list[Model]:
    """Add the facts that Ollama gives only when asked about one model."""
    described: list[Model] = []
    for index, model in enumerate(models):
        try:
            answer = _ask("POST", model.base_url.removesuffix("/v1") + "/api/show", {"model": model.id})
        except ServerUnreachable:
            return described + models[index:]
        described.append(_with_abilities(model, answer if isinstance(answer, dict) else {}))
    return described


def _with_abilities(model: Model, answer: dict[str, Any]) -> Model:
    abilities, info = answer.get("capabilities"), answer.get("model_info")
    abilities = abilities if isinstance(abilities, list) else []
    windows = [v for k, v in info.items() if k.endswith(".context_length")] if isinstance(info, dict) else []
    model = _with_window(model, {"max_model_len": windows[0] if windows else None})
    inputs = ["text", "image"] if "vision" in abilities else ["text"]
    return replace(model, reasoning="thinking" in abilities, input=inputs)


def _ask(method: str, url: str, body: Any = None) -> Any:
    import http.client
    from urllib.parse import urlsplit

    from spindle.shapes.codec import encode

    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    # Straight to the socket: requests to this machine must not go through a proxy.
    connection = kind(parts.hostname or "", parts.port, timeout=limits.LOOPBACK_SERVER)
    try:
        data = None if body is None else encode(body)
        connection.request(method, parts.path, data, {"Accept": "application/json", "Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read(_ANSWER_LIMIT)
        if response.status != 200:
            raise ServerUnreachable(f"{masked_url(url)} answered {response.status}")
        return decode(text)
    except ConnectionRefusedError:
        raise ServerDown(f"nothing listens at {masked_url(url).removesuffix('/models')}") from None
    except (OSError, http.client.HTTPException, DecodeError) as error:
        raise ServerUnreachable(f"no model server at {masked_url(url)} ({error})") from None
    finally:
        connection.close()
