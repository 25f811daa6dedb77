"""Lend an editor's open buffers to the agent: it reads and changes unsaved text through the editor, not the disk.

python examples/client/editor_buffers.py [agent command …]
"""

import asyncio
import sys
from typing import Annotated

from spindle.client import RpcClient

COMMAND = sys.argv[1:] or ["spindle", "--mode", "rpc", "--no-session"]
Name = Annotated[str, "Name of an open buffer"]

# What an editor would hold: text that was typed but not saved.
buffers = {
    "greet.py": 'def greet(name):\n    print("Helo, " + name)\n',
    "notes.md": "# To do\n\n- fix the typo in greet\n",
}
agent = RpcClient(COMMAND, updates="delta")


@agent.tool
def list_buffers() -> str:
    """List the buffers that are open in the editor."""
    return "\n".join(f"{name} ({text.count(chr(10))} lines, unsaved)" for name, text in buffers.items())


@agent.tool
def read_buffer(name: Name) -> str:
    """Return the text of an open buffer, unsaved changes included."""
    if name not in buffers:
        raise ValueError(f"No buffer {name}. Open are: {', '.join(buffers)}")
    return buffers[name]


@agent.tool
def replace_in_buffer(name: Name, old: str, new: str) -> str:
    """Replace a text that occurs exactly once in an open buffer."""
    if buffers.get(name, "").count(old) != 1:
        raise ValueError(f"The text must occur exactly once in {name}")
    buffers[name] = buffers[name].replace(old, new)
    return f"Changed {name}"


async def main() -> None:
    async with agent:
        async for event in agent.run("Do what notes.md in my editor asks for."):
            if event.type == "tool_execution_end":
                print(f"[{event['toolName']}]")
            print(event.text_delta, end="", flush=True)
    print(f"\n\ngreet.py is now:\n{buffers['greet.py']}")


if __name__ == "__main__":
    asyncio.run(main())
