"""The benchmark runs, as far as it needs only us: a figure that it gives is a figure of something that happened."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import one_shots
from benchmarks.__main__ import part
from benchmarks.codex import measured, spindle
from benchmarks.peers import ROOT, our_peer, state_peer
from benchmarks.scenarios import FIGURES, full_form, start, tools
from benchmarks.states import FIGURES as CPU_FIGURES
from benchmarks.states import check_source
from benchmarks.subagents import measured as measured_subagents
from benchmarks.team import measured as measured_team

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@pytest.fixture
def model():
    module = [sys.executable, "-m", "benchmarks.fast_model"]
    with subprocess.Popen(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()


def test_a_table_of_figures(model, tmp_path):
    peers = {
        form: [our_peer(tmp_path, model, form), our_peer(tmp_path, model, form, title="other")]
        for form in ("delta", "full")
    }
    samples = {}
    for peer in peers["delta"]:
        for figure, value in {**start(peer), **tools(peer)}.items():
            samples.setdefault(figure, {})[peer.title] = [value]
    text = part(peers, samples, 1.0)
    assert all(FIGURES[figure].title in text for figure in samples)


def test_the_full_form_is_counted(model, tmp_path):
    figures = full_form(our_peer(tmp_path, model, "full"))
    assert figures["paced"] > 1 and figures["unpaced"] > 0.1


def test_what_sessions_take_beside_another_program(tmp_path):
    figures = measured(spindle(tmp_path), {"type": "open_session"}, 3)
    assert figures["with 3 sessions (MiB)"] > figures["started (MiB)"] > 10
    assert figures["opening one, median (ms)"] > 0


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the history")
@pytest.mark.parametrize(("bound", "code"), [("0.001", 1), ("1000", 0)])
def test_a_table_beside_an_earlier_state(bound, code):
    module = [sys.executable, "-m", "benchmarks", "--base", "HEAD", "--scale", "0", "--bound", bound]
    done = subprocess.run(module, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [one.title for one in CPU_FIGURES.values()]
    too_much = [line for line in done.stderr.splitlines() if "more than" in line]
    assert [line.startswith("CPU of ") for line in too_much] == [True] * (8 if code else 0)


def test_a_state_is_measured_by_its_own_code(tmp_path):
    check_source(state_peer(tmp_path, "http://127.0.0.1:9", ROOT / "src", "ours"))
    with pytest.raises(RuntimeError, match="would run"):
        check_source(state_peer(tmp_path, "http://127.0.0.1:9", tmp_path / "src", "base"))


def test_a_hundred_subagents_at_once(model, tmp_path):
    figures = measured_subagents(tmp_path, model, 100)
    # Each streams for two seconds: on a busy machine the first may end before the last begins.
    assert figures["subagents that stream at once"] > 50
    assert figures["100 subagents, above it (MiB)"] < 50
    assert figures["get_state meanwhile, median (ms)"] < 1000 * figures["all together (s)"] / 40


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_team_loses_nothing_over_a_restart_under_load(tmp_path, number):
    found = measured_team(tmp_path, users=3, sessions=2, seconds=3, pause=0.2, number=number)
    lost = {name: found[name] for name in found if "not stored" in name or "stored twice" in name}
    assert len(lost) == 3 and set(lost.values()) == {0}, found
    assert found["connections that came back"] >= 6 and found["prompts that were accepted"] >= 6, found
    assert number == signal.SIGKILL or found["answers that the restart cut"] == 0, "they had time to end"


def test_one_shots_beside_others(tmp_path, monkeypatch):
    """The other one is ourselves again, found by its name as others are."""
    monkeypatch.setattr(one_shots, "OTHERS", {"python": one_shots._spindle})
    model = one_shots.Model()
    ours, other = one_shots.contenders(None, tmp_path, model.url)
    assert ours.title.startswith("Spindle 0.")
    samples = {one.title: [one_shots.measured(one, model)] for one in (ours, replace(other, title="other"))}
    text, ratios = one_shots.table(samples, {"third": "no answer"})
    assert "| wall (s) |" in text and "third could not be measured: no answer" in text
    assert ratios["other: its largest request"] == pytest.approx(1, rel=0.01)
    broken = replace(ours, argv=[sys.executable, "-c", "print('something else')"])
    with pytest.raises(RuntimeError, match="gave no answer"):
        one_shots.measured(broken, model)
