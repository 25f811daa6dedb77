"""The `openai-responses` API and its Azure form."""

from collections.abc import AsyncGenerator

from spindle.llm.compat import responses_compat
from spindle.llm.errors import limit_body
from spindle.llm.exchange import Call, exchange
from spindle.llm.history import transform_request
from spindle.llm.live import LiveMessage
from spindle.llm.openai_responses.reader import ResponsesReader
from spindle.llm.openai_responses.request import AZURE, responses_body, responses_headers, responses_url
from spindle.llm.stream import Chunk, Request, StreamOptions
from spindle.shapes.model import Model

__all__ = ["stream"]


def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
    """Ask a responses server."""

    def error_text(status: int, body: str) -> str:
        name = "Azure OpenAI" if model.api == AZURE else model.provider
        return f"{name} API error ({status}): {limit_body(body.strip()) or 'status code (no body)'}"

    def prepare(live: LiveMessage) -> Call:
        compat = responses_compat(model)
        return Call(
            url=responses_url(model),
            headers=responses_headers(model, options, compat),
            body=responses_body(model, transform_request(request, model), options, compat),
            reader=ResponsesReader(live, model),
            error_text=error_text,
        )

    return exchange(model, options, prepare)
