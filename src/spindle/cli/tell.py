"""What the person at the command line is told: one line on stderr."""

import sys

__all__ = ["tell", "warn"]


def tell(kind: str, text: str) -> None:
    # Advice follows some texts after a blank line; here it belongs on the same one.
    print(f"{kind}: " + text.replace("\n\n", " "), file=sys.stderr)


def warn(text: str) -> None:
    tell("Warning", text)
