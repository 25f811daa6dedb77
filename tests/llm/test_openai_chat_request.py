"""What a chat-completions server is sent, and how every compat flag bends it."""

from functools import partial

import pytest

from spindle.llm.compat import ChatCompat
from spindle.llm.history import transform_request
from spindle.llm.openai_chat import chat_body, chat_headers
from spindle.llm.stream import Request, StreamOptions, ToolSpec
from spindle.shapes.codec import decode, encode
from spindle.shapes.messages import Image, Text, Thinking, ToolCall, UserMessage

from .helpers import answer_by, make_model, result

PUBLIC = "https://models.example.com/v1"
TOOL = ToolSpec("bash", "Run a command", {"type": "object", "properties": {"command": {"type": "string"}}})
IMAGE = Image("QUJD", "image/png")
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
answer = partial(answer_by, "openai-completions")


CALL = answer(ToolCall("c1", "bash", {"command": "ls"}))
USER = UserMessage("hi", 0)


def as_sent(body: dict) -> dict:
    return decode(encode(body))


def body(*messages, compat=None, tools=(), system="Be brief.", model=None, **options) -> dict:
    model = make_model(**{"base_url": PUBLIC, "compat": compat, **(model or {})})
    request = transform_request(Request(system, list(messages) or [USER], list(tools)), model)
    return as_sent(chat_body(model, request, StreamOptions(**options), ChatCompat.of(model)))


def headers(compat=None, **options) -> dict:
    return chat_headers(StreamOptions(**options), ChatCompat.of(make_model(base_url=PUBLIC, compat=compat)))


def test_a_plain_request():
    assert body() == {
        "model": "m1",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "store": False,
        "max_completion_tokens": 4096,
    }


THINKS = {"reasoning": True}


@pytest.mark.parametrize(
    ("compat", "key", "with_flag", "without"),
    [
        ({"supportsStore": False}, "store", None, False),
        ({"supportsUsageInStreaming": False}, "stream_options", None, {"include_usage": True}),
        ({"maxTokensField": "max_tokens"}, "max_tokens", 4096, None),
        ({"maxTokensField": "max_tokens"}, "max_completion_tokens", None, 4096),
        ({"supportsReasoningEffort": False}, "reasoning_effort", None, "high"),
        ({"thinkingFormat": "openrouter"}, "reasoning", {"effort": "high"}, None),
        ({"thinkingFormat": "deepseek"}, "thinking", {"type": "enabled"}, None),
        ({"thinkingFormat": "deepseek"}, "reasoning_effort", "high", "high"),
        ({"thinkingFormat": "zai"}, "thinking", {"type": "enabled"}, None),
        ({"thinkingFormat": "together"}, "reasoning", {"enabled": True}, None),
        ({"thinkingFormat": "qwen"}, "enable_thinking", True, None),
        ({"thinkingFormat": "qwen"}, "reasoning_effort", None, "high"),
        (
            {"thinkingFormat": "qwen-chat-template"},
            "chat_template_kwargs",
            {"enable_thinking": True, "preserve_thinking": True},
            None,
        ),
        ({"thinkingFormat": "string-thinking"}, "thinking", "high", None),
        ({"thinkingTokenBudgetField": "thinking_budget"}, "thinking_budget", 16384, None),
        ({"openRouterRouting": {"only": ["x"]}}, "provider", {"only": ["x"]}, None),
        ({"vercelGatewayRouting": {"order": ["x"]}}, "providerOptions", {"gateway": {"order": ["x"]}}, None),
        ({"zaiToolStream": True}, "tool_stream", True, None),
        ({"vllmPriority": 5}, "priority", 5, None),
    ],
)
def test_flags_and_their_keys(compat, key, with_flag, without):
    options = {"tools": [TOOL], "model": THINKS, "reasoning": "high"}
    assert body(compat=compat, **options).get(key) == with_flag
    assert body(**options).get(key) == without


TEMPLATE = {
    "thinking": {"$var": "thinking.enabled"},
    "effort": {"$var": "thinking.effort", "omitWhenOff": True},
    "budget": {"$var": "thinking.budget"},
    "fixed": 1,
}


