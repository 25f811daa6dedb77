"""The `openai-codex-responses` API: the Responses API behind a ChatGPT subscription.

The system prompt travels as `instructions`, the output is not limited, and a header names the account, which is
read from the token.
"""

import time
from base64 import urlsafe_b64decode
from typing import Any

from msgspec.structs import replace

from spindle.llm.compat import ResponsesCompat
from spindle.llm.errors import ModelError, limit_body
from spindle.llm.exchange import Call, over_http
from spindle.llm.live import LiveMessage
from spindle.llm.openai_responses import ResponsesReader, responses_body
from spindle.llm.stream import Request, StreamOptions
from spindle.shapes.codec import DecodeError, decode
from spindle.shapes.model import Model

_CLAIM = "https://api.openai.com/auth"
_LIMITS = ("usage_limit_reached", "usage_not_included", "rate_limit_exceeded")


@over_http
def stream(model: Model, request: Request, options: StreamOptions, live: LiveMessage) -> Call:
    token = options.api_key or ""
    account = account_id(token)
    if account is None:
        raise ModelError("This is no token of a ChatGPT sign-in. Sign in with: spindle login openai-codex")
    headers = {
        "authorization": f"Bearer {token}",
        "chatgpt-account-id": account,
        "openai-beta": "responses=experimental",
        "originator": "spindle",
        "accept": "text/event-stream",
    }
    if options.session_id:
        headers |= {"session-id": options.session_id, "x-client-request-id": options.session_id}
    return Call(
        url=f"{model.base_url.rstrip('/').removesuffix('/responses').removesuffix('/codex')}/codex/responses",
        headers=headers,
        body=codex_body(model, request, options),
        reader=ResponsesReader(live),
        error_text=_error_text,
    )


def codex_body(model: Model, request: Request, options: StreamOptions) -> dict[str, Any]:
    """Return the body; the history must be clean (`transform_messages`)."""
    body = responses_body(model, replace(request, system_prompt=""), options, ResponsesCompat.of(model))
    for name in ("max_output_tokens", "prompt_cache_retention"):
        body.pop(name, None)
    return body | {
        "instructions": request.system_prompt or "Be helpful.",
        "text": {"verbosity": "low"},
        "include": ["reasoning.encrypted_content"],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
    }


def account_id(token: str) -> str | None:
    """Return the ChatGPT account that a token is for; None if the token names none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = decode(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        account = claims[_CLAIM]["chatgpt_account_id"]
    except (ValueError, DecodeError, LookupError, TypeError):
        return None
    return account if isinstance(account, str) and account else None


def _error_text(status: int, body: str) -> str:
    """Return status and body; if the subscription is used up, say so first, because a retry will not help soon."""
    text = f"openai-codex API error ({status}): {limit_body(body.strip()) or 'status code (no body)'}"
    try:
        error = decode(body)["error"]
        code = f"{error.get('code') or ''} {error.get('type') or ''}"
    except (DecodeError, LookupError, TypeError, AttributeError):
        return text
    if not any(limit in code for limit in _LIMITS):
        return text
    plan = f" ({str(error['plan_type']).lower()} plan)" if error.get("plan_type") else ""
    resets = error.get("resets_at")
    minutes = max(0, round((resets - time.time()) / 60)) if isinstance(resets, int | float) else None
    when = f" Try again in about {minutes} min." if minutes is not None else ""
    return f"You have reached your ChatGPT usage limit{plan}.{when}\n{text}"
