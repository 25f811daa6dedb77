"""Model APIs by name. The built-in ones are imported when a model first needs them."""

import importlib

from spindle.llm.stream import StreamFunction

__all__ = ["get_stream", "register_api"]

_MODULES = {
    "openai-completions": "openai_chat",
    "anthropic-messages": "anthropic",
    "openai-responses": "openai_responses",
    "azure-openai-responses": "openai_responses",
    "google-generative-ai": "google",
    "local": "local.adapter",
    "scripted": "scripted",
}
_registered: dict[str, StreamFunction] = {}


def get_stream(api: str) -> StreamFunction:
    """Return the function that speaks `api`. Raises `LookupError` naming the known ones."""
    if api not in _registered:
        if api not in _MODULES:
            known = ", ".join(sorted({*_MODULES, *_registered}))
            raise LookupError(f"Unknown model API {api!r}. Known are: {known}")
        stream: StreamFunction = importlib.import_module(f"{__package__}.{_MODULES[api]}").stream
        _registered[api] = stream
    return _registered[api]


def register_api(name: str, stream: StreamFunction) -> None:
    """Add a model API, or replace one."""
    _registered[name] = stream
