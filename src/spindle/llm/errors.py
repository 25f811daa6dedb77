"""What went wrong with a model, in words, and what those words mean.

The text of a failed answer is all that survives of the failure, so it keeps status and body, never a secret,
and the decisions to retry or to shorten the context are read from it.
"""

import re
from collections.abc import Iterable, Mapping

from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.messages import AssistantMessage

MAX_BODY_CHARS = 4000
_SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "x-amz-security-token"}
)
_MIN_SECRET_CHARS = 8  # dummy keys of local servers ("none", "ollama") are ordinary words


class ModelError(Exception):
    """The model's side failed. The text is fit to show and becomes the error message of the answer."""


class BadEventError(ModelError):
    """An event that cannot be read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(f"The server sent an event that cannot be read: {data[:200].decode('utf-8', 'replace')}")


# -- texts ---------------------------------------------------------------------------------------


def error_object_text(status: int, body: str) -> str:
    """Return `STATUS: {error object}`, or `STATUS body` if the body holds none."""
    body = body.strip()
    if not body:
        return f"{status} status code (no body)"
    try:
        value = decode(body)
    except DecodeError:
        return f"{status} {limit_body(body)}"
    error = value.get("error") if isinstance(value, dict) else None
    return f"{status}: {limit_body(encode(value if error is None else error).decode())}"


def limit_body(body: str) -> str:
    """Cut a long error body and say how much is missing."""
    if len(body) <= MAX_BODY_CHARS:
        return body
    return f"{body[:MAX_BODY_CHARS]}... [truncated {len(body) - MAX_BODY_CHARS} chars]"


def secrets_of(api_key: str | None, headers: Mapping[str, str]) -> set[str]:
    """Return what must not show up in a text: the key and the values of headers that carry credentials."""
    found = {api_key or ""}
    for name, value in headers.items():
        if name.lower() in _SECRET_HEADERS:
            found |= {value, value.rpartition(" ")[2]}
    return {secret for secret in found if len(secret) >= _MIN_SECRET_CHARS}


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Blank out secrets that a server echoed."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "[hidden]")
    return text


# -- meanings ------------------------------------------------------------------------------------


_TRANSIENT = (
    # load
    "overloaded|throttling",
    "currently experiencing high demand|rate.?limit|too many requests|ResourceExhausted|retry delay",
    "you can retry your request|please retry your request|try your request again",
    # the server
    "service.?unavailable|server.?error|internal.?error|model.?stream.?error|provider.?returned.?error",
    "exceeded request buffer limit while retrying upstream",
    # the way there
    "network.?error|connection.?(?:error|refused|lost)|other side closed|fetch failed|upstream.?connect",
    "reset before headers|socket hang up|socket connection was closed|websocket.?(?:closed|error)",
    "getaddrinfo|ENOTFOUND|EAI_AGAIN|http2 request did not get a response|timed? out|timeout",
    # a cut answer
    "terminated|ended without|stream ended before (?:message_stop|a terminal response event)",
)
PASSING_STATUSES = frozenset((408, 425, 429, 500, 502, 503, 504, 507, 520, 521, 522, 523, 524, 529))
_PASSING = "|".join(map(str, sorted(PASSING_STATUSES)))
_STATUS = r"^\W*([1-5]\d\d)\b|\bAPI error \(([1-5]\d\d)\)"
"""Where our own texts have the status of the response."""
_NO_MONEY = (
    "GoUsageLimitError|FreeUsageLimitError|Monthly usage limit reached|ChatGPT usage limit",
    "available balance|insufficient_quota|out of budget|quota exceeded|billing",
)
_TOO_LONG = (
    "prompt (?:is )?too long",  # Anthropic, Ollama
    "request_too_large",
    "input is too long for requested model",  # Bedrock
    "exceeds the context window",  # OpenAI
    r"exceeds (?:the )?(?:model'?s )?maximum context length (?:of [\d,]+|\([\d,]+\))",  # LiteLLM
    "input token count.*exceeds the maximum",  # Gemini
    r"maximum prompt length is \d+",  # xAI
    "reduce the length of the messages",  # Groq
    r"maximum context length is \d+ tokens",  # OpenRouter
    r"exceeds (?:the )?maximum allowed input length of [\d,]+ tokens",
    r"input \(\d+ tokens\) is longer than the model's context length \(\d+ tokens\)",  # Together
    r"exceeds the limit of \d+",  # Copilot
    "exceeds the available context size",  # llama.cpp
    "greater than the context length",  # LM Studio
    "context window exceeds limit",  # MiniMax
    "exceeded model token limit",  # Kimi
    r"too large for model with \d+ maximum context length",  # Mistral
    "model_context_window_exceeded",  # z.ai
    "range of input length should be",  # DashScope
    r"prompt has [\d,]+ tokens, but the configured context size is [\d,]+ tokens",  # DS4
    "context[_ ]length[_ ]exceeded",
    "too many tokens",
    "token limit exceeded",
)
_TOO_FAST = ("^Throttling error:", "^Service unavailable:", "rate limit", "too many requests")
_CEREBRAS_TOO_LONG = (r"^(?:400|413)\s*(?:status code\s*)?\(no body\)",)


def is_retryable(text: str, status: int | None = None) -> bool:
    """Tell whether a failure is a passing trouble, so that the same request may succeed later.

    The status decides. Without one, the words of the error do: its type or code is among them.
    """
    if _says(text, _NO_MONEY):
        return False
    if status is not None:
        return status in PASSING_STATUSES
    return _has_passing_status(text) or _says(text, _TRANSIENT)


def _has_passing_status(text: str) -> bool:
    """Look for the status where we put it; only a text without one may name it anywhere, as a number of its own."""
    if found := re.search(_STATUS, text):
        return re.fullmatch(_PASSING, found[1] or found[2]) is not None
    return re.search(rf"(?<![\d.,])(?:{_PASSING})(?![\d]|[.,]\d)", text) is not None


def is_overflow(message: AssistantMessage, context_window: int) -> bool:
    """Tell whether an answer shows that the conversation has outgrown the model's context window."""
    sent = message.usage.input + message.usage.cache_read
    if message.stop_reason == "error":
        text = message.error_message or ""
        no_body = message.provider == "cerebras" and _says(text, _CEREBRAS_TOO_LONG)
        return (no_body or _says(text, _TOO_LONG)) and not _says(text, _TOO_FAST)
    if message.stop_reason == "stop":
        return 0 < context_window < sent
    if message.stop_reason == "length":
        return context_window > 0 and message.usage.output == 0 and sent >= 0.99 * context_window
    return False


def _says(text: str, fragments: tuple[str, ...]) -> bool:
    # `re` compiles the joined expression on first use and keeps it: importing this module stays cheap.
    return re.search("|".join(fragments), text, re.IGNORECASE) is not None
