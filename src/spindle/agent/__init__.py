"""The agent: one `AgentSession`, which every wire drives."""

__all__ = ["AgentError"]


class AgentError(Exception):
    """A request that the agent refuses, or work that failed; the text is for the person who asked."""
