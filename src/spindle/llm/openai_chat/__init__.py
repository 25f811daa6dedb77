"""The `openai-completions` API: OpenAI, Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek and many more."""

from collections.abc import AsyncGenerator

from spindle.llm.compat import chat_compat
from spindle.llm.exchange import Call, exchange
from spindle.llm.history import transform_request
from spindle.llm.live import LiveMessage
from spindle.llm.openai_chat.reader import ChatReader
from spindle.llm.openai_chat.request import chat_body, chat_headers
from spindle.llm.stream import Chunk, Request, StreamOptions
from spindle.shapes.model import Model

__all__ = ["stream"]


def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
    """Ask a chat-completions server."""

    def prepare(live: LiveMessage) -> Call:
        compat = chat_compat(model)
        return Call(
            url=f"{model.base_url.rstrip('/')}/chat/completions",
            headers=chat_headers(options, compat),
            body=chat_body(model, transform_request(request, model), options, compat),
            reader=ChatReader(live, model, compat),
        )

    return exchange(model, options, prepare)
