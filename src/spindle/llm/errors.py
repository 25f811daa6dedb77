"""Error texts of model calls, and what they mean.

A session stores only the text of a failure. So the text holds the status and the server's own words, never a secret,
and it decides whether to retry or to shorten the context.
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


class ConnectError(Exception):
    """No answer came: the server could not be reached or hung up first."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final
        """Whether trying again is useless."""


class IdleTimeoutError(Exception):
    """The server was silent for too long."""

    def __init__(self, seconds: float | None) -> None:
        super().__init__(f"Request timed out: no data for {seconds:g} s")


# -- texts ---------------------------------------------------------------------------------------


_MEANINGS = {
    400: "the request was refused",
    402: "the account has no credit",
    404: "there is no such model or address",
    405: "this address takes no such requests",
    407: "the proxy wants another login",
    408: "the request took too long to arrive",
    413: "the request is too big",
    422: "the request was refused",
    429: "it takes no more requests for now",
    529: "it is overloaded",
}
_KEYS = {
    None: "the server wants a key",
    "not needed": "the server wants a key",
    "--api-key": "the key given with --api-key",
    "extension": "the key of the extension",
    "auth.json (login)": "the login in auth.json",
}
"""How to name a key by its source, where "the key in X" would be wrong."""


def refusal_text(status: int, body: str, provider: str, key_source: str | None = None) -> str:
    """Say what a refusal means, who refused and what the server said: `STATUS from PROVIDER: meaning: its words`.

    Type and code of the error stay in the text, because its meaning is read from them later.
    """
    words = error_words(body) or "(no body)"
    separator = " " if words == "(no body)" else ": "
    return f"{status} from {provider}: {_meaning(status, key_source)}{separator}{words}"


def _meaning(status: int, key_source: str | None) -> str:
    if status in (401, 403):
        key = _KEYS.get(key_source, f"the key in {key_source}")
        if key_source in (None, "not needed"):
            return key
        return f"{key} was refused" if status == 401 else f"{key} does not allow this"
    if status in _MEANINGS:
        return _MEANINGS[status]
    return "the server failed" if status >= 500 else "the request was refused"


def error_words(body: str) -> str:
    """Return what the body of an error says: the message in it with type and code, a page's title, or all of it."""
    body = body.strip()
    try:
        value = decode(body) if body else None
    except DecodeError:
        title = re.search(r"(?is)<title[^>]*>\s*(.*?)\s*</title>", body)
        return limit_body(" ".join(title[1].split()) if title and title[1] else body)
    return limit_body(_said(value) or (encode(value).decode() if body else ""))


def _said(value: object) -> str | None:
    """Return the message in an error object, wherever the server puts it."""
    if isinstance(value, list) and value:
        return _said(value[0])
    if isinstance(value, str):
        return value or None
    if not isinstance(value, dict):
        return None
    message = next((said for key in ("message", "error", "detail", "msg") if (said := _said(value.get(key)))), None)
    if message is None:
        return None
    metadata = value.get("metadata")  # OpenRouter: the words of the provider behind it
    if isinstance(metadata, dict) and isinstance(raw := metadata.get("raw"), str) and raw:
        message += f": {error_words(raw)}"
    marks = dict.fromkeys(mark for key in ("code", "type", "status") if isinstance(mark := value.get(key), str))
    added = ", ".join(mark for mark in marks if mark and mark != "error" and mark not in message)
    return f"{message} ({added})" if added else message


def limit_body(body: str) -> str:
    """Cut a long error body and say how much is missing."""
    if len(body) <= MAX_BODY_CHARS:
        return body
    return f"{body[:MAX_BODY_CHARS]}... [truncated {len(body) - MAX_BODY_CHARS} chars]"


