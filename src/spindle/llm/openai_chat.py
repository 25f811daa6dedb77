"""The `openai-completions` API: OpenAI, Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek and many more.

Many servers claim to speak it: requests are adapted to each of them (`ChatCompat`), and a chunk that is not
quite what it should be is read key by key. Blocks stay open until the stream ends, because text, thinking and calls may
take turns in it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import asdict

from spindle.llm.azure import AZURE, azure_base, deployment
from spindle.llm.compat import ChatCompat, session_headers
from spindle.llm.cost import Bill, UsageDetails, effort_word, output_limit, take_usage, thinking_budget
from spindle.llm.errors import ModelError
from spindle.llm.exchange import Call, event_decoder, over_http
from spindle.llm.live import LiveMessage, LiveToolCall
from spindle.llm.memory import from_the_end
from spindle.llm.stream import ModelMessage, Request, StreamOptions, ToolSpec
from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.messages import (
    AssistantMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from spindle.shapes.model import Model
from spindle.shapes.pieces import StreamEvent

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
"""Where servers put thinking, in order of preference. It is sent back in the field it came in."""
_IN_CONTENT = "content"
"""Signature of thinking that came as a part of the content, as Mistral's models send it. It goes back there."""
_NO_FINISH_REASON = (
    "The server ended its answer with [DONE] and gave no finish_reason. If it never gives one, set "
    '"compat": {"supportsFinishReason": false} for this model or its provider in models.json'
)
_MAX_CACHE_KEY = 64


@over_http
def stream(model: Model, request: Request, options: StreamOptions, live: LiveMessage) -> Call:
    compat = ChatCompat.of(model)
    base, body = model.base_url, chat_body(model, request, options, compat)
    if model.provider == AZURE:
        base = azure_base(model, options)
        body["model"] = deployment(model.id, options)
    return Call(
        url=f"{base.rstrip('/')}/chat/completions",
        headers=chat_headers(options, compat),
        body=body,
        reader=ChatReader(live, compat),
        ends_with_body=not compat.supports_finish_reason,
    )


def chat_headers(options: StreamOptions, compat: ChatCompat) -> dict[str, str]:
    headers = {}
    if options.api_key:
        headers["authorization"] = f"Bearer {options.api_key}"
    session = options.session_id
    if session and compat.send_session_affinity_headers:
        headers |= session_headers(session, compat.session_affinity_format)
        if compat.session_affinity_format != "openrouter":
            headers["x-session-affinity"] = session
    return headers


def chat_body(model: Model, request: Request, options: StreamOptions, compat: ChatCompat) -> dict[str, Any]:
    """Return the body; the history must be clean (`transform_messages`)."""
    body: dict[str, Any] = {"model": model.id, "messages": _messages(model, request, compat), "stream": True}
    if compat.supports_usage_in_streaming:
        body["stream_options"] = {"include_usage": True}
    if compat.supports_store:
        body["store"] = False
    body[compat.max_tokens_field] = output_limit(model, request, options)
    if request.tools:
        body["tools"] = request.memory.same("chat", partial(_tools, request.tools, compat), request.tools, compat)
        if compat.zai_tool_stream:
            body["tool_stream"] = True
    elif any(isinstance(message, ToolResultMessage) for message in request.messages):
        body["tools"] = []  # some proxies refuse a history with calls unless the key is there
    _add_caching(body, model, options, compat)
    if model.reasoning:
        _add_thinking(body, model, options, compat)
    if compat.open_router_routing:
        body["provider"] = compat.open_router_routing
    if compat.vercel_gateway_routing:
        body["providerOptions"] = {"gateway": compat.vercel_gateway_routing}
    if compat.vllm_priority is not None:
        body["priority"] = compat.vllm_priority
    return body | (model.sampling_params or {})


