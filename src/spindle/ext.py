"""Names for authors of extensions: types for editors, and the values that stream functions and tools are made of.

A simple extension needs none of them: it is just `def extension(agent): ...`.
"""

from spindle.agent.dialogs import Dialogs as Front
from spindle.agent.navigate import Navigated
from spindle.llm.live import LiveMessage
from spindle.llm.stream import Finished, Request, Started, StreamOptions
from spindle.plugins.extensions import events
from spindle.plugins.extensions.api import Agent, ExecResult
from spindle.plugins.extensions.context import CommandContext, Context, Replaced, SessionView
from spindle.plugins.extensions.generation import StaleExtensionError
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Cost, Image, Text, Thinking, ToolCall, Usage
from spindle.shapes.model import Model
from spindle.tools.base import Tool, ToolError

__all__ = [
    "Agent",
    "CommandContext",
    "Context",
    "Cost",
    "ExecResult",
    "ExtensionUIRequest",
    "Finished",
    "Front",
    "Image",
    "LiveMessage",
    "Model",
    "Navigated",
    "Replaced",
    "Request",
    "SessionView",
    "StaleExtensionError",
    "Started",
    "StreamOptions",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "Usage",
    "events",
]
