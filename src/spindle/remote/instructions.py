"""Commands that a remote client may give by name (`Instruction`), and the list of them."""

from typing import Any, Protocol

from spindle.agent import AgentError
from spindle.agent.session import AgentSession
from spindle.remote.chat_protocol import Command, ProtocolError, parse_config
from spindle.remote.chat_run import ChatState
from spindle.shapes.codec import encode
from spindle.shapes.messages import AssistantMessage, UserMessage, text_of

__all__ = ["COMMANDS_TEXT", "run_instruction"]

_COMMANDS = {
    "help": "显示帮助信息",
    "clear": "清除聊天记录",
    "exit": "退出程序",
    "reset": "重置对话上下文",
    "history": "显示历史记录",
    "tools": "显示可用工具列表",
    "config": "显示或修改配置",
}
_LISTED = [{"name": name, "description": text} for name, text in _COMMANDS.items()]
COMMANDS_TEXT = encode({"commands": _LISTED, "count": len(_LISTED)}).decode()


class Connection(Protocol):
    """The connection that an instruction came in on."""

    state: ChatState

    async def clear(self) -> str:
        """Begin the conversation anew and return what to say. Raises `AgentError`."""


async def run_instruction(connection: Connection, agent: AgentSession, command: Command) -> str:
    """Carry a command out and return the text to answer with. Raises `AgentError`."""
    try:
        match command.name:
            case "help":
                return "\n".join(f"{name} - {text}" for name, text in _COMMANDS.items())
            case "clear":
                return await connection.clear()
            case "reset":
                connection.state.turns = 0
                return "对话轮次已重置"
            case "history":
                return _history(agent)
            case "tools":
                return "\n".join(f"{tool.name} - {tool.description}" for tool in agent.active_tools())
            case "config":
                return _config(connection.state, agent, command.parameters)
            case "exit":
                return "再见"
    except (AgentError, ProtocolError) as error:
        raise AgentError(f"Command execution failed: {error}") from None
    raise AgentError(f"Unknown command: {command.name}")


def _history(agent: AgentSession) -> str:
    lines = []
    for message in agent.messages:
        if isinstance(message, UserMessage | AssistantMessage):
            role = "user" if isinstance(message, UserMessage) else "assistant"
            text = text_of(message.content)
            if text:
                lines.append(f"[{role}] {text}")
    return "\n".join(lines)


def _config(state: ChatState, agent: AgentSession, parameters: Any) -> str:
    if parameters:
        config = parse_config(parameters)
        state.apply(config)
        state.max_tokens = config.max_tokens or state.max_tokens
    model = agent.model
    return encode(
        {
            "session": agent.session.id,
            "model": f"{model.provider}/{model.id}" if model else None,
            "max_context_num": state.max_turns,
            "max_tokens": state.max_tokens,
            "ask_before_tool_execution": state.ask_before_tools,
            "prompt": state.prompt,
        }
    ).decode()
