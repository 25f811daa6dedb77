"""Folders for the search tests, made from a description."""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["make_tree"]


def make_tree(root: Path, files: Mapping[str, str]) -> None:
    """Write files; a name that ends with a slash is a folder."""
    for name, content in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
