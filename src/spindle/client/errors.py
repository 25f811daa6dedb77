"""Errors between a program and the agent it drives."""

from typing import Any


class RpcError(Exception):
    """Base of all errors that a client raises about its agent."""


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
    """The agent's process ended by itself."""

    def __init__(self, exit_code: int, stderr: str) -> None:
        how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
        super().__init__(f"The agent {how}" + (f"; its last words:\n{stderr}" if stderr else ""))
        self.exit_code = exit_code
        """As the system gives it: a negative number is a signal."""
        self.stderr = stderr
        """The end of its stderr."""


class ClientClosed(RpcError):
    """The client is not started, or closed."""

    def __init__(self) -> None:
        super().__init__("The client is not running")


# -- over a network --------------------------------------------------------------------------------


class ConnectionFailed(RpcError):
    """The server cannot be reached, or does not let us in."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        """The server's code: 401 no valid token, 403 a wrong origin or host, 503 full, 4004 no such session."""


class ConnectionLost(RpcError):
    """The connection ended by itself. The session is still on the server."""

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        super().__init__(f"The connection was lost: {reason or code or 'the server did not say why'}")
        self.code = code
        """The close code; None if there was none."""
        self.reason = reason


class RequestFailed(RpcError):
    """The server could not do a request; the text is its own."""

    def __init__(self, message: str, kind: str | None = None, details: Any = None) -> None:
        super().__init__(message)
        self.kind = kind
        """Such as `processing_error` or `timeout_error`, if the server names it."""
        self.details = details
