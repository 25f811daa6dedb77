"""A session as one HTML page that needs nothing but a browser.

`export_session` writes the page of an open session, `page.build_page` makes it from plain values, `command`
is behind `spindle --export`. The session file is never touched.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from .errors import ExportError

__all__ = ["ExportError", "SessionSource", "ToolSource", "export_session"]


class _Line(Protocol):
    @property
    def value(self) -> dict[str, Any]: ...


class ToolSource(Protocol):
    """What export shows of a tool."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Any: ...


class SessionSource(Protocol):
    """What export needs of a session manager."""

    @property
    def damage(self) -> Iterable[object]: ...
    def get_header(self) -> _Line: ...
    def get_entries(self) -> Sequence[_Line]: ...
    def get_leaf_id(self) -> str | None: ...
    def get_session_name(self) -> str | None: ...
    def is_persisted(self) -> bool: ...
    def get_session_file(self) -> str | None: ...


def export_session(
    store: SessionSource,
    out: Path | None = None,
    *,
    system_prompt: str | None = None,
    tools: Sequence[ToolSource] = (),
    redact: bool = False,
) -> Path:
    """Write the page of a session and return its path.

    Without `out` the page goes to the current folder. Raises `ExportError`: the session lives in memory only, has
    nothing in it yet, or the page cannot be written.
    """
    from .output import write_page
    from .page import build_page

    file = store.get_session_file() if store.is_persisted() else None
    if file is None:
        raise ExportError("Cannot export in-memory session to HTML")
    source = Path(file)
    entries = [entry.value for entry in store.get_entries()]
    if not source.exists() or not entries:
        raise ExportError("Nothing to export yet - start a conversation first")
    target = out if out is not None else Path(f"pi-session-{source.stem}.html")
    page = build_page(
        store.get_header().value,
        entries,
        store.get_leaf_id(),
        name=store.get_session_name(),
        system_prompt=system_prompt,
        tools=[{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools],
        damage_notes=[str(note) for note in store.damage],
        redact=redact,
    )
    write_page(target, page, source=source)
    return target
