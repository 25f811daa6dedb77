"""The agent: one `AgentSession`, which every wire drives."""

from spindle.base.errors import AgentError, OptionError

__all__ = ["AgentError", "OptionError"]
