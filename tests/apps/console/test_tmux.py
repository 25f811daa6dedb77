"""The chat in tmux, which breaks lines anew when it is resized, and keeps a scrollback."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.apps.cli.conftest import Place

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux on this machine")


class Tmux:
    def __init__(self, place: Place) -> None:
        self._env = place.environment()
        self._place = place

    def run(self, *arguments: str) -> str:
        command = ["tmux", "-f", "/dev/null", "-S", str(self._place.root / "socket"), *arguments]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=20, check=True).stdout

    def start(self, *arguments: str, program: str = f"{sys.executable} -m spindle") -> None:
        command = f"{program} {' '.join(arguments)}; echo ended with $?; stty -a; sleep 60"
        self.run("new-session", "-d", "-x", "100", "-y", "40", "-c", str(self._place.project), command)
        self.run("set-option", "-g", "window-size", "manual")

    def text(self) -> str:
        return self.run("capture-pane", "-p", "-S", "-")

    def keys(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def settle(self) -> None:
        """Wait until nothing moves any more: tmux tells of a new size late, and drawing waits for the last one."""
        before = ""
        while before != (before := self.text()):
            time.sleep(0.7)

    def wait_for(self, *wanted: str) -> str:
        end = time.monotonic() + 20
        while not all(part in (text := self.text()) for part in wanted):
            assert time.monotonic() < end, f"waited for {wanted}; there is:\n{text}"
            time.sleep(0.1)
        return text


@pytest.fixture
def tmux(place: Place) -> Iterator[Tmux]:
    tmux = Tmux(place)
    yield tmux
    subprocess.run(["tmux", "-S", str(place.root / "socket"), "kill-server"], capture_output=True, timeout=20)


def test_resizing_while_an_answer_comes(place: Place, tmux: Tmux) -> None:
    code = "```python\n" + "\n".join(f"x{number} = {number}" for number in range(60)) + "\n```"
    story = " ".join(f"word{number}" for number in range(60))
    tmux.start("--model", place.script(code, {"text": [story, {"wait": 30}]}))
    tmux.wait_for("0% of 1")
    tmux.keys("some code", "Enter")
    tmux.wait_for("x59 = 59\n```\n\n❯\n")
    tmux.keys("tell me a story", "Enter")
    tmux.wait_for("word59\n❯\n")
    for columns in (60, 100, 80):
        tmux.run("resize-window", "-x", str(columns), "-y", "40")
        text = tmux.wait_for("word59\n❯\n")
        assert len(re.findall("(?m)^❯$", text)) == 1, text
        assert len(re.findall(r"(?m)^script.json \(", text)) == 1, text
        assert len(re.findall("word59", text)) == 1, text
    tmux.keys("Escape")
    text = tmux.wait_for("Interrupted\n\n❯\n")
    for number in range(60):  # all of it is in the scrollback, once
        assert len(re.findall(rf"\bword{number}\b", text)) == 1, text
        assert text.count(f"\nx{number} = {number}\n") == 1, text
    tmux.keys("C-d")
    text = tmux.wait_for("ended with 0", " echo ")
    assert " icanon " in text


@pytest.mark.parametrize("widths", [(25, 100, 50), range(98, 70, -1)], ids=["jumps", "steps"])
def test_getting_narrower_before_the_screen_is_full(place: Place, tmux: Tmux, widths: Sequence[int]) -> None:
    story = " ".join(f"word{number}" for number in range(90))
    tmux.start("--model", place.script({"text": [story, {"wait": 30}]}))
    tmux.wait_for("0% of 1")
    tmux.keys("go", "Enter")
    tmux.wait_for("word89\n❯\n")
    for columns in widths:
        tmux.run("resize-window", "-x", str(columns), "-y", "40")
        if len(widths) < 10:
            tmux.settle()
    tmux.settle()
    tmux.keys("Escape")
    text = tmux.wait_for("Interrupted\n\n❯\n")
    assert "Everything runs unasked" in text and "\n\n❯ go\n" in text  # nothing above was taken away
    for number in range(90):  # nothing of the unfinished paragraph has stayed in the scrollback
        assert len(re.findall(rf"\bword{number}\b", text)) == 1, text


def test_jumps_while_an_answer_comes_before_the_screen_is_full(place: Place, tmux: Tmux) -> None:
    words = [f"word{number}" for number in range(140)]
    text = [f"{word} " for word in words[:100]] + ["\n\n"] + [f"{word} " for word in words[100:]]
    tmux.start("--model", place.script({"text": text, "pace": 0.02}))
    tmux.wait_for("0% of 1")
    tmux.keys("go", "Enter")
    for seen, columns in enumerate((25, 100, 50, 30, 100)):
        tmux.wait_for(f"word{20 * seen + 40}")
        tmux.run("resize-window", "-x", str(columns), "-y", "40")
    tmux.wait_for("word139")
    tmux.settle()
    text = tmux.text()
    assert re.findall(r"\bword\d+\b", text) == words, text  # type: ignore[call-overload]
    assert len(re.findall("(?m)^❯ go$", text)) == len(re.findall("(?m)^❯$", text)) == 1, text  # type: ignore[call-overload]


def test_jumps_over_a_slow_line_leave_nothing_on_the_screen(place: Place, tmux: Tmux) -> None:
    """3,000 bytes a second, 0.2 seconds late: drawings for one width meet a window of another."""
    words = [f"word{number}" for number in range(160)]
    text = [piece for at in range(0, 160, 40) for piece in [*(f"{word} " for word in words[at : at + 40]), "\n\n"]]
    line = Path(__file__).parent / "slow_line.py"
    model = place.script({"text": text, "pace": 0.02})
    tmux.start("--model", model, program=f"{sys.executable} {line} 3000 0.2 {sys.executable} -m spindle")
    tmux.wait_for("0% of 1")
    tmux.keys("go", "Enter")
    for seen, columns in ((10, 30), (30, 100), (50, 45), (70, 90)):
        tmux.wait_for(f"word{seen} ")
        tmux.run("resize-window", "-x", str(columns), "-y", "40")
    tmux.wait_for("word159", "% of 128K · bypass")
    tmux.settle()
    time.sleep(1)  # a late answer of the terminal
    tmux.settle()
    screen = tmux.run("capture-pane", "-p", "-J")  # a word may stand in two rows
    seen_words = re.findall(r"\bword\d+", screen)
    assert seen_words == words[words.index(seen_words[0]) :], screen
    assert len(re.findall("(?m)^❯$", screen)) == len(re.findall(r"(?m)^script.json \(", screen)) == 1, screen


def test_killing_the_agent_leaves_the_session_whole(place: Place, tmux: Tmux) -> None:
    tmux.start("--model", place.script({"text": ["Half an answer", {"wait": 30}]}))
    tmux.wait_for("0% of 1")
    tmux.keys("go", "Enter")
    tmux.wait_for("Half an answer")
    tmux.run("run-shell", "kill -9 $(pgrep -P #{pane_pid})")
    tmux.wait_for("ended with 137")
    done = place.run("-c", "-p", "and?", "--model", place.script("Whole."))
    assert (done.returncode, done.stdout) == (0, "Whole.\n")