@pytest.mark.parametrize(
    ("compat", "key", "value"),
    [
        ({}, "reasoning_effort", None),
        ({"thinkingFormat": "openrouter"}, "reasoning", {"effort": "none"}),
        ({"thinkingFormat": "deepseek"}, "thinking", {"type": "disabled"}),
        ({"thinkingFormat": "zai"}, "thinking", {"type": "disabled"}),
        ({"thinkingFormat": "together"}, "reasoning", {"enabled": False}),
        ({"thinkingFormat": "qwen"}, "enable_thinking", False),
        ({"thinkingFormat": "string-thinking"}, "thinking", "none"),
        ({"thinkingFormat": "ant-ling"}, "reasoning", None),
        ({"thinkingTokenBudgetField": "thinking_budget"}, "thinking_budget", None),
        (
            {"thinkingFormat": "chat-template", "chatTemplateKwargs": TEMPLATE},
            "chat_template_kwargs",
            {"thinking": False, "budget": 0, "fixed": 1},
        ),
    ],
)
def test_thinking_off(compat, key, value):
    assert body(compat=compat, model=THINKS).get(key) == value


@pytest.mark.parametrize(
    ("form", "flag", "key"),
    [
        ("chat-template", "chatTemplateKwargs", "chat_template_kwargs"),
        ("baseten", "chatTemplateArgs", "chat_template_args"),
    ],
)
def test_thinking_through_the_chat_template(form, flag, key):
    sent = body(compat={"thinkingFormat": form, flag: TEMPLATE}, model=THINKS, reasoning="low")
    assert sent[key] == {"thinking": True, "effort": "low", "budget": 2048, "fixed": 1}


def test_levels_are_translated():
    levels = {"high": "ultra", "off": None, "low": None}
    model = {"reasoning": True, "thinking_level_map": levels}
    assert body(model=model, reasoning="high")["reasoning_effort"] == "ultra"
    assert "thinking" not in body(model=model, compat={"thinkingFormat": "deepseek"}, reasoning="off")
    off = {"reasoning": True, "thinking_level_map": {"off": "none"}}
    assert body(model=off, reasoning="off")["reasoning_effort"] == "none"
    assert body(model=model, compat={"thinkingFormat": "ant-ling"}, reasoning="high")["reasoning"] == {
        "effort": "ultra"
    }


def test_a_model_that_cannot_think_is_not_asked_to():
    assert "reasoning_effort" not in body(reasoning="high")


def test_budgets_of_the_user_come_first():
    compat = {"thinkingTokenBudgetField": "thinking_token_budget"}
    sent = body(compat=compat, model=THINKS, reasoning="xhigh", thinking_budgets={"high": 99})
    assert sent["thinking_token_budget"] == 99


def test_the_role_of_the_system_prompt():
    assert body(model=THINKS)["messages"][0]["role"] == "developer"
    assert body(model=THINKS, compat={"supportsDeveloperRole": False})["messages"][0]["role"] == "system"
    assert body()["messages"][0]["role"] == "system"
    assert body(system="")["messages"][0]["role"] == "user"


def test_tools():
    function = {"name": "bash", "description": "Run a command", "parameters": TOOL.parameters}
    assert body(tools=[TOOL])["tools"] == [{"type": "function", "function": {**function, "strict": False}}]
    plain = body(tools=[TOOL], compat={"supportsStrictMode": False})["tools"]
    assert plain == [{"type": "function", "function": function}]
    assert "tools" not in body()
    assert body(USER, CALL, result(Text("r")))["tools"] == []


def test_options():
    assert body(max_tokens=99)["max_completion_tokens"] == 99
    sampled = body(model={"sampling_params": {"top_p": 0.1, "stream_options": None}})
    assert (sampled["top_p"], sampled["stream_options"]) == (0.1, None)


def test_the_output_limit_leaves_room_for_the_input():
    model = {"context_window": 10_000, "max_tokens": 8000}
    assert body(UserMessage("x" * 4000, 0), model=model)["max_completion_tokens"] in range(4850, 4910)
    assert body(UserMessage("x" * 40_000, 0), model=model)["max_completion_tokens"] == 1
    assert body(UserMessage("x" * 40_000, 0), model={**model, "context_window": 0})["max_completion_tokens"] == 8000


# -- messages ------------------------------------------------------------------------------------


def sent(*messages, **options) -> list[dict]:
    return body(*messages, system="", **options)["messages"]


def test_user_messages():
    assert sent(UserMessage([Text("see"), IMAGE], 0)) == [
        {"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE_PART]}
    ]
    assert sent(UserMessage([], 0), USER) == [{"role": "user", "content": "hi"}]


def test_answers():
    thinking = Thinking("hm", "reasoning_content")
    assert sent(answer(thinking, Text("a"), Text("b"), ToolCall("c1", "bash", {"k": "é"})))[0] == {
        "role": "assistant",
        "reasoning_content": "hm",
        "content": "ab",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"k":"é"}'}}],
    }
    assert sent(CALL)[0]["content"] is None
    assert sent(USER, answer(), answer(thinking), answer(Text("")), USER) == [{"role": "user", "content": "hi"}] * 2
    assert sent(answer(Thinking("hm", "reasoning"), Text("a"))) == [
        {"role": "assistant", "reasoning": "hm", "content": "a"}
    ]
    assert sent(answer(Thinking("hm", "SIG"), Text("a"))) == [{"role": "assistant", "content": "a"}]


