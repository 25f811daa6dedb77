"""The common shape of answers that are lists: lines, a byte limit, and one bracket of remarks on what is missing."""

from typing import Any

from spindle.shapes.events import ToolResult
from spindle.tools.base import text_result
from spindle.tools.text import format_size
from spindle.tools.truncate import MAX_BYTES, NO_LINE_LIMIT, truncate_head

__all__ = ["listing_result"]


def listing_result(lines: list[str], limits: dict[str, Any], limit_notice: str = "", remark: str = "") -> ToolResult:
    """Return the lines, cut at the byte limit.

    `limits` are details about limits that were reached, `limit_notice` says so in words; `remark` comes last.
    """
    output = truncate_head("\n".join(lines), NO_LINE_LIMIT)
    details = {**limits, "truncation": output} if output.truncated else limits
    notices = (limit_notice, f"{format_size(MAX_BYTES)} limit reached" if output.truncated else "", remark)
    bracket = ". ".join(notice for notice in notices if notice)
    return text_result(f"{output.content}\n\n[{bracket}]" if bracket else output.content, details or None)
