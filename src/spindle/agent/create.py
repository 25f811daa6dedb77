"""The end of an agent's memory."""

from spindle.agent.session import AgentSession


def dispose(agent: AgentSession) -> None:
    """Take a closed agent apart, which nothing may use any more, so that its memory is free at once.

    Its parts know each other. Left alone they would stay until the garbage collector looks at its oldest objects, which
    it does the less often the more of them there are.
    """
    parts = [*vars(agent).values(), *vars(agent._engine).values(), agent]
    for part in parts:
        if type(part).__module__.startswith(("spindle.agent.", "spindle.plugins.extensions.")) and hasattr(
            part, "__dict__"
        ):
            vars(part).clear()
