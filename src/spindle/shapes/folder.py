"""The files around a session, as clients see them."""

from spindle.shapes.messages import Wire


class FolderEntry(Wire, kw_only=True):
    name: str
    kind: str
    """`folder`, `file`, or `other`: a pipe, a socket, a device, a link to nowhere."""
    size: int | None = None
    """Bytes of a file."""
    link: str | None = None
    """Where a link leads, in its own words."""
    is_closed: bool = False
    """Whether the agent may not read it, so that it is not shown either."""


class FolderContent(Wire):
    path: str
    """Absolute, without links."""
    entries: list[FolderEntry]
    """Folders first."""
    total: int
    """How many there are; there are at most 2,000 in `entries`."""


class FilePart(Wire, kw_only=True):
    path: str
    """Absolute, without links."""
    kind: str
    """`text`, `image`, or `binary`, of which nothing is shown."""
    size: int
    """Bytes of the whole file."""
    text: str = ""
    """A part of a text, at most 1 MiB."""
    byte: int = 0
    """Where the part begins."""
    line: int | None = None
    """The number of its first line; left out if it was asked for by its byte. 1 if the file has fewer lines."""
    next_byte: int | None = None
    """Where the next part begins; left out at the end of the file."""
    mime_type: str | None = None
    """Of an image."""
    data: str | None = None
    """The image in base64; left out if it has more than 8 MiB."""
