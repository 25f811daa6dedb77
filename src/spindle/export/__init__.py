"""A session as one HTML page that needs nothing but a browser.

`export_session` writes the page of an open session, `page.build_page` makes it from plain values, `command`
is behind `spindle --export`. The session file is never touched.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from .errors import ExportError

__all__ = ["ExportError", "SessionSource", "export_session"]


class _Line(Protocol):
    @property
    def value(self) -> dict[str, Any]: ...


class SessionSource(Protocol):
    """What export needs of a session manager."""

    def get_header(self) -> _Line: ...
    def get_entries(self) -> Sequence[_Line]: ...
    def get_leaf_id(self) -> str | None: ...
    def get_session_name(self) -> str | None: ...
    def is_persisted(self) -> bool: ...
    def get_session_file(self) -> Path | None: ...


def export_session(
    store: SessionSource,
    out: Path | None = None,
    *,
    system_prompt: str | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    redact: bool = False,
) -> Path:
    """Write the page of a session and return its path.

    `tools` are `{name, description, parameters}` as the model sees them. Without `out` the page goes to the current
    folder. Raises `ExportError`: the session lives in memory only, has no messages yet, or the page cannot be written.
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
        tools=tools,
        damage_notes=[str(note) for note in getattr(store, "damage", ())],
        redact=redact,
    )
    write_page(target, page, source=source)
    return target
