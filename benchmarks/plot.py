"""A picture of the table that the benchmark writes into a page: how many times better than pi, and where worse.

`make bench` draws it after each run; `python -m benchmarks.plot` draws the table that docs/benchmarks.md has.
"""

import math
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

from benchmarks.scenarios import FIGURES

__all__ = ["bars", "draw", "plot"]

TITLE = "Spindle beside pi: how many times better (a logarithmic scale)"
LABELS, WIDTH, LINE, HEAD = 345, 860, 26, 58
"""Where the bars begin, where the picture ends, the height of a bar with its gap, the height of title and scale."""
BETTER, WORSE, TEXT, FAINT = "#2f8f6b", "#c0653a", "#24292f", "#8b949e"


def draw(page: Path) -> None:
    """Draw the table of a page into the folder `pictures` beside it."""
    picture = page.parent / "pictures" / "benchmarks.svg"
    picture.parent.mkdir(exist_ok=True)
    picture.write_text(plot(page.read_text()))


def plot(page: str) -> str:
    """Return the table of a page as bars, as SVG."""
    return bars(TITLE, "as pi", _ratios(page))


def bars(title: str, same: str, ratios: Mapping[str, float]) -> str:
    """Return how many times better each figure is, on a scale of doublings, as SVG; `same` is the name of 1."""
    steps = range(min(-1, math.floor(math.log2(min(ratios.values())))), math.ceil(math.log2(max(ratios.values()))) + 1)
    unit = (WIDTH - LABELS - 60) / (steps[-1] - steps[0])
    zero, height = LABELS - steps[0] * unit, HEAD + len(ratios) * LINE + 14
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
        f"<title>{title}</title>",
        '<rect width="100%" height="100%" rx="6" fill="#ffffff"/>',
        '<g font-family="system-ui, Segoe UI, Helvetica, Arial, sans-serif" font-size="13">',
        f'<text x="16" y="24" font-size="15" font-weight="bold" fill="{TEXT}">{title}</text>',
    ]
    for step in steps:
        x = LABELS + (step - steps[0]) * unit
        name = same if step == 0 else f"{2**step:g}×"
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD - 6}" y2="{height - 8}" stroke="#d8dee4"/>')
        lines.append(f'<text x="{x:.1f}" y="{HEAD - 12}" text-anchor="middle" fill="{FAINT}">{name}</text>')
    for number, (label, ratio) in enumerate(ratios.items()):
        y, end = HEAD + number * LINE, zero + math.log2(ratio) * unit
        left, width = min(zero, end), max(abs(end - zero), 1.5)
        colour = BETTER if ratio >= 1 else WORSE
        lines += [
            f'<text x="{LABELS - 12}" y="{y + 15}" text-anchor="end" fill="{TEXT}">{escape(label)}</text>',
            f'<rect x="{left:.1f}" y="{y + 2}" width="{width:.1f}" height="{LINE - 8}" rx="2" fill="{colour}"/>',
            f'<text x="{max(zero, end) + 6:.1f}" y="{y + 15}" font-weight="bold" fill="{colour}">{ratio:.2g}×</text>',
        ]
    return "\n".join([*lines, "</g>", "</svg>", ""])


def _ratios(page: str) -> dict[str, float]:
    """Return title → how many times better, for the figures of a page of which more or less is better."""
    better = {figure.title: figure.more_is_better for figure in FIGURES.values()}
    rows = re.findall(r"^\| (.+?) \| .+? \| .+? \| ([\d.]+) \| \d+ \|$", page, re.MULTILINE)
    found = {title: float(ratio) for title, ratio in rows if better.get(title) is not None}
    return {re.sub(r" \(\w+\)$|`", "", title): ratio if better[title] else 1 / ratio for title, ratio in found.items()}


if __name__ == "__main__":
    draw(Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md")
