"""The `google-generative-ai` API.

In its stream, tool calls come whole, or, if a request asks for that, value by value; a block of text or thinking ends
when the kind changes.
"""

import re
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

import msgspec

from spindle.llm.cost import effort_word, output_limit, take_usage
from spindle.llm.errors import ModelError, error_words
from spindle.llm.exchange import Call, event_decoder, over_http
from spindle.llm.history import with_results_together
from spindle.llm.live import LiveMessage, LiveThinking, LiveToolCall
from spindle.llm.stream import ModelMessage, Request, StreamOptions
from spindle.shapes.codec import encode
from spindle.shapes.messages import AssistantMessage, Image, Text, Thinking, ToolResultMessage, blocks_of, text_of
from spindle.shapes.model import Model
from spindle.shapes.pieces import StreamEvent

_LEVELS = ("minimal", "low", "medium", "high")
_BUDGETS = (
    # part of the id → tokens per level, and the least that can be asked for
    ("2.5-flash-lite", (512, 2048, 8192, 24576), 0),
    ("2.5-flash", (128, 2048, 8192, 24576), 0),
    ("2.5-pro", (128, 2048, 8192, 32768), 128),
)


@over_http
def stream(model: Model, request: Request, options: StreamOptions, live: LiveMessage) -> Call:
    return Call(
        url=f"{model.base_url.rstrip('/')}/models/{model.id}:streamGenerateContent?alt=sse",
        headers={"x-goog-api-key": options.api_key} if options.api_key else {},
        body=google_body(model, request, options),
        reader=GoogleReader(live),
    )


def google_body(model: Model, request: Request, options: StreamOptions) -> dict[str, Any]:
    """Return the body; the history must be clean (`transform_messages`)."""
    config: dict[str, Any] = {"maxOutputTokens": output_limit(model, request, options)}
    if model.reasoning and (thinking := _thinking_config(model, options)):
        config["thinkingConfig"] = thinking
    body: dict[str, Any] = {
        "contents": request.memory.json("google", request.messages, partial(_contents, model), model),
        "generationConfig": config | (model.sampling_params or {}),
    }
    if request.system_prompt:
        body["systemInstruction"] = {"parts": [{"text": request.system_prompt}]}
    if request.tools:
        declarations = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
            for tool in request.tools
        ]
        body["tools"] = [{"functionDeclarations": declarations}]
    return body


def _is_new(model: Model) -> bool:
    """Say whether the model takes call ids, images in results and thinking levels."""
    return re.search(r"gemini-(?:[3-9]|\d\d)|gemini-.*-latest", model.id) is not None


# -- contents ------------------------------------------------------------------------------------


def _contents(model: Model, history: Sequence[ModelMessage], _: int) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = []
    for message in with_results_together(history):
        if isinstance(message, list):
            results = [_result_part(model, result) for result in message]
            contents.append({"role": "user", "parts": [part for part, _ in results]})
            if images := [image for _, separate in results for image in separate]:
                contents.append({"role": "user", "parts": [{"text": "Tool result image:"}, *images]})
        elif isinstance(message, AssistantMessage):
            if parts := _answer_parts(model, message):
                contents.append({"role": "model", "parts": parts})
        elif message.content:
            contents.append({"role": "user", "parts": [*map(_user_part, blocks_of(message.content))]})
    return contents


def _user_part(block: Text | Image) -> dict[str, Any]:
    return {"text": block.text} if isinstance(block, Text) else _image(block)


def _image(block: Image) -> dict[str, Any]:
    return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


def _answer_parts(model: Model, message: AssistantMessage) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, Text):
            if block.text.strip():
                parts.append({"text": block.text, **_signature(block.text_signature)})
        elif isinstance(block, Thinking):
            if block.thinking.strip():
                parts.append({"thought": True, "text": block.thinking, **_signature(block.thinking_signature)})
        else:
            arguments = block.arguments if isinstance(block.arguments, dict) else {}
            call = {"name": block.name, "args": arguments, **_call_id(model, block.id)}
            parts.append({"functionCall": call, **_signature(block.thought_signature)})
    calls = [part for part in parts if "functionCall" in part]
    if calls and _is_new(model) and not any("thoughtSignature" in part for part in calls):
        calls[0]["thoughtSignature"] = _NO_SIGNATURE
    return parts


def _call_id(model: Model, id: str) -> dict[str, str]:
    return {"id": id} if _is_new(model) or model.id.startswith(("claude-", "gpt-oss-")) else {}


