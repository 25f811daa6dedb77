"""Errors that are for the caller to read."""

__all__ = ["AgentError"]


class AgentError(Exception):
    """A request that could not be carried out; the text says what was wrong and, where it helps, what to do."""