def _tools(tools: Sequence[ToolSpec], compat: ChatCompat) -> Any:
    """Return the tools as they are sent: their JSON, unless there will be a mark on the last one."""
    strict = {"strict": False} if compat.supports_strict_mode else {}
    made = [{"type": "function", "function": asdict(tool) | strict} for tool in tools]
    return made if compat.cache_control_format == "anthropic" else msgspec.Raw(encode(made))


# -- messages ------------------------------------------------------------------------------------


def _messages(model: Model, request: Request, compat: ChatCompat) -> list[Any]:
    messages = request.memory.json("chat", request.messages, partial(_history, model, compat), model, compat)
    if request.system_prompt:
        role = "developer" if model.reasoning and compat.supports_developer_role else "system"
        content = (
            [_text(request.system_prompt)] if compat.cache_control_format == "anthropic" else request.system_prompt
        )
        messages.insert(0, {"role": role, "content": content})
    return messages


def _history(model: Model, compat: ChatCompat, history: Sequence[ModelMessage], _: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for message in [*history, None]:
        if isinstance(message, ToolResultMessage):
            messages.append(_tool_result(message, compat))
            images += [_part(block) for block in message.content if isinstance(block, Image)]
            continue
        if images:
            _add_user(messages, [{"type": "text", "text": "Attached image(s) from tool result:"}, *images], compat)
            images = []
        if isinstance(message, UserMessage):
            content = message.content
            if content:
                _add_user(messages, content if isinstance(content, str) else [*map(_part, content)], compat)
        elif message is not None and (answer := _assistant(message, model, compat)):
            messages.append(answer)
    if compat.cache_control_format == "anthropic":
        for each in messages:  # all as parts: a message must look the same with a mark and after it has moved on
            if isinstance(each["content"], str) and each["content"]:
                each["content"] = [_text(each["content"])]
    return messages


def _add_user(messages: list[dict[str, Any]], content: Any, compat: ChatCompat) -> None:
    if compat.requires_assistant_after_tool_result and messages and messages[-1]["role"] == "tool":
        messages.append({"role": "assistant", "content": "I have processed the tool results."})
    messages.append({"role": "user", "content": content})


def _part(block: Text | Image) -> dict[str, Any]:
    if isinstance(block, Text):
        return _text(block.text)
    return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tool_result(message: ToolResultMessage, compat: ChatCompat) -> dict[str, Any]:
    text = text_of(message.content, "\n")
    if not text:
        has_image = any(isinstance(block, Image) for block in message.content)
        text = "(see attached image)" if has_image else "(no tool output)"
    result = {"role": "tool", "tool_call_id": message.tool_call_id, "content": text}
    if compat.requires_tool_result_name:
        result["name"] = message.tool_name
    return result


def _assistant(message: AssistantMessage, model: Model, compat: ChatCompat) -> dict[str, Any] | None:
    text = ""
    calls: list[ToolCall] = []
    thinking: list[Thinking] = []
    for block in message.content:
        if isinstance(block, Text):
            text += block.text
        elif isinstance(block, ToolCall):
            calls.append(block)
        elif block.thinking.strip():
            thinking.append(block)
    result: dict[str, Any] = {"role": "assistant"}
    if thinking and compat.requires_thinking_as_text:
        text = "\n\n".join([*(block.thinking for block in thinking), *([text] if text else [])])
        thinking = []
    if not text and not calls:
        return None
    result["content"] = text or ("" if compat.requires_assistant_after_tool_result else None)
    if thinking:
        result |= _thinking_fields(thinking, text)
    if calls:
        _add_calls(result, calls)
    if compat.requires_reasoning_content_on_assistant_messages and model.reasoning:
        result.setdefault("reasoning_content", "")
    return result


def _thinking_fields(thinking: Sequence[Thinking], text: str) -> dict[str, Any]:
    """Return thinking in the field it came in; none if it came from elsewhere."""
    field = thinking[0].thinking_signature
    if field == _IN_CONTENT:
        return {"content": [*map(thinking_part, thinking), *([{"type": "text", "text": text}] if text else [])]}
    return {field: "\n".join(block.thinking for block in thinking)} if field in REASONING_FIELDS else {}


def thinking_part(block: Thinking) -> dict[str, Any]:
    """Return thinking as a part of the content, for the models that send it so."""
    return {"type": "thinking", "thinking": [{"type": "text", "text": block.thinking}]}


def _add_calls(answer: dict[str, Any], calls: Sequence[ToolCall]) -> None:
    answer["tool_calls"] = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": encode(call.arguments).decode()},
        }
        for call in calls
    ]
    signed = [call.thought_signature for call in calls if call.thought_signature]
    if signed and (details := [detail for text in signed if (detail := _reasoning_detail(text)) is not None]):
        answer["reasoning_details"] = details


