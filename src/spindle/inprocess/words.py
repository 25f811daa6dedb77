"""Errors in the words of Python: parts of the agent speak of commands, options and fields that a program has not."""

from collections.abc import Iterator
from contextlib import contextmanager

from spindle.agent import AgentError
from spindle.shapes.run_limits import RUN_LIMITS

_WORDS = {
    "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message.": (
        "The agent is at work. Wait for the end of its run, or queue the message with steer() or follow_up()."
    ),
    "Use --list-models to see available providers/models.": "`spindle --list-models` shows what there is.",
    "Use --list-models to see available models.": "`spindle --list-models` shows what there is.",
    "Choose another model (--list-models)": "Choose another model (`spindle --list-models` shows them)",
    "pass --api-key": "give api_key=",
    **{one.wire_name: one.name for one in RUN_LIMITS},
}


def in_python(text: str) -> str:
    """Return the text of an error with the names that a program knows."""
    for wire, python in _WORDS.items():
        text = text.replace(wire, python)
    return text


@contextmanager
def python_words() -> Iterator[None]:
    """Let an `AgentError` that leaves the block speak of Python."""
    try:
        yield
    except AgentError as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (in_python(error.args[0]), *error.args[1:])
        raise
