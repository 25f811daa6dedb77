"""Commands that a remote client may give by name (`Instruction`), and the list of them."""

from typing import Any, Protocol

from spindle.agent.errors import AgentError
from spindle.agent.session import AgentSession
from spindle.types.codec import encode
from spindle.types.content import text_of
from spindle.types.messages import AssistantMessage, UserMessage

from .chat_protocol import Command, Config, ProtocolError, parse_config

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
CLEARED = "上下文已清理，对话轮次已重置"


class Connection(Protocol):
    """What instructions may change about the connection they came in on."""

    max_turns: int
    ask_before_tools: bool

    async def clear(self) -> None: ...

    def reset_turns(self) -> None: ...

    def apply(self, config: Config) -> None: ...


async def run_instruction(connection: Connection, agent: AgentSession, command: Command) -> str:
    """Carry a command out and return the text to answer with. Raises `AgentError`."""
    match command.name:
        case "help":
            return "\n".join(f"{name} - {text}" for name, text in _COMMANDS.items())
        case "clear":
            await connection.clear()
            return CLEARED
        case "reset":
            connection.reset_turns()
            return "对话轮次已重置"
        case "history":
            return _history(agent)
        case "tools":
            return "\n".join(f"{tool.name} - {tool.description}" for tool in agent.toolbox.active_tools())
        case "config":
            return _config(connection, agent, command.parameters)
        case "exit":
            return "再见"
    raise AgentError(f"Unknown command: {command.name}")


def _history(agent: AgentSession) -> str:
    lines = []
    for message in agent.conversation.messages:
        if isinstance(message, UserMessage | AssistantMessage):
            role = "user" if isinstance(message, UserMessage) else "assistant"
            text = text_of(message.content)
            if text:
                lines.append(f"[{role}] {text}")
    return "\n".join(lines)


def _config(connection: Connection, agent: AgentSession, parameters: Any) -> str:
    if parameters:
        try:
            connection.apply(parse_config(parameters))
        except ProtocolError as error:
            raise AgentError(f"Command execution failed: {error}") from None
    model = agent.choice.model
    return encode(
        {
            "model": f"{model.provider}/{model.id}" if model else None,
            "max_context_num": connection.max_turns,
            "max_tokens": agent.engine.max_tokens,
            "ask_before_tool_execution": connection.ask_before_tools,
        }
    ).decode()