def _reasoning_detail(signature: str) -> Any:
    try:
        return decode(signature)
    except DecodeError:
        return None


# -- caching -------------------------------------------------------------------------------------


def _add_caching(body: dict[str, Any], model: Model, options: StreamOptions, compat: ChatCompat) -> None:
    keep_long = options.cache_retention == "long" and compat.supports_long_cache_retention
    if options.session_id and ("api.openai.com" in model.base_url or keep_long):
        body["prompt_cache_key"] = options.session_id[:_MAX_CACHE_KEY]
    if keep_long:
        body["prompt_cache_retention"] = "24h"
    if compat.cache_control_format == "anthropic":
        mark: dict[str, Any] = {"type": "ephemeral"} | ({"ttl": "1h"} if keep_long else {})
        if body.get("tools"):
            body["tools"][-1]["cache_control"] = mark
        messages = body["messages"]
        if messages and isinstance(messages[0], dict) and messages[0]["role"] in ("system", "developer"):
            _mark_text(messages[0], mark)
        for message in from_the_end(messages):
            if message["role"] in ("user", "assistant", "tool") and _mark_text(message, mark):
                break


def _mark_text(message: dict[str, Any], mark: dict[str, Any]) -> bool:
    """Put a cache mark on the last text of a message, if it has one."""
    for part in reversed(message["content"] or []):
        if part["type"] == "text":
            part["cache_control"] = mark
            return True
    return False


# -- thinking ------------------------------------------------------------------------------------


class _Wish(msgspec.Struct, frozen=True):
    """How much the model is to think, in every form that a server may want."""

    on: bool
    word: str | None
    """The provider's word for the level."""
    is_listed: bool
    """Whether the model's own list has a word for the level."""
    budget: int
    """Tokens."""
    compat: ChatCompat

    @property
    def effort(self) -> dict[str, Any]:
        return {"reasoning_effort": self.word} if self.word and self.compat.supports_reasoning_effort else {}

    @property
    def effort_if_on(self) -> dict[str, Any]:
        return self.effort if self.on else {}

    @property
    def switch(self) -> dict[str, Any]:
        return {"type": "enabled" if self.on else "disabled"}


_THINKING: dict[str, Callable[[_Wish], dict[str, Any]]] = {
    "openai": lambda wish: wish.effort,
    "openrouter": lambda wish: {"reasoning": {"effort": wish.word or "none"}},
    "deepseek": lambda wish: {"thinking": wish.switch, **wish.effort_if_on},
    "zai": lambda wish: {"thinking": wish.switch, **wish.effort_if_on},
    "together": lambda wish: {"reasoning": {"enabled": wish.on}, **wish.effort_if_on},
    "qwen": lambda wish: {"enable_thinking": wish.on},
    "qwen-chat-template": lambda wish: {
        "chat_template_kwargs": {"enable_thinking": wish.on, "preserve_thinking": True}
    },
    "chat-template": lambda wish: {"chat_template_kwargs": _filled(wish.compat.chat_template_kwargs, wish)},
    "baseten": lambda wish: {
        "chat_template_args": _filled(wish.compat.chat_template_args, wish),
        **wish.effort_if_on,
    },
    "string-thinking": lambda wish: {"thinking": wish.word or "none"},
    "ant-ling": lambda wish: {"reasoning": {"effort": wish.word}} if wish.word and wish.is_listed else {},
}
"""Keys to add to a request, by `ChatCompat.thinking_format`."""


