"""Answer the questions that extensions of the agent ask, and stop a run that takes too long.

python examples/client/dialogs.py [agent command …]
"""

import asyncio
import sys
from typing import Any

from spindle.client import Event, RequestTimeout, RpcClient

COMMAND = sys.argv[1:] or ["spindle", "--mode", "rpc", "--no-session"]


async def answer(request: Event) -> Any:
    """Return a bool for `confirm`, a text for the other questions, None to cancel."""
    print(f"the agent says: {request.get('title') or request.get('message')}")
    if request["method"] == "confirm":
        return True
    if request["method"] == "select":
        return request["options"][0]
    return None


async def main() -> None:
    async with RpcClient(COMMAND, updates="delta", on_ui_request=answer) as agent:
        try:
            run = await agent.prompt_and_wait("Ask for permission, then tidy up.", timeout=120)
        except RequestTimeout:
            await agent.abort()
            print("stopped after two minutes")
        else:
            print(run.text)


if __name__ == "__main__":
    asyncio.run(main())
