"""The error that every refusal for people is, and the words of errors that are not ours."""


class AgentError(Exception):
    """A request that the agent refuses, or work that failed; the text is for the person who asked."""


class OptionError(AgentError):
    """An option that the agent was made with makes no sense: a fault of the command line, or of the calling program."""


def error_text(error: BaseException) -> str:
    """Return the text of any exception, also of one that cannot say its own; its name if there is none."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def told(error: BaseException) -> str:
    """Return the name and the text of any exception."""
    name, text = type(error).__name__, error_text(error)
    return name if text == name else f"{name}: {text}"