def test_thinking_as_text():
    compat = {"requiresThinkingAsText": True}
    thinking = Thinking("hm", "reasoning_content")
    assert sent(answer(thinking, Text("a")), compat=compat) == [{"role": "assistant", "content": "hm\n\na"}]
    assert sent(answer(thinking), compat=compat) == [{"role": "assistant", "content": "hm"}]


def test_reasoning_content_where_it_is_required():
    compat = {"requiresReasoningContentOnAssistantMessages": True}
    assert sent(answer(Text("a")), compat=compat, model=THINKS)[0]["reasoning_content"] == ""
    thinking = Thinking("hm", "reasoning_content")
    assert sent(answer(thinking, Text("a")), compat=compat, model=THINKS)[0]["reasoning_content"] == "hm"
    assert "reasoning_content" not in sent(answer(Text("a")), compat=compat)[0]


def test_encrypted_thinking_goes_back():
    calls = answer(ToolCall("c1", "bash", {}, '{"id":"c1","data":"z"}'), ToolCall("c2", "bash", {}, "not json"))
    assert sent(calls)[0]["reasoning_details"] == [{"id": "c1", "data": "z"}]


def test_tool_results():
    assert sent(CALL, result(Text("a"), Text("b")))[1] == {"role": "tool", "tool_call_id": "c1", "content": "a\nb"}
    assert sent(CALL, result())[1]["content"] == "(no tool output)"
    named = sent(CALL, result(Text("a")), compat={"requiresToolResultName": True})[1]
    assert named["name"] == "bash"


ATTACHED = {"type": "text", "text": "Attached image(s) from tool result:"}


def test_images_of_tool_results_follow_the_run_of_results():
    calls = answer(ToolCall("c1", "bash", {}), ToolCall("c2", "bash", {}))
    messages = sent(calls, result(IMAGE), result(Text("t"), IMAGE, id="c2"), USER)
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user", "user"]
    assert [message["content"] for message in messages[1:4]] == [
        "(see attached image)",
        "t",
        [ATTACHED, IMAGE_PART, IMAGE_PART],
    ]
    assert sent(CALL, result(IMAGE))[-1]["content"] == [ATTACHED, IMAGE_PART]


def test_an_answer_between_results_and_user():
    compat = {"requiresAssistantAfterToolResult": True}
    bridge = {"role": "assistant", "content": "I have processed the tool results."}
    messages = sent(CALL, result(Text("r")), USER, compat=compat)
    assert messages[0]["content"] == ""
    assert messages[2:] == [bridge, {"role": "user", "content": "hi"}]
    assert sent(CALL, result(IMAGE), compat=compat)[2] == bridge
    assert bridge not in sent(CALL, result(Text("r")), USER)


# -- caching -------------------------------------------------------------------------------------


def test_cache_keys():
    openai = {"base_url": "https://api.openai.com/v1"}
    assert body(model=openai, session_id="s" * 70)["prompt_cache_key"] == "s" * 64
    assert "prompt_cache_key" not in body(session_id="s")
    long = body(session_id="s", cache_retention="long")
    assert (long["prompt_cache_key"], long["prompt_cache_retention"]) == ("s", "24h")
    short = body(session_id="s", cache_retention="long", compat={"supportsLongCacheRetention": False})
    assert "prompt_cache_key" not in short
    assert "prompt_cache_retention" not in short


