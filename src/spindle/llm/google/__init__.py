"""The `google-generative-ai` API."""

from collections.abc import AsyncGenerator

from spindle.llm.errors import limit_body
from spindle.llm.exchange import Call, exchange
from spindle.llm.google.reader import GoogleReader
from spindle.llm.google.request import google_body
from spindle.llm.history import transform_request
from spindle.llm.live import LiveMessage
from spindle.llm.stream import Chunk, Request, StreamOptions
from spindle.shapes.model import Model

__all__ = ["stream"]


def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
    """Ask the Gemini API."""

    def prepare(live: LiveMessage) -> Call:
        return Call(
            url=f"{model.base_url.rstrip('/')}/models/{model.id}:streamGenerateContent?alt=sse",
            headers={"x-goog-api-key": options.api_key} if options.api_key else {},
            body=google_body(model, transform_request(request, model), options),
            reader=GoogleReader(live, model),
            error_text=lambda status, body: limit_body(body.strip()) or f"{status} status code (no body)",
        )

    return exchange(model, options, prepare)
