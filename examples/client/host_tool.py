"""Let the agent call a function of this program.

The signature becomes the tool's schema, the docstring its description; the function runs here, not in the agent.

    python examples/client/host_tool.py [agent command …]
"""

import asyncio
import shutil
import sys
from typing import Annotated

from spindle.client import RpcClient, Update

COMMAND = sys.argv[1:] or ["spindle", "--mode", "rpc", "--no-session"]

agent = RpcClient(COMMAND, updates="delta")


@agent.tool
def disk_space(update: Update, path: Annotated[str, "Any file on the disk"] = "/") -> dict[str, object]:
    """Tell how much room is left on the disk that holds a path."""
    update(f"looking at {path}")
    usage = shutil.disk_usage(path)
    text = f"{usage.free // 2**20} of {usage.total // 2**20} MiB are free"
    return {"content": [{"type": "text", "text": text}], "details": {"free": usage.free}}


async def main() -> None:
    async with agent:
        run = await agent.prompt_and_wait("Use the disk_space tool: will a 1 GiB download fit?")
        print(run.text)


if __name__ == "__main__":
    asyncio.run(main())
