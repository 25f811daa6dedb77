"""Resource packages that pi installed or that lie in a local directory. Spindle uses them and installs none."""

from pathlib import Path

from spindle.agent_dir import expand_home
from spindle.config.files import BadFile, read_object

__all__ = ["find_package", "package_entries"]


def find_package(source: str, base: Path) -> Path | None:
    """Return the directory of a package: `npm:` and `git:` ones where pi puts them below `base`, else a path."""
    if source.startswith("npm:"):
        name = source[4:]
        # A version follows the last @, but a scope begins with one.
        at = name.rfind("@")
        path = base / "npm" / "node_modules" / (name[:at] if at > 0 else name)
    elif source.startswith(("git:", "https://", "http://", "ssh://", "git@")):
        address = source.removeprefix("git:").split("://", 1)[-1].removeprefix("git@").replace(":", "/")
        path = base / "git" / address.split("@", 1)[0].removesuffix(".git")
    else:
        path = base / expand_home(source)
    return path if path.is_dir() else None


def package_entries(root: Path, kind: str) -> list[Path]:
    """Return what a package offers of one kind: what its manifest lists, else the directory of that name."""
    try:
        manifest = (read_object(root / "package.json") or {}).get("pi")
    except BadFile:
        manifest = None
    listed = manifest.get(kind) if isinstance(manifest, dict) else None
    if not isinstance(listed, list):
        return [root / kind]
    found: list[Path] = []
    for entry in listed:
        if isinstance(entry, str) and not entry.startswith("!"):
            pattern = entry.removeprefix("./").rstrip("/")
            found += sorted(root.glob(pattern)) if any(c in pattern for c in "*?[") else [root / pattern]
    return found
