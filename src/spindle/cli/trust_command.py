"""`spindle trust [--no] [DIR]`: remember whether a project may bring its own settings, prompts and code."""

from pathlib import Path

from spindle.agent_dir import agent_dir
from spindle.cli.args import UsageError
from spindle.config.user_files import BadFile
from spindle.resources.trust import TrustStore, gated_paths

__all__ = ["run"]


def run(argv: list[str]) -> int:
    """Write the decision to `trust.json` and say what it covers. Raises `UsageError`."""
    trusted = "--no" not in argv
    places = [argument for argument in argv if argument != "--no"]
    if len(places) > 1 or any(place.startswith("-") for place in places):
        raise UsageError("usage: spindle trust [--no] [DIR]")
    directory = Path(places[0] if places else ".").resolve()
    if not directory.is_dir():
        raise UsageError(f"Not a directory: {directory}")
    try:
        TrustStore(agent_dir()).remember(directory, trusted)
    except (BadFile, OSError) as error:
        raise UsageError(f"Cannot remember it: {error}") from None
    covered = ", ".join(str(path) for path in gated_paths(directory)) or "nothing there yet"
    print(f"{'Trusted' if trusted else 'Not trusted'} from now on: {directory} ({covered})")
    return 0
