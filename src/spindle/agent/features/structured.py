"""A result that a program can parse: the model hands it in through a tool whose parameters are the wanted schema.

This works with every model API. A model that ends without a result, or hands in one that does not fit, is told so
once; after that the run has failed.
"""

from typing import Any

from msgspec import UNSET

from spindle.agent import AgentError
from spindle.agent.hooks import Hooks, Start
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import AgentMessage, CustomMessage, ToolResultMessage, custom_message
from spindle.tools.base import Tool, ToolContext, text_result

TOOL_NAME = "final_result"
_TASK = f"When the task is done, hand in its result by calling the tool `{TOOL_NAME}` once. Do not end without it."
_REMINDER = f"You ended without calling `{TOOL_NAME}`. Call it now with the result of the task."


class StructuredAnswer(Hooks):
    def __init__(self, schema: dict[str, Any]) -> None:
        """Raises `AgentError` if the schema is not an object."""
        if not isinstance(schema, dict):
            raise AgentError("The JSON Schema of the result must be an object")
        # Tools take objects, so any other value is handed in as a key of one.
        self._wrapped = schema.get("type") != "object" and "properties" not in schema
        parameters = schema
        if self._wrapped:
            inner = {key: value for key, value in schema.items() if key != "$defs"}
            parameters = {"type": "object", "properties": {"value": inner}, "required": ["value"]}
            parameters |= {"$defs": schema["$defs"]} if "$defs" in schema else {}
        self.tool = Tool(
            TOOL_NAME,
            "Hand in the result of the task. This ends the work.",
            parameters,
            self._take,
            sequential=True,
            effect="reads",
        )
        self.value: Any = UNSET
        """The result, once it was handed in."""
        self._failures = 0

    @property
    def failed(self) -> bool:
        """Whether the model had its second chance and there is still no result."""
        return self.value is UNSET and self._failures > 1

    async def before_agent_start(self, start: Start) -> None:
        start.system_prompt += f"\n\n{_TASK}"

    async def _take(self, call_id: str, arguments: Any, ctx: ToolContext) -> ToolResult:
        self.value = arguments["value"] if self._wrapped else arguments
        result = text_result("The result was taken.")
        result.terminate = True
        return result

    def committed(self, message: AgentMessage) -> None:
        if isinstance(message, ToolResultMessage) and message.tool_name == TOOL_NAME and message.is_error:
            self._failures += 1

    @property
    def told(self) -> bool:
        """Whether the model was told that its result is missing, or does not fit."""
        return self._failures > 0

    def reminder(self) -> CustomMessage:
        """Count a failure, and return a message that tells the model to hand in its result."""
        self._failures += 1
        return custom_message("result-reminder", _REMINDER)