@pytest.mark.parametrize(
    ("retention", "mark"), [("short", {"type": "ephemeral"}), ("long", {"type": "ephemeral", "ttl": "1h"})]
)
def test_anthropic_cache_marks(retention, mark):
    compat = {"cacheControlFormat": "anthropic"}
    marked = body(USER, CALL, result(Text("r")), compat=compat, tools=[TOOL], cache_retention=retention)
    assert marked["messages"][0]["content"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert marked["messages"][-1]["content"] == [{"type": "text", "text": "r", "cache_control": mark}]
    assert marked["messages"][1]["content"] == [{"type": "text", "text": "hi"}]
    assert marked["tools"][-1]["cache_control"] == mark
    assert "cache_control" not in str(body(USER, tools=[TOOL], cache_retention=retention))


@pytest.mark.parametrize(
    ("compat", "expected"),
    [
        ({}, {}),
        (
            {"sendSessionAffinityHeaders": True},
            {"session_id": "s", "x-client-request-id": "s", "x-session-affinity": "s"},
        ),
        (
            {"sendSessionAffinityHeaders": True, "sessionAffinityFormat": "openai-nosession"},
            {"x-client-request-id": "s", "x-session-affinity": "s"},
        ),
        ({"sendSessionAffinityHeaders": True, "sessionAffinityFormat": "openrouter"}, {"x-session-id": "s"}),
    ],
)
def test_session_headers(compat, expected):
    assert headers(compat, session_id="s") == expected
    assert headers(compat) == {}


def test_the_key_is_a_bearer_token():
    assert headers(api_key="k") == {"authorization": "Bearer k"}
    assert headers() == {}


# -- detection -----------------------------------------------------------------------------------

DEFAULTS = ChatCompat()


def flags(base_url: str = PUBLIC, provider: str = "custom", id: str = "m", **compat) -> dict:
    """Return the flags that differ from the standard."""
    found = ChatCompat.of(make_model(base_url=base_url, provider=provider, id=id, compat=compat or None))
    return {
        name: getattr(found, name)
        for name in ChatCompat.__struct_fields__
        if getattr(found, name) != getattr(DEFAULTS, name)
    }


PLAIN = {"supports_store": False, "supports_developer_role": False}
BASIC = {**PLAIN, "max_tokens_field": "max_tokens"}
NO_EFFORT = {**BASIC, "supports_reasoning_effort": False, "supports_strict_mode": False}
OPENROUTER = {
    "thinking_format": "openrouter",
    "send_session_affinity_headers": True,
    "session_affinity_format": "openrouter",
}
DEEPSEEK = {**BASIC, "thinking_format": "deepseek", "requires_reasoning_content_on_assistant_messages": True}


@pytest.mark.parametrize(
    ("url", "provider", "id", "expected"),
    [
        (PUBLIC, "custom", "m", {}),
        ("https://api.openai.com/v1", "openai", "gpt", {}),
        ("https://api.groq.com/openai/v1", "groq", "m", {}),
        ("https://openrouter.ai/api/v1", "mine", "x/m", {**OPENROUTER, "supports_developer_role": False}),
        (PUBLIC, "openrouter", "openai/gpt", OPENROUTER),
        (PUBLIC, "openrouter", "anthropic/c", {**OPENROUTER, "cache_control_format": "anthropic"}),
        ("https://api.deepseek.com", "mine", "m", DEEPSEEK),
        (PUBLIC, "deepseek", "m", DEEPSEEK),
        ("https://api.x.ai/v1", "xai", "grok", {**PLAIN, "supports_reasoning_effort": False}),
        ("https://api.cerebras.ai/v1", "cerebras", "m", PLAIN),
        ("https://api.z.ai/api/paas/v4", "zai", "glm", {**NO_EFFORT, "thinking_format": "zai"}),
        ("https://api.together.xyz/v1", "together", "m", {**NO_EFFORT, "thinking_format": "together"}),
        ("https://dashscope.aliyuncs.com/compatible-mode/v1", "x", "qwen", {**BASIC, "thinking_format": "qwen"}),
        ("https://api.moonshot.ai/v1", "moonshotai", "kimi", NO_EFFORT),
        ("https://integrate.api.nvidia.com/v1", "nvidia", "m", NO_EFFORT),
        ("https://gateway.ai.cloudflare.com/v1/a/b/compat", "x", "m", NO_EFFORT),
        ("https://llm.chutes.ai/v1", "chutes", "m", NO_EFFORT),
        ("http://localhost:11434/v1", "ollama", "m", BASIC),
        ("http://127.0.0.1:8080/v1", "x", "m", BASIC),
        ("http://[::1]:8080/v1", "x", "m", BASIC),
        ("http://192.168.1.5/v1", "x", "m", BASIC),
        ("http://172.20.0.2:80/v1", "x", "m", BASIC),
        ("http://172.32.0.2:80/v1", "x", "m", {}),
        ("http://host.docker.internal:1/v1", "x", "m", BASIC),
        ("http://box.local/v1", "x", "m", BASIC),
        ("https://localhost.example.com/v1", "x", "m", {}),
    ],
)
def test_servers_are_recognised(url, provider, id, expected):
    assert flags(url, provider, id) == expected


def test_what_the_user_says_wins():
    said = {"supportsStore": True, "maxTokensField": "max_completion_tokens", "supportsDeveloperRole": None}
    assert flags("http://localhost/v1", **said) == {"supports_developer_role": False}
    assert flags(someNewFlag=True) == {}
