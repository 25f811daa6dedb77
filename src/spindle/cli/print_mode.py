"""`spindle -p`: run the messages and print the last answer, nothing else."""

import os
import sys
from typing import NoReturn

from spindle.cli.args import Options
from spindle.cli.finish import run_and_exit
from spindle.cli.inputs import Inputs
from spindle.cli.one_shot import ErrorTeller, play, read_inputs, until_signal
from spindle.cli.tell import tell
from spindle.shapes.content import Text

__all__ = ["run_print"]


def run_print(options: Options) -> NoReturn:
    """Run the messages, then end the process. Raises `BadInput`, `UsageError`."""
    inputs = read_inputs(options)
    run_and_exit(until_signal(_print(options, inputs)))


async def _print(options: Options, inputs: Inputs) -> int:
    stdout = _take_stdout()
    agent = await play(options, inputs, "print", lambda agent: agent.subscribe(ErrorTeller()))
    answer = agent.conversation.last_assistant()
    if answer is None:
        return 0
    if answer.stop_reason in ("error", "aborted"):
        print(answer.error_message or f"Request {answer.stop_reason}", file=sys.stderr)
        return 1
    try:
        with os.fdopen(stdout, "w", encoding="utf-8", errors="replace", newline="") as out:
            out.writelines(block.text + "\n" for block in answer.content if isinstance(block, Text))
    except OSError as error:
        tell("Error", f"Cannot write the answer: {error.strerror}")
        return 1
    return 0


def _take_stdout() -> int:
    """Keep the real stdout for the answer; what anything else prints goes to stderr."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return descriptor
