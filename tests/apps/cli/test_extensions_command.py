"""`spindle extensions`: what is there, a new one that works at once, and the list in settings.json."""

import json
import sys

from tests.support import nursery

from .conftest import Place


def test_each_is_told_with_its_state(place: Place) -> None:
    place.write("agent/extensions/good.py", "def extension(agent): ...\n")
    place.write("agent/extensions/bad.py", "import nothing_of_the_kind\n")
    place.write("agent/extensions/other.ts", "x")
    done = place.run("extensions")
    states = {line.split()[1].rpartition("/")[2]: line for line in done.stdout.splitlines()}
    assert done.returncode == 1
    assert states["good.py"].startswith("loaded") and states["other.ts"].startswith("foreign")
    assert states["bad.py"].startswith("failed") and "nothing_of_the_kind" in states["bad.py"]
    report = place.run("doctor")
    assert report.returncode == 1 and "Extensions (2)" in report.stdout and "  error Failed to load" in report.stdout


def test_a_new_one_is_loaded_and_its_test_passes(place: Place) -> None:
    assert "Begin one with" in place.run("extensions").stdout
    done = place.run("extensions", "new", "my-gate")
    assert (done.returncode, done.stderr) == (0, "")
    folder = place.project / "my-gate"
    assert "my_gate:extension" in (folder / "pyproject.toml").read_text() and (folder / "README.md").exists()
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    tested = nursery.run(tests, cwd=folder, capture_output=True, text=True, env=place.env, timeout=60)
    assert tested.returncode == 0, tested.stdout
    assert place.run("extensions", "new", "my-gate").returncode == 2
    assert place.run("extensions", "new", "../x").returncode == 2

    added = place.run("extensions", "add", "my-gate/my_gate.py")
    path = str(folder / "my_gate.py")
    assert added.returncode == 0
    assert json.loads((place.agent / "settings.json").read_text())["extensions"] == [path]
    assert place.run("extensions").stdout.startswith(f"loaded     {path}")
    assert place.run("extensions", "remove", "my-gate/my_gate.py").returncode == 0
    assert "No extensions" in place.run("extensions").stdout


def test_a_slip_names_what_may_have_been_meant(place: Place) -> None:
    place.write("project/my_gate.py", "def extension(agent): ...\n")
    model = ["--no-session", "--model", place.script("ok")]
    done = place.run(*model, "-e", "my_gat.py", "-p", "hi")
    assert done.returncode != 0 and "Did you mean my_gate.py?" in done.stderr
    place.write("project/my-gate/my_gate.py", "def extension(agent): ...\n")
    done = place.run(*model, "-e", "my-gat", "-p", "hi")
    assert done.returncode == 2 and "Did you mean my-gate?" in done.stderr
    assert place.run("extensions", "add", "no-such").returncode == 2