def secrets_of(api_key: str | None, headers: Mapping[str, str]) -> set[str]:
    """Return the secrets that no text may show: the key and the values of headers that carry credentials."""
    found = {api_key or ""}
    for name, value in headers.items():
        if name.lower() in _SECRET_HEADERS:
            found |= {value, value.rpartition(" ")[2]}
    return {secret.strip() for secret in found if len(secret.strip()) >= _MIN_SECRET_CHARS}


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
    # the network
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
_BAD_KEY = ("API_KEY_INVALID|invalid.?api.?key|incorrect api key|authentication_error|UnrecognizedClientException",)
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
_CEREBRAS_TOO_LONG = (r"^(?:400|413)(?:\s*(?:status code\s*)?| from [^:]*: [^:]*)\(no body\)",)


def is_retryable(text: str, status: int | None = None) -> bool:
    """Tell whether a failure is temporary, so that the same request may succeed later.

    The status decides. Without one, the words of the error do: its type or code is among them.
    """
    if _says(text, _NO_MONEY):
        return False
    if status is not None:
        return status in PASSING_STATUSES
    return _has_passing_status(text) or _says(text, _TRANSIENT)


def status_in(text: str) -> int | None:
    """Return the status of the response that an error text of ours is about, if it has one."""
    found = re.search(_STATUS, text)
    return int(found[1] or found[2]) if found else None


def is_refused_key(text: str) -> bool:
    """Tell whether a server refused the key, or what the key may do: only another key or login helps."""
    status = status_in(text)
    return status in (401, 403) or (status in (None, 400) and _says(text, _BAD_KEY))


_CAUSES_BY_STATUS = {
    **dict.fromkeys((401, 403), "key"),
    402: "quota",
    404: "model",
    408: "timeout",
    413: "context",
    429: "rate_limit",
    503: "overload",
    504: "timeout",
    524: "timeout",
    529: "overload",
}
_CAUSES_BY_ERROR = {"ConnectError": "connection", "IdleTimeoutError": "timeout", "MissingCredentials": "key"}
_CAUSES_BY_WORDS = {
    "key": _BAD_KEY,
    "region": (r"not (?:available|supported) in your (?:region|country|location)|unsupported_country|user location",),
    "model": (
        r"model.?not.?found|unknown model|no such model|model .*does not exist|model .*(?:retired|deprecated)",
        "invalid model|model identifier is invalid|deployment.?not.?found",
    ),
}
_REFUSES_CONTENT = (
    "refusal|refused to answer|content.?filter|content.?policy|safety|blocklist|prohibited|recitation|spii|guardrail",
    "ResponsibleAIPolicy|promptFeedback|moderation",
)


def cause_of(message: AssistantMessage, status: int | None, error: str, context_window: int) -> str | None:
    """Return in one word why a model could not answer, if another model may; None: no other model should be asked.

    `status` and `error` are those of the failure. Another model is not asked to say what one has refused to say, nor to
    take a request that is wrong.
    """
    text = message.error_message or ""
    if is_overflow(message, context_window):
        return "context"
    if _says(message.raw_stop_reason or "", _REFUSES_CONTENT):
        return None
    status = status or status_in(text)
    if status != 401 and _says(text, _NO_MONEY):
        return "quota"
    if status in (None, 400, 403, 422):
        for cause, words in _CAUSES_BY_WORDS.items():
            if _says(text, words):
                return cause
        if _says(text, _REFUSES_CONTENT):
            return None
    if status is not None:
        return _CAUSES_BY_STATUS.get(status, "server" if status >= 500 else None)
    if error in _CAUSES_BY_ERROR:
        return _CAUSES_BY_ERROR[error]
    if message.content:
        return "broken"
    return "server" if is_retryable(text) or error in _UNREADABLE else None


_UNREADABLE = ("BadEventError", "UnreadableError", "LocalModelError")
"""Errors of servers, and of models on this disk, that say nothing for us to read."""


def _has_passing_status(text: str) -> bool:
    """Look for the status where we put it; if there is none, for a separate number anywhere in the text."""
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
