"""What can go wrong with a local model before it says a word."""

from spindle.llm.errors import ModelError

__all__ = ["LocalModelError"]


class LocalModelError(ModelError):
    """A local model cannot be used. The text is one line: what is wrong, and what to do next."""
