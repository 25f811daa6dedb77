"""How servers depart from the protocol they claim to speak.

A model's own `compat` (from `models.json` or the catalogue) wins over the flags guessed from its provider and address.
"""

import re
from functools import cache
from typing import Any, Literal, Self, TypeAlias

import msgspec

from spindle.llm.errors import ModelError
from spindle.llm.stream import Request
from spindle.shapes.messages import AssistantMessage, Image, UserMessage
from spindle.shapes.model import Model

Flags: TypeAlias = dict[str, Any]
SessionAffinity: TypeAlias = Literal["openai", "openai-nosession", "openrouter"]
"""How a server is told which requests belong together."""


class Compat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Flags of the servers of one family. The defaults follow the protocol."""

    text_tool_calls: bool = True
    """`false`: tool calls that the model writes into its text stay text."""

    @classmethod
    def of(cls, model: Model) -> Self:
        """Return the flags of a model. Raises `ModelError` for a flag of the wrong kind."""
        explicit = {key: value for key, value in (model.compat or {}).items() if value is not None}
        try:
            return msgspec.convert(cls.guess(model) | explicit, cls)
        except msgspec.ValidationError as error:
            raise ModelError(f"Bad compat settings of model {model.provider}/{model.id}: {error}") from None

    @staticmethod
    def guess(model: Model) -> Flags:
        """Return the flags that the model's provider and address suggest."""
        return {}


class ChatCompat(Compat, frozen=True, kw_only=True):
    """Servers of the `openai-completions` family."""

    supports_store: bool = True
    """Knows `store`; Spindle always sends `false`."""
    supports_developer_role: bool = True
    """Takes the system prompt of a reasoning model in the role `developer`."""
    supports_reasoning_effort: bool = True
    """Knows `reasoning_effort`."""
    supports_usage_in_streaming: bool = True
    """Knows `stream_options`; without it, usage is read if the server sends it unasked."""
    supports_finish_reason: bool = True
    """`false`: the server gives no `finish_reason`; `[DONE]` or the proper end of the body ends the answer."""
    supports_strict_mode: bool = True
    """Knows `strict` of a tool; Spindle always sends `false`."""
    supports_long_cache_retention: bool = True
    """Can keep a prompt cache for a day, if `PI_CACHE_RETENTION=long` asks for that."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    """The name of the output limit."""
    requires_tool_result_name: bool = False
    """A tool result must name its tool."""
    requires_assistant_after_tool_result: bool = False
    """A user message may not follow a tool result directly."""
    requires_thinking_as_text: bool = False
    """Thinking goes back as text of the answer."""
    requires_reasoning_content_on_assistant_messages: bool = False
    """Every answer that goes back needs `reasoning_content`, an empty one if there was no thinking."""
    thinking_format: Literal[
        "openai",
        "openrouter",
        "deepseek",
        "together",
        "baseten",
        "zai",
        "qwen",
        "qwen-chat-template",
        "chat-template",
        "string-thinking",
        "ant-ling",
    ] = "openai"
    """The keys that turn thinking on and off, by the server that wants them so."""
    chat_template_kwargs: dict[str, Any] = {}
    """For `chat-template`: values, or `{"$var": …, "omitWhenOff": true}` with `thinking.enabled`, `thinking.effort` or
    `thinking.budget`."""
    chat_template_args: dict[str, Any] = {}
    """The same for `baseten`."""
    thinking_token_budget_field: str | None = None
    """The key in which this server wants the number of tokens to think."""
    cache_control_format: Literal["anthropic"] | None = None
    """Wants marks in the request for its prompt cache."""
    send_session_affinity_headers: bool = False
    """Wants headers that say which requests belong together."""
    session_affinity_format: SessionAffinity = "openai"
    """The names of those headers."""
    open_router_routing: dict[str, Any] = {}
    """Sent as `provider`: which providers OpenRouter may use."""
    vercel_gateway_routing: dict[str, Any] = {}
    """Sent as `providerOptions.gateway`."""
    zai_tool_stream: bool = False
    """Sends arguments of tools piece by piece if `tool_stream` asks for that."""
    vllm_priority: int | float | None = None
    """Sent as `priority`."""

    @staticmethod
    def guess(model: Model) -> Flags:
        name, flags = _server_of(model.provider.lower(), model.base_url.lower())
        return flags if name != "openrouter" else flags | _behind_openrouter(model.id)


class MessagesCompat(Compat, frozen=True, kw_only=True):
    """Servers of the `anthropic-messages` family."""

    supports_eager_tool_input_streaming: bool = True
    """Knows `eager_input_streaming` of a tool; else a beta header asks for the same."""
    supports_long_cache_retention: bool = True
    """Can keep a prompt cache for an hour, if `PI_CACHE_RETENTION=long` asks for that."""
    supports_cache_control_on_tools: bool = True
    """Takes a cache mark on the last tool."""
    force_adaptive_thinking: bool = False
    """Takes an effort instead of a number of tokens to think."""
    allow_empty_signature: bool = False
    """Takes thinking back without a signature; else it goes back as text."""
    send_session_affinity_headers: bool = False
    """Wants headers that say which requests belong together."""
    session_affinity_format: SessionAffinity = "openai"
    """The names of those headers."""

    @staticmethod
    def guess(model: Model) -> Flags:
        if model.provider != "openrouter" and "openrouter.ai" not in model.base_url:
            return {}
        return {"sendSessionAffinityHeaders": True, "sessionAffinityFormat": "openrouter"}


class ResponsesCompat(Compat, frozen=True, kw_only=True):
    """Servers of the `openai-responses` family."""

    supports_reasoning_effort: bool = True
    """Knows `reasoning`."""
    supports_developer_role: bool = True
    """Takes the system prompt of a reasoning model in the role `developer`."""
    supports_long_cache_retention: bool = True
    """Can keep a prompt cache for a day, if `PI_CACHE_RETENTION=long` asks for that."""
    session_affinity_format: SessionAffinity = "openai"
    """The names of the headers that say which requests belong together."""

    @staticmethod
    def guess(model: Model) -> Flags:
        is_openrouter = model.provider == "openrouter" or "openrouter.ai" in model.base_url
        return {"sessionAffinityFormat": "openrouter"} if is_openrouter else {}


@cache
def _server_of(provider: str, url: str) -> tuple[str, Flags]:
    """Return the name and the flags of the first family that a server belongs to."""
    for name, address, flags in _SERVERS:
        if re.fullmatch(name, provider) or re.search(address, url):
            return name, flags
    return "", _BASIC if re.search(_PRIVATE_HOST, url) else {}


def session_headers(session: str, form: SessionAffinity) -> dict[str, str]:
    """Return the headers that tell a server like OpenAI's which requests belong together."""
    if form == "openrouter":
        return {"x-session-id": session}
    return {"x-client-request-id": session} | ({"session_id": session} if form == "openai" else {})


