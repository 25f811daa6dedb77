"""Folders for the search tests: made from a description, listed by whoever is asked."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from shutil import which

import pytest

__all__ = ["fd", "listed_by", "make_tree", "rg"]


def make_tree(root: Path, files: Mapping[str, str]) -> None:
    """Write files; a name that ends with a slash is a folder."""
    for name, content in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


def rg() -> str:
    return which("rg") or pytest.skip("no ripgrep here")


def fd() -> str:
    return which("fd") or which("fdfind") or pytest.skip("no fd here")


def listed_by(*command: str, cwd: Path) -> list[str]:
    """Return the paths a program lists, sorted, relative to `cwd`."""
    environment = os.environ | {"HOME": "/nowhere", "XDG_CONFIG_HOME": "/nowhere"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    return sorted(os.path.relpath(cwd / line.rstrip("/"), cwd) for line in done.stdout.splitlines())
