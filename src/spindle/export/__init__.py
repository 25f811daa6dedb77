"""A session as one HTML page that needs nothing but a browser.

`export_session` writes the page of an open session, `page.build_page` makes it from plain values, `command`
is behind `spindle --export`. The session file is never touched.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spindle.export.errors import ExportError

if TYPE_CHECKING:
    from spindle.sessions.manager import SessionManager
    from spindle.tools.base import Tool

__all__ = ["ExportError", "export_session"]


def export_session(
    store: "SessionManager",
    out: Path | None = None,
    *,
    system_prompt: str | None = None,
    tools: Sequence["Tool"] = (),
    redact: bool = False,
) -> Path:
    """Write the page of a session and return its path.

    Without `out` the page goes to the current folder. Raises `ExportError`: the session lives in memory only, has
    nothing in it yet, or the page cannot be written.
    """
    from spindle.export.output import write_page
    from spindle.export.page import build_page

    file = store.get_session_file() if store.is_persisted() else None
    if file is None:
        raise ExportError("Cannot export in-memory session to HTML")
    source = Path(file)
    # In this order, for the session may grow meanwhile: the leaf is always among the entries.
    leaf_id = store.get_leaf_id()
    entries = store.get_entries()
    if not source.exists() or not entries:
        raise ExportError("Nothing to export yet - start a conversation first")
    target = out if out is not None else Path(f"pi-session-{source.stem}.html")
    page = build_page(
        store.get_header().value,
        (entry.value for entry in entries),
        leaf_id,
        name=store.get_session_name(),
        system_prompt=system_prompt,
        tools=[{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools],
        damage_notes=[str(note) for note in store.damage],
        redact=redact,
    )
    write_page(target, page, source=source)
    return target
