"""Errors in the words of Python: parts of the agent speak of commands, options and fields that a program has not."""

from collections.abc import Iterator
from contextlib import contextmanager

from spindle.agent import AgentError
from spindle.base.spelling import did_you_mean
from spindle.shapes.run_limits import RUN_LIMITS

_WORDS = {
    "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message.": (
        "The agent is at work. Wait for the end of its run, or queue the message with steer() or follow_up()."
    ),
    "Use --list-models to see available providers/models.": "`spindle --list-models` shows what there is.",
    "Use --list-models to see available models.": "`spindle --list-models` shows what there is.",
    "Choose another model (--list-models)": "Choose another model (`spindle --list-models` shows them)",
    "pass --api-key": "give api_key=",
    "Not a permission rule (command line): ": "Not a permission rule: ",
    ": list_checkpoints has them": ": checkpoints() has them",
    "--model ": "model ",
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


_ELSEWHERE = {
    **dict.fromkeys(("session_id", "conversation_id"), "id"),
    **dict.fromkeys(("query", "send", "stream", "chat", "invoke", "run_stream", "iter", "run_streamed"), "run()"),
    **dict.fromkeys(("prompt_and_wait", "complete", "generate"), "ask()"),
    **dict.fromkeys(("stop", "cancel", "interrupt"), "abort()"),
    **dict.fromkeys(("history", "all_messages", "new_messages", "get_messages"), "messages"),
    **dict.fromkeys(("run_sync", "ask_sync", "query_sync"), "Agent.sync(), or spindle.ask_sync()"),
    **dict.fromkeys(("override", "set_thinking_level"), "set_thinking()"),
    **dict.fromkeys(("on", "add_listener", "on_event"), "subscribe()"),
    **dict.fromkeys(("resume", "load"), "Agent.open()"),
    **dict.fromkeys(("stats", "get_session_stats", "tokens"), "usage()"),
    **dict.fromkeys(("undo", "rewind", "rewind_files"), "restore()"),
    **dict.fromkeys(("disconnect", "aclose", "shutdown"), "close()"),
}
"""Names that other libraries have for what an agent can do."""


def no_attribute(kind: str, name: str) -> AttributeError:
    """Return the error for an attribute that an agent does not have."""
    from spindle.inprocess.agent import Agent

    names = [one for one in dir(Agent) if not one.startswith("_")]
    near = f" Did you mean {meant}?" if (meant := _ELSEWHERE.get(name)) else did_you_mean(name, names)
    return AttributeError(f"{kind!r} object has no attribute {name!r}.{near}", name=name)
