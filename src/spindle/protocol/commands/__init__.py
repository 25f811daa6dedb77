"""Every command a client can send: its fields, what it answers, and the one method of the agent it calls."""

from spindle.protocol.commands import sessions, state, work  # noqa: F401 - this registers them
from spindle.protocol.registry import COMMANDS

__all__ = ["COMMANDS"]
