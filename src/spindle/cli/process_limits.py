"""What holds for all sessions of a process together, as settings and command line have it."""

import os

from msgspec.structs import fields, replace

from spindle import children
from spindle.cli.args import Options, UsageError
from spindle.config.settings import Limits, Settings
from spindle.llm import gate


def chosen_limits(options: Options, settings: Settings) -> Limits:
    """Return the limits. Raises `UsageError`."""
    numbers = {item.encode_name: item.name for item in fields(Limits) if item.name != "roots"}
    given: dict[str, int] = {}
    for assignment in options.limit:
        name, _, text = assignment.partition("=")
        if name not in numbers:
            raise UsageError(f"Unknown limit {name!r}; there are {', '.join(numbers)}")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise UsageError(f"--limit {name} must be a whole number, not {text!r}")
        given[numbers[name]] = int(text)
    for root in options.roots:
        if not os.path.isdir(root):
            raise UsageError(f"--root: there is no directory {root}")
    return replace(settings.limits, **given, roots=options.roots or settings.limits.roots)


def apply(limits: Limits) -> None:
    """Put those in force that do not belong to the pool of sessions."""
    gate.most = limits.model_calls
    children.most = limits.children
