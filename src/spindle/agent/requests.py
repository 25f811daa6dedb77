"""What extensions ask of the agent beside the conversation: an answer of the model, a call of a tool."""

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from spindle.agent import AgentError
from spindle.agent.engine import Engine
from spindle.llm.stream import Request
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text, UserMessage
from spindle.tools.base import ToolError

MOST_TOKENS = 4096
"""Of an answer, unless another number is given."""


async def complete(engine: Engine, prompt: str, system: str, max_tokens: int | None) -> str:
    """Return what the current model answers to a prompt alone. It counts for the run, and for the session.

    Raises `AgentError` if the model fails, may not be asked, or a limit of the run is reached.
    """
    if engine.model is None:
        raise AgentError("No model available to ask")
    request = Request(system, [UserMessage(content=[Text(prompt)], timestamp=int(time.time() * 1000))])
    made = await engine.compactor.ask(request, max_tokens or MOST_TOKENS, "The model gave no answer", "extension", None)
    engine.conversation.session.append_usage("extension", made.answer.provider, made.answer.model, made.answer.usage)
    return made.text


async def execute_tool(engine: Engine, name: str, args: Any, update: Callable[[ToolResult], None]) -> ToolResult:
    """Call a tool that the model may use, as the model would: rules, hooks and the user's answers hold.

    Raises `ToolError` if there is no such tool, if the call is refused, or if the tool fails.
    """
    from spindle.tools.validate import checked_arguments

    if engine.chain is None:  # rules, limits and the list of refusals are those of a run
        raise ToolError(
            "Tools can be called while a run goes on: in a tool, or in a handler of an event of a run. Elsewhere "
            "agent.builtin(name).run calls a built-in tool, and exec a program"
        )
    active = {tool.name: tool for tool in engine.toolbox.active_tools()}
    if (tool := active.get(name) or engine.toolbox.hidden(name)) is None:
        raise ToolError(f"There is no active tool {name}")
    call_id, hooks = f"ext_{uuid4().hex[:24]}", engine.hub.hooks
    try:
        checked = await hooks.tool_call(call_id, tool, await checked_arguments(tool, args))
    except ToolError:
        raise
    except Exception as error:  # hooks are foreign code: if one fails, the call is refused
        raise ToolError(str(error) or type(error).__name__) from None
    made = await tool.execute(call_id, checked, engine.tool_context(update))
    result: ToolResult
    result, failed = await hooks.tool_result(call_id, tool, checked, made, False)
    if failed:
        raise ToolError("\n".join(block.text for block in result.content if isinstance(block, Text)))
    return result