_NO_SIGNATURE = "skip_thought_signature_validator"
"""What Google documents for calls that another model has made; without it they are refused."""


def _signature(signature: str | None) -> dict[str, str]:
    """Return a signature if it looks like Google's: the server refuses those of other APIs."""
    valid = signature and len(signature) % 4 == 0 and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", signature)
    return {"thoughtSignature": signature} if signature and valid else {}


def _result_part(model: Model, message: ToolResultMessage) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the part of a tool result, and images that do not fit into it."""
    images = [_image(block) for block in message.content if isinstance(block, Image)]
    text = text_of(message.content, "\n") or ("(see attached image)" if images else "")
    response: dict[str, Any] = {
        "name": message.tool_name,
        "response": {"error" if message.is_error else "output": text},
        **_call_id(model, message.tool_call_id),
    }
    if images and _is_new(model):
        response["parts"] = images
        images = []
    return {"functionResponse": response}, images


# -- thinking ------------------------------------------------------------------------------------


def _thinking_config(model: Model, options: StreamOptions) -> dict[str, Any] | None:
    level = options.reasoning
    word = effort_word(model, level)
    if level == "off" and word is None:
        return None
    if _is_new(model) or "gemma-4" in model.id:
        if level != "off":
            return {"includeThoughts": True, "thinkingLevel": (word if word in _LEVELS else "high").upper()}
        # These models cannot be told not to think; at the lowest level they think little and do not show it.
        return {"thinkingLevel": "LOW" if "pro" in model.id else "MINIMAL"}
    budgets, least = next(((b, low) for part, b, low in _BUDGETS if part in model.id), (None, 0))
    if level == "off":
        return {"thinkingBudget": least}
    named = level if level in _LEVELS else "high"
    budget = options.thinking_budgets.get(named) or (budgets[_LEVELS.index(named)] if budgets else -1)
    return {"includeThoughts": True, "thinkingBudget": budget}


# -- reading chunks ------------------------------------------------------------------------------

_STOP_REASONS = {"MAX_TOKENS": "length"} | dict.fromkeys(
    (
        *("SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"),
        *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"),
    ),
    "error",
)
_call_numbers = count(1)


class _PartialArgument(msgspec.Struct, gc=False, rename="camel"):
    """A value in the arguments of a call, or the next piece of a text."""

    json_path: str = ""
    string_value: str | None = None
    number_value: int | float | None = None
    bool_value: bool | None = None
    """No value at all stands for null."""

    @property
    def value(self) -> Any:
        values = (self.string_value, self.number_value, self.bool_value)
        return next((value for value in values if value is not None), None)


class _FunctionCall(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    args: Any = None
    id: str | None = None
    partial_args: list[_PartialArgument] | None = None
    will_continue: bool | None = None


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = False
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    response_id: str | None = None
    model_version: str | None = None
    prompt_feedback: _Feedback | None = None
    error: Any = None


_read_chunk = event_decoder(_Chunk)


class GoogleReader:
    """Folds chunks into a message."""

    def __init__(self, live: LiveMessage) -> None:
        self.done = False
        self._live = live
        self._open: int | None = None
        """The block that is being written, if any."""
        self._arguments: _Arguments | None = None
        """Those of the call that is being written, if it is one."""
        self._finish_reason: str | None = None

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        if data == b"[DONE]":  # belongs to another API, but servers that speak both send it
            return
        chunk = _read_chunk(data)
        if chunk.usage_metadata is not None:
            self._take_usage(chunk.usage_metadata)
        if chunk.error is not None:
            code = chunk.error.get("code") if isinstance(chunk.error, dict) else None
            words = error_words(encode(chunk.error).decode())
            raise ModelError(f"{code} {words}" if isinstance(code, int) else words)
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            raise ModelError(f"Provider stopped with: {chunk.prompt_feedback.block_reason}")
        self._live.identify(chunk.response_id, chunk.model_version)
        if not chunk.candidates:
            return
        candidate = chunk.candidates[0]
        self._finish_reason = candidate.finish_reason or self._finish_reason
        for part in (candidate.content.parts if candidate.content else None) or []:
            if part.function_call is not None and (part.function_call.name or self._arguments is not None):
                self._take_call(part.function_call, part.thought_signature, out)
            elif part.text is not None:
                self._take_text(part, out)

    def finish(self, out: list[StreamEvent]) -> str:
        live, reason = self._live, self._finish_reason
        if reason is None:
            raise ModelError("Stream ended without finishReason")
        self._close(out)
        out.extend(live.end_all())
        if reason == "STOP":
            live.raw_stop_reason = reason
            return "toolUse" if live.calls_tools else "stop"
        return live.stop_reason(reason, _STOP_REASONS, "Provider stopped with")

    def _take_text(self, part: _Part, out: list[StreamEvent]) -> None:
        live = self._live
        if self._open is not None and isinstance(live.blocks[self._open], LiveThinking) != bool(part.thought):
            self._close(out)
        if self._open is None:
            if not part.text and not part.thought_signature:
                return
            start = live.start_thinking() if part.thought else live.start_text()
            self._open = start.content_index
            out.append(start)
        if part.thought_signature:
            live.blocks[self._open].signature = part.thought_signature
        if part.text:
            out.append(live.append(self._open, part.text))

    def _take_call(self, call: _FunctionCall, signature: str | None, out: list[StreamEvent]) -> None:
        live = self._live
        if call.name:
            self._close(out)
            id, known = call.id, {block.id for block in live.blocks if isinstance(block, LiveToolCall)}
            if not id or id in known:
                id = f"{call.name}_{int(time.time() * 1000)}_{next(_call_numbers)}"
            out.append(start := live.start_tool_call(id, call.name))
            self._open, self._arguments = start.content_index, _Arguments()
        position, arguments = self._open, self._arguments
        assert position is not None and arguments is not None
        live.blocks[position].signature = signature or live.blocks[position].signature
        for piece in call.partial_args or []:
            out.append(live.append(position, arguments.put(piece)))
        if call.args:
            self._arguments = None
            out.append(live.append(position, encode(call.args).decode()))
        if not call.will_continue:
            self._close(out)

    def _close(self, out: list[StreamEvent]) -> None:
        if self._open is not None:
            if self._arguments is not None:
                out.append(self._live.append(self._open, self._arguments.end()))
                self._arguments = None
            out.append(self._live.end(self._open))
            self._open = None

    def _take_usage(self, reported: _Usage) -> None:
        take_usage(
            self._live,
            sent=reported.prompt_token_count,
            cache_read=reported.cached_content_token_count,
            output=(reported.candidates_token_count or 0) + (reported.thoughts_token_count or 0),
            reasoning=reported.thoughts_token_count,
        )


_STEP = re.compile(r"""\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]|\.?([^.\[\]]+)""")


class _Place(msgspec.Struct):
    """A list or object that is open."""

    step: str | int
    """Its key or index in the one around it."""
    end: str
    is_empty: bool = True


class _Arguments:
    """Writes the JSON of arguments that come value by value, each with its path: `$.edits[0].newText`.

    Paths come in the order in which the model writes, so every piece can be passed on at once.
    """

    def __init__(self) -> None:
        self._places: list[_Place] = []
        """From the arguments themselves to the innermost place."""
        self._text: list[str | int] | None = None
        """Path of the text that is open."""

    def put(self, piece: _PartialArgument) -> str:
        """Return the JSON that continues what was returned before."""
        path = [
            int(index) if index else name or quoted or plain
            for index, name, quoted, plain in _STEP.findall("$" + piece.json_path.removeprefix("$"))
        ]
        value = piece.value
        text = encode(value).decode()
        if isinstance(value, str):
            text = text[:-1]  # it may go on
            if path == self._text:
                return text[1:]
        shared = 0
        while shared < min(len(self._places), len(path) - 1) and self._places[shared].step == path[shared]:
            shared += 1
        written = self._close(shared)
        for depth in range(shared, len(path) - 1):
            is_list = isinstance(path[depth + 1], int)
            written += self._begin(path[depth]) + "[{"[not is_list]
            self._places.append(_Place(path[depth], "]}"[not is_list]))
        self._text = path if isinstance(value, str) else None
        return written + self._begin(path[-1]) + text

    def end(self) -> str:
        """Return the rest of the JSON."""
        return self._close(0) if self._places else "{}"

    def _begin(self, step: str | int) -> str:
        """Return what comes before a value."""
        if not self._places:
            return ""
        comma = "" if self._places[-1].is_empty else ","
        self._places[-1].is_empty = False
        return comma if isinstance(step, int) else f"{comma}{encode(step).decode()}:"

    def _close(self, depth: int) -> str:
        """Return the ends of an open text and of all places beyond a depth."""
        ends = "".join(place.end for place in reversed(self._places[depth:]))
        del self._places[depth:]
        quote = "" if self._text is None else '"'
        self._text = None
        return quote + ends
