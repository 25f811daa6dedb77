"""The `anthropic-messages` API."""

from collections.abc import AsyncGenerator

from spindle.llm.anthropic.reader import MessagesReader
from spindle.llm.anthropic.request import messages_body, messages_headers
from spindle.llm.compat import messages_compat
from spindle.llm.errors import limit_body
from spindle.llm.exchange import Call, exchange
from spindle.llm.history import transform_request
from spindle.llm.live import LiveMessage
from spindle.llm.stream import Chunk, Request, StreamOptions
from spindle.shapes.model import Model

__all__ = ["stream"]


def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
    """Ask a messages server."""

    def prepare(live: LiveMessage) -> Call:
        compat = messages_compat(model)
        body = messages_body(model, transform_request(request, model), options, compat)
        return Call(
            url=f"{model.base_url.rstrip('/').removesuffix('/v1')}/v1/messages",
            headers=messages_headers(options, compat, body),
            body=body,
            reader=MessagesReader(live, model),
            error_text=_error_text,
        )

    return exchange(model, options, prepare)


def _error_text(status: int, body: str) -> str:
    body = body.strip()
    return f"{status} {limit_body(body)}" if body else f"{status} status code (no body)"
