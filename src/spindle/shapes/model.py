"""A language model as the catalogue and the wire describe it."""

import re
from typing import Any, Literal, get_args

from msgspec.structs import replace

from spindle.shapes.made_by_hand import MadeByHand
from spindle.shapes.messages import Wire

ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
THINKING_LEVELS: tuple[ThinkingLevel, ...] = get_args(ThinkingLevel)


class ModelCost(Wire, metaclass=MadeByHand):
    """US dollars per million tokens."""

    input: int | float
    output: int | float
    cache_read: int | float
    cache_write: int | float
    tiers: list[dict[str, Any]] | None = None
    """Other rates above `inputTokensAbove`; the highest tier passed replaces all rates."""

    @property
    def is_free(self) -> bool:
        """Whether nothing is paid for."""
        return not (self.input or self.output or self.cache_read or self.cache_write or self.tiers)


def masked_url(url: str) -> str:
    """Return an address with stars for its password and for keys in its query."""
    if "@" in url:
        url = re.sub(r"(?<=://)([^/?#:@]*:)?[^/?#]*(?=@)", lambda match: f"{match[1] or ''}***", url, count=1)
    if "?" in url:
        url = re.sub(r"(?i)([?&][^=&#]*(?:key|token|secret|sig|password)[^=&#]*=)[^&#]+", r"\1***", url)
    return url


_LEAST_WINDOW = 64_000


class Model(Wire, metaclass=MadeByHand):
    """A model: where and how it is asked, what it costs, how much it can read and write."""

    id: str
    name: str
    api: str
    """Which protocol: `openai-completions`, `anthropic-messages`, `scripted`, …"""
    provider: str
    base_url: str
    reasoning: bool
    input: list[str]
    """`text`, and `image` for models that see."""
    cost: ModelCost
    context_window: int
    max_tokens: int
    headers: dict[str, str] | None = None
    compat: dict[str, Any] | None = None
    """How this server differs from its protocol (`llm/compat`)."""
    thinking_level_map: dict[str, str | None] | None = None
    """Level → the provider's word for it; null = not supported."""
    sampling_params: dict[str, Any] | None = None
    sampling_params_by_thinking_level: dict[str, dict[str, Any]] | None = None
    """Level → more of them."""
    input_limits: dict[str, Any] | None = None
    prompt_cache: dict[str, Any] | None = None
    cost_unknown: bool = False
    """Whether `cost` is only a placeholder."""

    @property
    def full_name(self) -> str:
        """Provider and id, as `--model` takes them."""
        return f"{self.provider}/{self.id}"

    @property
    def small(self) -> bool:
        """Whether it has room for little. Such models give away whole tasks, and work in a folder that they are told
        of; so they are not told of subagents and of the manual. A window of 0 is not known."""
        return 0 < self.context_window < _LEAST_WINDOW

    def shown(self) -> "Model":
        """Return the model as clients may see it: without a password in its address."""
        url = masked_url(self.base_url)
        return self if url == self.base_url else replace(self, base_url=url)

    def at_level(self, level: str) -> "Model":
        """Return the model with the parameters of a thinking level."""
        more = (self.sampling_params_by_thinking_level or {}).get(level)
        return self if more is None else replace(self, sampling_params=(self.sampling_params or {}) | more)

    def thinking_levels(self) -> list[ThinkingLevel]:
        """Return the levels this model supports, lowest first."""
        if not self.reasoning:
            return ["off"]
        mapped = self.thinking_level_map or {}
        return [
            level
            for level in THINKING_LEVELS
            if (mapped[level] is not None if level in mapped else level not in ("xhigh", "max"))
        ]

    def clamp_thinking(self, level: str) -> ThinkingLevel:
        """Return the nearest supported level: upward first, then downward. `level` must be a known one."""
        supported = self.thinking_levels()
        wanted = THINKING_LEVELS.index(level)
        above = [x for x in supported if THINKING_LEVELS.index(x) >= wanted]
        return above[0] if above else supported[-1]