def _add_thinking(body: dict[str, Any], model: Model, options: StreamOptions, compat: ChatCompat) -> None:
    level = options.reasoning
    on = level != "off"
    word = effort_word(model, level)
    if not on and word is None:
        return  # this model cannot be told not to think
    if not on and word == "off":
        word = None  # the name of the level is not a word of the provider
    budget = thinking_budget(level, options.thinking_budgets) if on else 0
    is_listed = level in (model.thinking_level_map or {})
    body |= _THINKING[compat.thinking_format](_Wish(on, word, is_listed, budget, compat))
    if on and compat.thinking_token_budget_field:
        body[compat.thinking_token_budget_field] = budget


def _filled(values: dict[str, Any], wish: _Wish) -> dict[str, Any]:
    """Return chat template arguments with their placeholders filled in."""
    variables = {"thinking.enabled": wish.on, "thinking.effort": wish.word, "thinking.budget": wish.budget}
    filled = {}
    for key, value in values.items():
        if isinstance(value, dict) and "$var" in value:
            if value.get("omitWhenOff") and not wish.on:
                continue
            value = variables.get(value["$var"])
        filled[key] = value
    return filled


# -- reading chunks ------------------------------------------------------------------------------

_STOP_REASONS = {
    "stop": "stop",
    "end": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
    "content_filter": "error",
    "network_error": "error",
    "error": "error",
    "server_error": "error",
}


