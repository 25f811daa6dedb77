"""Tools of other programs over the Model Context Protocol. Nothing here is imported before a server is configured."""

from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]
"""A JSON object of the protocol."""


class McpError(Exception):
    """A server cannot be used, or refused a request; the text says why."""

    def __init__(self, text: str, code: int = 0, data: object = None) -> None:
        from spindle.base.strangers import words

        super().__init__(words(text))
        self.code = code
        """Code of the JSON-RPC error; 0 for other errors."""
        self.data = data


class LoginNeeded(McpError):
    """The server wants the user to log in."""


class Unreachable(McpError):
    """No server answers at the address, or the connection broke."""


class SessionForgotten(McpError):
    """The server did not process a request, because it does not know our session any more."""
