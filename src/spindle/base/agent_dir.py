"""The directory of the user's settings, keys and sessions, shared with pi on purpose."""

import os
from pathlib import Path


def agent_dir() -> Path:
    """Return `SPINDLE_DIR`, else `PI_CODING_AGENT_DIR`, else `~/.pi/agent`. It may not exist yet."""
    named = os.environ.get("SPINDLE_DIR") or os.environ.get("PI_CODING_AGENT_DIR") or "~/.pi/agent"
    return Path(os.path.abspath(expand_home(named)))


def agent_dir_problem() -> str | None:
    """Say why the agent directory cannot be read; None if it can, or is not there yet."""
    home = agent_dir()
    try:
        os.scandir(home).close()
        os.stat(f"{home}/.")  # a folder may be listed and its files still be closed
    except FileNotFoundError:
        return None
    except OSError as error:
        return (
            f"Cannot read the agent directory {home}: {error.strerror}. Going on without its settings, keys and "
            "sessions; SPINDLE_DIR names another directory"
        )
    return None


def expand_home(path: str) -> str:
    """Replace a leading `~` or `~/`; `~name` stays as it is, as in pi."""
    if path == "~" or path.startswith(("~/", "~" + os.sep)):
        return os.path.expanduser("~") + path[1:]
    return path
