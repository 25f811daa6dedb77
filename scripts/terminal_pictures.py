"""Make the pictures of docs/terminal.md: the real chat with a scripted model, in an emulated terminal, drawn as SVG.

.venv/bin/python scripts/terminal_pictures.py docs/pictures
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from html import escape
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.apps.console.terminal import Terminal

COLOURS = {
    "default": "#d4d4d4",
    "black": "#1e1e1e",
    "red": "#f48771",
    "green": "#89d185",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#d4d4d4",
}
WIDTH, HEIGHT, MARGIN = 8.4, 18, 12
ANSWER = """\
The parser reads **one line at a time** and keeps what is left:

- `receive` splits at newlines
- `close` gives the last line

| case | lines | bytes |
|---|--:|--:|
| small | 3 | 41 |
| large | 70,000 | 5,242,880 |

```python
def receive(self, data: bytes) -> list[bytes]:
    *lines, self.rest = (self.rest + data).split(b"\\n")
    return lines  # the rest waits
```
"""
EDIT = {"path": "lines.py", "edits": [{"oldText": "split()", "newText": 'split(b"\\n")'}]}
STEPS = [
    {"match": "explain", "thinking": "It is short. I read it once more.", "text": ANSWER, "usage": {"input": 5_100}},
    {"match": "fix", "calls": [{"name": "bash", "arguments": {"command": "python3 -m unittest 2>&1 | tail -3"}}]},
    {"match": "fix", "calls": [{"name": "edit", "arguments": EDIT}]},
    {"match": "fix", "text": "It split at blanks; now it splits at newlines.", "usage": {"input": 6_400}},
    {"match": "clean", "calls": [{"name": "bash", "arguments": {"command": "git clean -fdx build"}}]},
    {"match": "story", "text": ["Once upon a time there was a parser that", {"wait": 60}]},
    "Fine.",
]


def picture(terminal: Terminal) -> str:
    """Draw the screen, without the empty rows above and below."""
    used = [y for y, row in enumerate(terminal.screen.display) if row.strip()]
    rows = range(used[0], used[-1] + 1)
    width, height = terminal.screen.columns * WIDTH + 2 * MARGIN, len(rows) * HEIGHT + 2 * MARGIN
    texts = []
    for y, row in enumerate(rows):
        line = terminal.screen.buffer[row]
        cells = [(x, line[x]) for x in range(terminal.screen.columns)]
        for look, group in groupby(cells, lambda item: (item[1].fg, item[1].bold, item[1].reverse)):
            run = list(group)
            text = "".join(cell.data for _, cell in run).rstrip()
            if not text:
                continue
            colour = COLOURS.get(look[0].replace("bright", ""), COLOURS["default"])
            weight = ' font-weight="bold"' if look[1] else ""
            at = f'x="{MARGIN + run[0][0] * WIDTH:.1f}" y="{MARGIN + y * HEIGHT + 13}"'
            length = f'textLength="{len(text) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
            texts.append(f'<text {at} {length} fill="{colour}"{weight} xml:space="preserve">{escape(text)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}">'
    style = 'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14"'
    box = f'<rect width="100%" height="100%" rx="6" fill="{COLOURS["black"]}"/>'
    return "\n".join([head, box, f"<g {style}>", *texts, "</g>", "</svg>", ""])


def conversation(terminal: Terminal) -> None:
    terminal.enter("explain lines.py")
    terminal.wait_for("the rest waits", "4% of 128K")
    terminal.enter("fix the test")
    terminal.wait_for("splits at newlines.", "5% of 128K")
    terminal.quiet()


def question(terminal: Terminal) -> None:
    terminal.enter("clean up")
    terminal.wait_for("n  Deny")
    terminal.quiet()


def queue(terminal: Terminal) -> None:
    terminal.enter("a story, please")
    terminal.wait_for("a parser that")
    terminal.enter("make it short")
    terminal.wait_for("queued: make it short")
    terminal.keys("then run the tests\x1b\r")
    terminal.wait_for("queued: then run")
    terminal.keys("/th")
    terminal.wait_for("/thinking ")
    terminal.quiet()


def tree(terminal: Terminal) -> None:
    for text in ("hello", "what is in lines.py?", "and in the tests?"):
        terminal.enter(text)
        terminal.wait_for(f"❯ {text}\n\nFine.\n\n❯\n")
    terminal.enter("/tree")
    terminal.wait_for("Go on from where?")
    terminal.quiet()


SCENES: dict[str, tuple[Callable[[Terminal], None], list[str], int, int]] = {
    "conversation": (conversation, [], 90, 42),
    "question": (question, ["--permission-mode", "default"], 60, 20),
    "queue": (queue, [], 70, 20),
    "tree": (tree, [], 70, 30),
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (play, arguments, columns, lines) in SCENES.items():
        with tempfile.TemporaryDirectory() as root:
            project, agent = Path(root, "project"), Path(root, "agent")
            Path(project, ".git").mkdir(parents=True)
            Path(project, ".git", "HEAD").write_text("ref: refs/heads/main\n")
            Path(project, "lines.py").write_text("def lines(data):\n    return data.split()\n")
            script = Path(root, "model.json")
            script.write_text(json.dumps(STEPS))
            env = {"PATH": os.environ["PATH"], "HOME": root, "SPINDLE_DIR": str(agent), "LANG": "C.UTF-8"}
            env["TERM"] = "xterm-256color"
            command = ["--model", f"scripted/{script}", *arguments]
            with Terminal(command, env=env, cwd=project, columns=columns, lines=lines) as terminal:
                terminal.wait_for("0% of 128K")
                play(terminal)
                Path(folder, f"{name}.svg").write_text(picture(terminal))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
