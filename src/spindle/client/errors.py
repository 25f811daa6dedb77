"""What can go wrong between a program and the agent it drives."""

__all__ = ["AgentCrashed", "ClientClosed", "CommandFailed", "RequestTimeout", "RpcError"]


class RpcError(Exception):
    """Base of everything a client raises about its agent."""


class CommandFailed(RpcError):
    """The agent refused a command; the text is its own."""

    def __init__(self, command: str, error: str) -> None:
        super().__init__(f"{command}: {error}")
        self.command = command
        self.error = error


class RequestTimeout(RpcError, TimeoutError):
    """The agent did not answer in time. It may still be at work."""

    def __init__(self, command: str, seconds: float) -> None:
        super().__init__(f"{command}: no answer within {seconds:g} s")
        self.command = command
        self.seconds = seconds


class AgentCrashed(RpcError):
    """The agent's process ended although nobody closed it."""

    def __init__(self, exit_code: int, stderr: str) -> None:
        how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
        super().__init__(f"The agent {how}" + (f"; its last words:\n{stderr}" if stderr else ""))
        self.exit_code = exit_code
        """As the system gives it: negative is a signal."""
        self.stderr = stderr
        """The end of what it wrote to stderr."""


class ClientClosed(RpcError):
    """The client is not started, or closed."""

    def __init__(self) -> None:
        super().__init__("The client is not running")
