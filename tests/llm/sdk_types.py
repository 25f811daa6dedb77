"""Says whether the body of a request is what the published SDK of its provider takes, to the last key.

Runs in an environment that has the SDKs (`SPINDLE_TEST_SDKS`): lines of `[api, body]` in, for each a line out with the
error, or null.
"""

import importlib
import json
import sys
from functools import cache
from typing import Any

SDKS = {
    "anthropic-messages": ("anthropic.types.message_create_params", "MessageCreateParamsStreaming"),
    "openai-completions": ("openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming"),
    "openai-responses": ("openai.types.responses.response_create_params", "ResponseCreateParamsStreaming"),
    "mistral-conversations": ("mistralai.client.models", "ChatCompletionStreamRequest"),
    "google-generative-ai": ("google.genai.types", ""),
}
STRICT = {"extra": "forbid"}


@cache
def shape(api: str) -> Any:
    """Return the type of a body, which takes no key that it does not know."""
    if api == "mistral-conversations":  # before its models are made of it
        importlib.import_module("mistralai.client.types").BaseModel.model_config |= STRICT
    name, kind = SDKS[api]
    module = importlib.import_module(name)
    if api == "google-generative-ai":  # the SDK has a type for each part, and none for the whole
        parts = {"contents": list[module.Content], "tools": list[module.Tool], "systemInstruction": module.Content}  # type: ignore[name-defined]
        parts |= {"generationConfig": module.GenerationConfig, "toolConfig": module.ToolConfig}
        create_model = importlib.import_module("pydantic").create_model
        fields = {part: (kind, None) for part, kind in parts.items()}
        return create_model("Body", __config__=STRICT, **fields)
    found = getattr(module, kind)
    if api != "mistral-conversations":
        found.__pydantic_config__ = STRICT
    return found


@cache
def reader(api: str) -> Any:
    return importlib.import_module("pydantic").TypeAdapter(shape(api))


def exhaust(value: Any) -> None:
    """Make lazy validators look at everything."""
    if isinstance(value, dict):
        for item in value.values():
            exhaust(item)
    elif not isinstance(value, str | bytes) and hasattr(value, "__iter__"):
        for item in value:
            exhaust(item)


def main() -> None:
    for line in sys.stdin:
        api, body = json.loads(line)
        error = None
        try:
            exhaust(reader(api).validate_python(body))
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        print(json.dumps(error), flush=True)


if __name__ == "__main__":
    main()
