"""The model API `local`: a GGUF file on this disk answers.

The model runs behind a server on loopback (`llama_server`) that speaks chat completions, so the same adapter as for any
other such server talks to it; this module adds what local models need besides: loading, a shorter prompt, and tool
calls for models that cannot make any.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from spindle.base.agent_dir import agent_dir
from spindle.llm import openai_chat
from spindle.llm.history import transform_request
from spindle.llm.live import LiveMessage
from spindle.llm.local import LocalModelError, model_file
from spindle.llm.local.grammar import ReplyReader
from spindle.llm.local.llama_server import Facts, WantedModel, lease
from spindle.llm.local.prompts import PromptPlan, make_plan
from spindle.llm.stream import Chunk, Finished, Request, Started, StreamOptions
from spindle.shapes.model import Model
from spindle.shapes.pieces import TextDelta

# The server hangs up after every streamed answer without saying so; a pooled connection would be a dead one.
_HEADERS = {"connection": "close"}


async def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
    """Ask a local model, loading it first if it is not running."""
    wanted = WantedModel(
        path=model_file(agent_dir() / "models", model.id),
        name=model.id,
        context=model.context_window,
        threads=(model.compat or {}).get("threads"),
    )
    try:
        async with lease(wanted) as facts:
            limit = min(options.max_tokens or model.max_tokens, facts.context // 2)
            plan = make_plan(facts, transform_request(request, model), limit)
            chunks = _ask(model, facts, plan, options)
            async with aclosing(_constrained(model, chunks, plan) if plan.constrained else chunks) as chunks:
                async for chunk in chunks:
                    yield chunk
    except LocalModelError as error:
        yield Finished(LiveMessage(model).finish("error", str(error)))


def _ask(model: Model, facts: Facts, plan: PromptPlan, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
    async def add_keys(body: Any) -> Any:
        body |= plan.body
        return await options.on_payload(body) if options.on_payload else body

    # No window: the plan fits already. No proxy: the server is on this machine.
    server = replace(model, base_url=f"{facts.url}/v1", context_window=0)
    asked = replace(
        options,
        api_key=facts.key,
        headers=_HEADERS,
        max_tokens=plan.max_tokens,
        proxy=None,
        on_payload=add_keys,
    )
    return openai_chat.stream(server, plan.request, asked)


async def _constrained(
    model: Model, chunks: AsyncGenerator[Chunk, None], plan: PromptPlan
) -> AsyncGenerator[Chunk, None]:
    """Read a reply in our own form out of the server's text."""
    live = LiveMessage(model)
    reader = ReplyReader(live, plan.calls)
    async with aclosing(chunks):
        async for chunk in chunks:
            if isinstance(chunk, Started):
                yield Started(live)
            elif isinstance(chunk, list):
                yield [event for piece in chunk if isinstance(piece, TextDelta) for event in reader.feed(piece.delta)]
            elif isinstance(chunk, Finished):
                yield reader.close()
                said = chunk.message
                live.usage, live.response_id, live.raw_stop_reason = said.usage, said.response_id, said.raw_stop_reason
                reason = "toolUse" if said.stop_reason == "stop" and reader.is_call else said.stop_reason
                yield Finished(live.finish(reason, said.error_message))