class _FunctionPiece(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCallPiece(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _FunctionPiece | None = None


class _ContentPart(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | list["_ContentPart"] | None = None
    """The thinking itself, or a list of its parts."""


class _ChoiceDelta(msgspec.Struct, gc=False):
    content: str | list[_ContentPart] | None = None
    refusal: Any = None
    """A text in place of the content, if the model does not answer."""
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    tool_calls: list[_ToolCallPiece] | None = None
    reasoning_details: list[dict[str, Any]] | None = None


class _Usage(Bill, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: UsageDetails | None = None
    completion_tokens_details: UsageDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _ChoiceDelta | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None


class _GroqExtras(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Chunk(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    x_groq: _GroqExtras | None = None


_read_chunk = event_decoder(_Chunk)
_NO_CHOICE = _Choice()


class ChatReader:
    """Folds chunks into a message."""

    def __init__(self, live: LiveMessage, compat: ChatCompat) -> None:
        self.done = False
        self._live = live
        self._compat = compat
        self._text: int | None = None
        """Index of the text block; there is at most one, and at most one of thinking."""
        self._thinking: int | None = None
        self._calls: list[_OpenCall] = []
        self._details: dict[str, str] = {}
        """Encrypted thinking by the id of the call it belongs to."""
        self._finish_reason: str | None = None

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        chunk = _read_chunk(data)
        live = self._live
        if live.response_id is None or chunk.model != live.model:  # once, for most servers
            live.identify(chunk.id, chunk.model)
        choice = chunk.choices[0] if chunk.choices else _NO_CHOICE
        usage = chunk.usage or choice.usage or (chunk.x_groq.usage if chunk.x_groq else None)
        if usage is not None:
            self._take_usage(usage)
        if chunk.error is not None:
            raise ModelError(_error_message(chunk.error))
        self._finish_reason = choice.finish_reason or self._finish_reason
        if choice.delta is not None:
            self._take_delta(choice.delta, out)

    def _take_delta(self, delta: _ChoiceDelta, out: list[StreamEvent]) -> None:
        live, content = self._live, delta.content or (delta.refusal if isinstance(delta.refusal, str) else None)
        if isinstance(content, list):
            self._take_thinking(_thinking_in(content), _IN_CONTENT, out)
            content = "".join(part.text or "" for part in content)
        if content:
            if self._text is None:
                out.append(start := live.start_text())
                self._text = start.content_index
            out.append(live.append(self._text, content))
        thinking = delta.reasoning_content or delta.reasoning or delta.reasoning_text
        if thinking:
            self._take_thinking(thinking, _field_of_thinking(delta), out)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._take_call(call, out)
        if delta.reasoning_details:
            self._take_details(delta.reasoning_details)

    def finish(self, out: list[StreamEvent]) -> str:
        live = self._live
        reason = self._finish_reason
        if reason is None and (self._compat.supports_finish_reason or not self.done):
            raise ModelError(_NO_FINISH_REASON if self.done else "Stream ended without finish_reason")
        for call in self._calls:
            call.block.signature = self._details.get(call.block.id)
        out.extend(live.end_all())
        if reason is None:
            return "toolUse" if self._calls else "stop"
        return live.stop_reason(reason, _STOP_REASONS, "Provider finish_reason")

    def _take_thinking(self, thinking: str, field: str, out: list[StreamEvent]) -> None:
        if thinking:
            if self._thinking is None:
                out.append(start := self._live.start_thinking(field))
                self._thinking = start.content_index
            out.append(self._live.append(self._thinking, thinking))

    def _take_call(self, piece: _ToolCallPiece, out: list[StreamEvent]) -> None:
        function = piece.function or _FunctionPiece()
        call = self._find_call(piece, function)
        if call is None:
            id = piece.id or f"call_{uuid4().hex[:24]}"
            out.append(self._live.start_tool_call(id, function.name or ""))
            block = self._live.blocks[-1]
            assert isinstance(block, LiveToolCall)
            call = _OpenCall(piece.index, len(self._live.blocks) - 1, block)
            self._calls.append(call)
        elif function.name and not call.block.name:
            call.block.name = function.name
        arguments = function.arguments
        if isinstance(arguments, dict):
            arguments = encode(arguments).decode()  # the server sent a value instead of JSON text
        if arguments:
            out.append(self._live.append(call.position, arguments))

    def _find_call(self, piece: _ToolCallPiece, function: _FunctionPiece) -> "_OpenCall | None":
        """Return the call a piece continues. Servers forget the index, the id, or repeat either of them."""
        for call in reversed(self._calls):
            if piece.index is not None:
                if piece.index == call.index:
                    is_new = piece.id and function.name and piece.id != call.block.id
                    return None if is_new else call
            elif piece.id:
                if piece.id == call.block.id:
                    return call
            elif not function.name:
                return call
        return None

    def _take_details(self, details: list[dict[str, Any]]) -> None:
        for detail in details:
            if detail.get("type") == "reasoning.encrypted" and detail.get("data") and detail.get("id"):
                self._details[detail["id"]] = encode(detail).decode()

    def _take_usage(self, reported: _Usage) -> None:
        details = reported.prompt_tokens_details or UsageDetails()
        take_usage(
            self._live,
            sent=reported.prompt_tokens,
            cache_read=details.cached_tokens or reported.prompt_cache_hit_tokens or reported.cached_tokens,
            cache_write=details.cache_write_tokens,
            output=reported.completion_tokens,
            reasoning=(reported.completion_tokens_details or UsageDetails()).reasoning_tokens,
            billed=reported.total(self._live),
        )


def _thinking_in(parts: list[_ContentPart]) -> str:
    found = (part.thinking for part in parts)
    return "".join(each if isinstance(each, str) else "".join(p.text or "" for p in each) for each in found if each)


def _field_of_thinking(delta: _ChoiceDelta) -> str:
    return next(name for name in REASONING_FIELDS if getattr(delta, name))


class _OpenCall(msgspec.Struct):
    index: int | None
    position: int
    """Index of its block in the message."""
    block: LiveToolCall


def _error_message(error: Any) -> str:
    if isinstance(error, dict) and isinstance(error.get("message"), str) and error["message"]:
        return str(error["message"])
    return error if isinstance(error, str) else encode(error).decode()
