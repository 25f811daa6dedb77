"""Requests to a client: dialogs, and calls of the tools and addresses that it serves."""

from typing import Any, ClassVar, Literal

from spindle.shapes.events import Event


class ExtensionUIRequest(Event, kw_only=True, tag="extension_ui_request"):
    """A question or message of an extension for the user; which fields are set depends on the method."""

    type: ClassVar[Literal["extension_ui_request"]]
    id: str
    method: str
    """Dialogs: `select`, `confirm`, `input`, `editor`. Others need no answer."""
    title: str | None = None
    options: list[str] | None = None
    message: str | None = None
    placeholder: str | None = None
    prefill: str | None = None
    timeout: int | None = None
    """Milliseconds after which the agent goes on without an answer."""
    notify_type: str | None = None
    status_key: str | None = None
    status_text: str | None = None
    widget_key: str | None = None
    widget_lines: list[str] | None = None
    widget_placement: str | None = None
    text: str | None = None
    url: str | None = None
    """With `open_url`: an address to open in a browser."""
    instructions: str | None = None
    target_id: str | None = None
    """With `cancel`: the dialog that is withdrawn."""
    tool_call_id: str | None = None
    """The tool call that the question is about, if any."""
    always: list[str] | None = None
    """Rules that the reply `always: true` to such a question adds to the conversation."""
    offers: list[str] | None = None
    """With `confirm`: texts of which `always` may name one, from the rules above to wider ones; a `select` has them
    among its options."""


class HostUriRequest(Event, kw_only=True, tag="host_uri_request"):
    """A request to the client, after `set_host_uri_schemes`: read or write an address, and send `host_uri_result`
    with this id: `content`, or `isError: true` and `error`."""

    type: ClassVar[Literal["host_uri_request"]]
    id: str
    operation: Literal["read", "write"]
    url: str
    content: str | None = None
    """With `write`."""


class HostUriCancel(Event, tag="host_uri_cancel"):
    """A request to the client is withdrawn."""

    type: ClassVar[Literal["host_uri_cancel"]]
    id: str
    target_id: str


class HostToolCall(Event, tag="host_tool_call"):
    """A request to the client: run your tool and send `host_tool_result` with this id."""

    type: ClassVar[Literal["host_tool_call"]]
    id: str
    tool_call_id: str
    tool_name: str
    arguments: Any


class HostToolCancel(Event, tag="host_tool_cancel"):
    """The client may stop its tool; a result would be ignored."""

    type: ClassVar[Literal["host_tool_cancel"]]
    id: str
    target_id: str
    """The id of the `host_tool_call`."""
