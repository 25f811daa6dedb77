"""Every command a client can send: its fields, what it answers, and the one method of the agent it calls."""

from ..registry import COMMANDS
from . import sessions, state, work  # noqa: F401 - this registers them

__all__ = ["COMMANDS"]
