"""Where Spindle keeps what belongs to the user: one directory, shared with pi on purpose."""

import os
from pathlib import Path


def agent_dir() -> Path:
    """Return `SPINDLE_DIR`, else `PI_CODING_AGENT_DIR`, else `~/.pi/agent`. It may not exist yet."""
    named = os.environ.get("SPINDLE_DIR") or os.environ.get("PI_CODING_AGENT_DIR") or "~/.pi/agent"
    return Path(os.path.abspath(expand_home(named)))


def expand_home(path: str) -> str:
    """Replace a leading `~` or `~/`; `~name` stays as it is, as in pi."""
    if path == "~" or path.startswith(("~/", "~" + os.sep)):
        return os.path.expanduser("~") + path[1:]
    return path
