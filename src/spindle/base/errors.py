"""The error that every refusal for people is."""


class AgentError(Exception):
    """A request that the agent refuses, or work that failed; the text is for the person who asked."""


class OptionError(AgentError):
    """An option that the agent was made with makes no sense: a fault of the command line, or of the calling program."""
