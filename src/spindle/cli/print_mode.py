"""`spindle -p`: run the messages and print the last answer, nothing else."""

import os
import sys

from spindle.types.content import Text

from .args import Options
from .inputs import Inputs
from .one_shot import ErrorTeller, play, read_inputs, run_and_exit

__all__ = ["run_print"]


def run_print(options: Options) -> int:
    inputs = read_inputs(options)
    run_and_exit(lambda: _print(options, inputs))


async def _print(options: Options, inputs: Inputs) -> int:
    stdout = _take_stdout()
    agent = await play(options, inputs, "print", lambda agent: agent.subscribe(ErrorTeller()))
    answer = agent.conversation.last_assistant()
    if answer is None:
        return 0
    if answer.stop_reason in ("error", "aborted"):
        print(answer.error_message or f"Request {answer.stop_reason}", file=sys.stderr)
        return 1
    with os.fdopen(stdout, "w", encoding="utf-8", errors="replace", newline="") as out:
        for block in answer.content:
            if isinstance(block, Text):
                out.write(block.text + "\n")
    return 0


def _take_stdout() -> int:
    """Keep the real stdout for the answer; what anything else prints goes to stderr."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return descriptor