COPILOT = "github-copilot"


def copilot_headers(request: Request) -> dict[str, str]:
    """Return the headers that tell GitHub Copilot who began a request, and whether it has images."""
    last = request.messages[-1] if request.messages else None
    agent = last is not None and not isinstance(last, UserMessage)
    headers = {"x-initiator": "agent" if agent else "user", "openai-intent": "conversation-edits"}
    contents = (message.content for message in request.messages if not isinstance(message, AssistantMessage))
    if any(isinstance(block, Image) for content in contents if not isinstance(content, str) for block in content):
        headers["copilot-vision-request"] = "true"
    return headers


# -- known servers ---------------------------------------------------------------------------------

_PLAIN: Flags = {"supportsStore": False, "supportsDeveloperRole": False}
_BASIC: Flags = {**_PLAIN, "maxTokensField": "max_tokens"}
_NO_EFFORT: Flags = {**_BASIC, "supportsReasoningEffort": False, "supportsStrictMode": False}
# Provider id, or part of the address → flags. The first match counts.
_SERVERS: tuple[tuple[str, str, Flags], ...] = (
    (
        r"openrouter",
        r"openrouter\.ai",
        {
            "supportsDeveloperRole": False,
            "thinkingFormat": "openrouter",
            "sendSessionAffinityHeaders": True,
            "sessionAffinityFormat": "openrouter",
        },
    ),
    (
        r"deepseek",
        r"deepseek\.com",
        {**_BASIC, "thinkingFormat": "deepseek", "requiresReasoningContentOnAssistantMessages": True},
    ),
    (r"xai", r"api\.x\.ai", {**_PLAIN, "supportsReasoningEffort": False}),
    (r"cerebras", r"cerebras\.ai", _PLAIN),
    (r"zai|zai-.*|zhipu.*", r"api\.z\.ai|bigmodel\.cn", {**_NO_EFFORT, "thinkingFormat": "zai"}),
    (r"together|togetherai", r"api\.together\.", {**_NO_EFFORT, "thinkingFormat": "together"}),
    (r"qwen.*|dashscope|alibaba.*", r"dashscope", {**_BASIC, "thinkingFormat": "qwen"}),
    (r"moonshot.*|kimi.*", r"api\.moonshot\.", _NO_EFFORT),
    (r"nvidia", r"api\.nvidia\.com", _NO_EFFORT),
    (r"cloudflare-.*", r"gateway\.ai\.cloudflare\.com|api\.cloudflare\.com", _NO_EFFORT),
    (r"chutes", r"chutes\.ai", _NO_EFFORT),
    (r"snowflake.*", r"snowflakecomputing\.(?:com|cn)", {**_BASIC, "supportsFinishReason": False}),
    (r"mistral.*", r"api\.mistral\.ai", {**_BASIC, "supportsUsageInStreaming": False, "requiresToolResultName": True}),
    (r"opencode.*", r"opencode\.ai", _PLAIN),
    (r"ant-ling", r"api\.ant-ling\.com", {**_NO_EFFORT, "thinkingFormat": "ant-ling"}),
)
# Local servers rarely need these keys and often reject unknown ones; all of them take a reasoning effort.
_PRIVATE_HOST = (
    r"://(?:[^/@]*@)?(?:localhost|[^/:]+\.(?:local|localhost|internal|lan)|host\.docker\.internal"
    r"|127\.[\d.]+|0\.0\.0\.0|10\.[\d.]+|192\.168\.[\d.]+|172\.(?:1[6-9]|2\d|3[01])\.[\d.]+|\[::1\])(?=[:/]|$)"
)


def _behind_openrouter(model_id: str) -> Flags:
    if model_id.startswith("anthropic/"):
        return {"supportsDeveloperRole": True, "cacheControlFormat": "anthropic"}
    return {"supportsDeveloperRole": model_id.startswith("openai/")}
