"""Links to conversations, as commands tell them."""

from spindle.shapes.messages import Wire


class LinkInfo(Wire):
    link: str
    """The page opens it as `#shared=…` of its address, a client as `?shared=…` of `/rpc`."""
    session: str
    """Id of the conversation."""
    created: str
