"""The ways to a model for who has none: one list for the chat, `-p` on a terminal and `spindle doctor`."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from spindle.base.agent_dir import agent_dir
from spindle.models.catalog import builtin_providers
from spindle.models.credentials import AuthStore
from spindle.models.loopback import LOOPBACK, ServerUnreachable
from spindle.models.model_registry import ModelRegistry
from spindle.shapes.owner import Way

SMALL: Final = "smollm2"
_MOST = 4
"""Models of a server that are listed."""
_SERVERS: Final = {"ollama": "Ollama", "llamacpp": "llama.cpp", "lmstudio": "LM Studio", "vllm": "vLLM"}
_SIGN_INS: Final = {"github-copilot": "GitHub Copilot", "openai": "ChatGPT", "openrouter": "OpenRouter"}
_PREFIXES: Final = (
    ("sk-ant-", ("anthropic",)),
    ("sk-or-", ("openrouter",)),
    ("sk-proj-", ("openai",)),
    ("sk-svcacct-", ("openai",)),
    ("sk-", ("openai", "deepseek", "moonshotai")),
    ("AIza", ("google",)),
    ("gsk_", ("groq",)),
    ("xai-", ("xai",)),
    ("csk-", ("cerebras",)),
    ("hf_", ("huggingface",)),
    ("fw_", ("fireworks",)),
    ("nvapi-", ("nvidia",)),
    ("tgp_", ("together",)),
    ("vck_", ("vercel-ai-gateway",)),
)
_WORDS: Final = {
    "claude": "anthropic",
    "sonnet": "anthropic",
    "opus": "anthropic",
    "gpt": "openai",
    "chatgpt": "openai",
    "codex": "openai",
    "gemini": "google",
    "grok": "xai",
    "kimi": "moonshotai",
    "qwen": "openrouter",
    "glm": "zai",
    "bedrock": "amazon-bedrock",
    "aws": "amazon-bedrock",
    "copilot": "github-copilot",
    "github": "github-copilot",
    "hf": "huggingface",
    "vertex": "google-vertex",
}


def ways_to_a_model(registry: ModelRegistry) -> list[Way]:
    """Return what there is, the least work first. Asks the servers on this machine, for a second at most."""
    return [*_servers(registry), *_keys_of_pi(registry), *_others()]


def _servers(registry: ModelRegistry) -> list[Way]:
    def ask(provider: str) -> list[str]:
        try:
            return [model.id for model in registry.probe(provider)]
        except ServerUnreachable:
            return []

    with ThreadPoolExecutor(len(LOOPBACK)) as pool:
        found = dict(zip(LOOPBACK, pool.map(ask, LOOPBACK), strict=True))
    return [
        Way("server", f"{provider}/{name}", f"{name}, of {_SERVERS[provider]} here", f"--model {provider}/{name}")
        for provider, names in found.items()
        for name in names[:_MOST]
    ]


def _keys_of_pi(registry: ModelRegistry) -> list[Way]:
    """Return the keys in pi's own folder, if another one is in use."""
    home = Path.home() / ".pi" / "agent"
    if str(home) == str(agent_dir()) or not os.access(home / "auth.json", os.R_OK):
        return []
    entries = AuthStore(home).entries()
    names = [name for name, entry in entries.items() if entry.get("type") == "api_key" and name in registry.providers()]
    if not names:
        return []
    title = f"Use the keys of pi: {', '.join(names)}"
    return [Way("keys", str(home / "auth.json"), title, f"PI_CODING_AGENT_DIR={home} spindle")]


def _others() -> list[Way]:
    return [
        *(Way("sign-in", name, f"Sign in: {title}", f"spindle login {name}") for name, title in _SIGN_INS.items()),
        Way("key", "", "Enter an API key: Anthropic, OpenAI, Gemini, …", "spindle keys set PROVIDER"),
        Way("small", SMALL, "Get a small model that runs right here (93 MB)", f"spindle models pull {SMALL}"),
    ]


def providers_of_key(text: str) -> tuple[str, ...]:
    """Return the providers that a key may be of, by its first letters; none if it looks like no key."""
    if len(text) < 16 or not text.isascii() or any(letter.isspace() for letter in text):
        return ()
    return next((names for prefix, names in _PREFIXES if text.startswith(prefix)), ())


def provider_of_word(text: str) -> str | None:
    """Return the provider that a word of people stands for: its name, or that of a product, as `claude`."""
    word = text.strip().lower()
    known = builtin_providers()
    if word in known:
        return word
    return next((name for product, name in _WORDS.items() if word.startswith(product) and name in known), None)


def may_be_shown(text: str) -> bool:
    """Say whether a text that is being typed is the beginning of a word that we know, and so no key."""
    word = text.lower()
    return any(name.startswith(word) for name in (*_WORDS, *builtin_providers()))
