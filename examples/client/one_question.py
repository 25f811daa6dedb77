"""Ask one question from a program without asyncio.

python examples/client/one_question.py [agent command …]
"""

import sys

from spindle.client import AgentCrashed, SyncRpcClient

COMMAND = sys.argv[1:] or ["spindle", "--mode", "rpc", "--no-session"]


def main() -> int:
    try:
        with SyncRpcClient(COMMAND, updates="delta") as agent:
            run = agent.prompt_and_wait("Summarize README.md in one sentence.", timeout=300)
    except AgentCrashed as crash:
        print(crash, file=sys.stderr)
        return 1
    print(run.error or run.text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
