"""How Spindle was installed, and the commands that add a package to it or bring a newer Spindle.

A hint must be a command that works here: the installer that was used, for the environment we run in. Extras are named
by their packages, because the source of an installation (a checkout, a wheel) need not be there any more.
"""

import json
import shlex
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

NAME = "spindle-agent"


def extra_command(extra: str) -> str:
    """Return the command that installs the packages of one of our extras."""
    try:
        wanted = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:  # the source is on PYTHONPATH
        return _pip(f"{Path(__file__).parents[3]}[{extra}]")
    parts = (line.partition(";") for line in wanted)
    return install_command(*(need.strip() for need, _, marker in parts if f"extra == '{extra}'" in marker))


def install_command(*requirements: str) -> str:
    """Return the command that installs packages, or with `--upgrade` newer ones, beside this Spindle."""
    if _is_pipx() and not requirements[0].startswith("-"):
        return _line("pipx", "inject", NAME, *requirements)
    return _pip(*requirements)


def update_command() -> str:
    """Return the command that replaces this Spindle by a newer one, from where it was installed."""
    source, is_editable = _source()
    if is_editable:
        return _line("git", "-C", source, "pull")
    if source.endswith((".whl", ".tar.gz")):
        source = "NEW.whl"
    if _is_uv_tool():
        return _line("uv", "tool", "install", "--force", "--reinstall", source)
    if _is_pipx():
        return _line("pipx", "install", "--force", source)
    return _pip("--upgrade", source)


def _source() -> tuple[str, bool]:
    """Return a directory, file, address or name to install from, and whether the directory itself is in use."""
    try:
        direct = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return str(Path(__file__).parents[3]), True
    if direct is None:
        return NAME, False
    from urllib.parse import unquote, urlsplit

    facts = json.loads(direct)
    url: str = facts["url"]
    if "vcs_info" in facts:
        return f"{facts['vcs_info']['vcs']}+{url}", False
    return unquote(urlsplit(url).path) if url.startswith("file:") else url, bool(
        facts.get("dir_info", {}).get("editable")
    )


def _is_uv_tool() -> bool:
    return Path(sys.prefix, "uv-receipt.toml").is_file()


def _is_pipx() -> bool:
    return Path(sys.prefix, "pipx_metadata.json").is_file()


def _pip(*words: str) -> str:
    if find_spec("pip") is None or _is_uv_tool():
        return _line("uv", "pip", "install", "--python", sys.executable, *words)
    return _line(sys.executable, "-m", "pip", "install", *words)


def _line(*words: str) -> str:
    return shlex.join(words)
