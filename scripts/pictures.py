"""Make the pictures of README.md and docs/: the real program with a scripted model, on an emulated terminal (drawn as
SVG) and in Chromium (PNG).

.venv/bin/python scripts/pictures.py docs/pictures [NAME …]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from PIL import Image
from playwright.sync_api import sync_playwright
from tests.apps.console.terminal import Terminal
from tests.browser.conftest import CHROMIUM, FLAGS

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
FILES = {
    ".gitignore": "__pycache__/\n",
    "lines.py": "def lines(data):\n    return data.split()\n",
    "test_lines.py": """\
import unittest
from lines import lines

class LinesTest(unittest.TestCase):
    def test_blanks_stay(self):
        self.assertEqual(lines(b"a b\\nc"), [b"a b", b"c"])

    def test_nothing(self):
        self.assertEqual(lines(b""), [])
""",
}
TEST = {"name": "bash", "arguments": {"command": "python3 -m unittest"}}
EDIT = {"path": "lines.py", "edits": [{"oldText": "split()", "newText": "splitlines()"}]}
FIXED = """\
`lines` split at blanks too, so `a b` became two lines. Now it splits at line ends:

| input | before | now |
|---|---|---|
| `a b\\nc` | `a`, `b`, `c` | `a b`, `c` |

Both tests pass.
"""
MODULES = ("billing", "cart", "mail", "orders", "pages", "prices", "search", "stock", "tags", "taxes", "users", "views")
ASKED = "The test fails. Find out why and fix it."
STEPS = [
    {"match": "explain", "thinking": "It is short. I read it once more.", "text": ANSWER, "usage": {"input": 5_100}},
    {"match": "fails", "text": "I run the test first.", "calls": [TEST]},
    {"match": "fails", "calls": [{"name": "read", "arguments": {"path": "lines.py"}}]},
    {"match": "fails", "calls": [{"name": "edit", "arguments": EDIT}]},
    {"match": "fails", "calls": [TEST]},
    {"match": "fails", "text": FIXED, "usage": {"input": 6_400, "output": 310}},
    {"match": "clean", "calls": [{"name": "bash", "arguments": {"command": "git clean -fdx build"}}]},
    {"match": "story", "text": ["Once upon a time there was a parser that", {"wait": 60}]},
    {
        "match": "hints",
        "delay": 0.6,
        "calls": [{"name": "bash", "arguments": {"command": "sleep $(($$ % 4 + 1)); ls src"}}],
    },
    {"match": "hints", "delay": 0.4, "text": "Done.", "usage": {"input": 2_100, "output": 140}},
    "Fine.",
]


@dataclass
class Stage:
    """A project and a home of its own, and a model that answers from `STEPS`."""

    project: Path
    env: dict[str, str]
    model: list[str]

    def spindle(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "spindle", *arguments]


@contextmanager
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory() as root:
        project = Path(root, "home", "project")
        for name, content in FILES.items():
            Path(project, name).parent.mkdir(parents=True, exist_ok=True)
            Path(project, name).write_text(content)
        Path(project, "demo").write_text(json.dumps(STEPS))
        subprocess.run(["git", "init", "-q", "-b", "main", str(project)], check=True)
        env = {"PATH": os.environ["PATH"], "HOME": str(project.parent), "SPINDLE_DIR": str(Path(root, "agent"))}
        yield Stage(project, env | {"LANG": "C.UTF-8", "TERM": "xterm-256color"}, ["--model", "scripted/demo"])


# -- on a terminal -------------------------------------------------------------------------------


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
            colour = COLOURS.get(look[0].replace("bright", "")) or f"#{look[0]}"  # of 256, or of all
            weight = ' font-weight="bold"' if look[1] else ""
            at = f'x="{MARGIN + run[0][0] * WIDTH:.1f}" y="{MARGIN + y * HEIGHT + 13}"'
            length = f'textLength="{len(text) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
            texts.append(f'<text {at} {length} fill="{colour}"{weight} xml:space="preserve">{escape(text)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}">'
    style = 'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14"'
    box = f'<rect width="100%" height="100%" rx="6" fill="{COLOURS["black"]}"/>'
    return "\n".join([head, box, f"<g {style}>", *texts, "</g>", "</svg>", ""])


def run(terminal: Terminal) -> None:
    terminal.enter(ASKED)
    terminal.wait_for("Both tests pass.", "5% of 128K")
    terminal.quiet()


def conversation(terminal: Terminal) -> None:
    terminal.enter("explain lines.py")
    terminal.wait_for("the rest waits", "4% of 128K")
    run(terminal)


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
    "run": (run, [], 84, 40),
    "conversation": (conversation, [], 90, 52),
    "question": (question, ["--permission-mode", "default"], 60, 20),
    "queue": (queue, [], 70, 20),
    "tree": (tree, [], 70, 30),
}


def chat(name: str) -> bytes:
    play, arguments, columns, lines = SCENES[name]
    with stage() as at:
        command = [*at.model, *arguments]
        with Terminal(command, env=at.env, cwd=at.project, columns=columns, lines=lines) as terminal:
            terminal.wait_for("0% of 128K")
            play(terminal)
            return picture(terminal).encode()


def batch() -> bytes:
    with stage() as at:
        for name in MODULES:
            Path(at.project, "src").mkdir(exist_ok=True)
            Path(at.project, "src", f"{name}.py").write_text("def main():\n    return 1\n")
        me = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        for words in (["init", "-q"], ["add", "."], [*me, "commit", "-qm", "Begin"]):
            subprocess.run(["git", *words], cwd=at.project, env=at.env, check=True)
        tasks = [{"id": name, "repo": ".", "prompt": f"Add type hints to src/{name}.py"} for name in MODULES]
        Path(at.project, "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
        command = ["batch", "tasks.jsonl", "-o", "runs", "-j", "4", "--verify", 'test "$SPINDLE_TASK_ID" != cart']
        with Terminal([*command, *at.model], env=at.env, cwd=at.project, columns=84, lines=12) as terminal:
            terminal.wait_for(" of 12 done, 1 failed, 4 running", " left", " bash ")
            return picture(terminal).encode()


# -- in a browser --------------------------------------------------------------------------------


def page() -> bytes:
    with stage() as at, served(at) as address, browser() as tab:
        tab.goto(address)
        tab.wait_for_selector("#prompt")
        tab.fill("#prompt", ASKED)
        tab.press("#prompt", "Enter")
        tab.get_by_text("Both tests pass.").first.wait_for()
        tab.wait_for_timeout(800)
        return shot(tab)


def export() -> bytes:
    with stage() as at, browser() as tab:
        run_spindle(at, "--session", "talk.jsonl", *at.model, "-p", ASKED)
        run_spindle(at, "--export", "talk.jsonl", "talk.html")
        tab.goto(Path(at.project, "talk.html").as_uri())
        tab.wait_for_selector("html.ready", state="attached")
        return shot(tab)


def run_spindle(at: Stage, *arguments: str) -> None:
    subprocess.run(at.spindle(*arguments), cwd=at.project, env=at.env, check=True, capture_output=True)


@contextmanager
def served(at: Stage) -> Iterator[str]:
    command = at.spindle("--remote", "127.0.0.1:0", *at.model)
    with subprocess.Popen(command, cwd=at.project, env=at.env, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            found = re.search(r"Listening on (\S+)", server.stderr.readline())
            assert found is not None
            yield found[1]
        finally:
            server.terminate()


@contextmanager
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium.new_page(viewport={"width": 1200, "height": 860}, color_scheme="light")
        chromium.close()


def shot(tab: Any) -> bytes:
    """Return a picture of the window, with 128 colours, which is a third of the bytes."""
    small = BytesIO()
    Image.open(BytesIO(tab.screenshot())).convert("RGB").quantize(128).save(small, "PNG", optimize=True)
    return small.getvalue()


MADE: dict[str, Callable[[], bytes]] = {
    **{f"{name}.svg": lambda name=name: chat(name) for name in SCENES},  # type: ignore[misc]
    "batch.svg": batch,
    "page.png": page,
    "export.png": export,
}


def main(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in MADE.items():
        if not names or name.partition(".")[0] in names:
            Path(folder, name).write_bytes(make())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
