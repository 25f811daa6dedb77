"""Why a session could not be exported, in words for the person who asked."""

__all__ = ["ExportError"]


class ExportError(Exception):
    """The page was not written; nothing was changed."""
