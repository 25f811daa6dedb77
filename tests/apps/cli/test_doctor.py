"""`doctor`, `trust`, and what an untrusted project says on stderr."""

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Place

MINE = {
    "baseUrl": "http://127.0.0.1:9/v1",
    "api": "openai-completions",
    "apiKey": "sk-secret",
    "models": [{"id": "big"}, {"id": "small"}],
}


def test_doctor_tells_what_there_is(place: Place) -> None:
    place.write("agent/settings.json", {"theme": "x"})
    place.write("agent/models.json", {"providers": {"mine": MINE}})
    place.write("agent/auth.json", {"openai": {"type": "api_key", "key": "sk-secret"}}).chmod(0o644)
    place.write("agent/skills/good/SKILL.md", "---\nname: good\ndescription: d\n---\n")
    place.write("agent/skills/Bad/SKILL.md", "---\nname: Bad\ndescription: d\n---\n")
    place.write("agent/prompts/p.md", "P")
    place.write("project/AGENTS.md", "x")
    done = place.run("doctor", env={"GROQ_API_KEY": "sk-secret"})
    assert done.returncode == 0
    for text in (
        f"agent: {place.agent}",
        f"ok    {place.agent}/settings.json",
        f"ok    {place.agent}/auth.json (readable by others: chmod 600 it)",
        "mine: 2 models, key from models.json",
        "key from auth.json",
        "key from GROQ_API_KEY",
        "bash: /",
        "rg: ",
        f"good: {place.agent}/skills/good/SKILL.md",
        f"/p: {place.agent}/prompts/p.md",
        f"{place.project}/AGENTS.md",
        "name contains invalid characters",
    ):
        assert text in done.stdout
    assert "sk-secret" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["settings.json", "models.json", "auth.json"])
def test_doctor_finds_broken_files(place: Place, name: str) -> None:
    path = place.write(f"agent/{name}", '{\n "a": oops\n}')
    done = place.run("doctor")
    assert done.returncode == 1
    assert f"  error {path}: " in done.stdout
    assert "line 2" in done.stdout


@pytest.mark.parametrize("arguments", [["extra"], ["--nonsense"], ["--model", "x"]])
def test_doctor_takes_no_more_than_it_understands(place: Place, arguments: list[str]) -> None:
    done = place.run("doctor", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: spindle doctor: ") and "--help" in done.stderr


def test_doctor_on_an_empty_machine(place: Place) -> None:
    done = place.run("doctor", env={"SPINDLE_DIR": str(place.root / "nowhere")})
    assert done.returncode == 0
    assert "(not there yet)" in done.stdout
    assert "ANTHROPIC_API_KEY" in done.stdout
    assert not (place.root / "nowhere").exists()


# -- trust ---------------------------------------------------------------------------------------


def hostile(place: Place) -> Path:
    mark = place.root / "owned"
    place.write("project/.pi/extensions/evil.py", f"open({str(mark)!r}, 'w')\ndef extension(agent): pass\n")
    place.write("project/.pi/settings.json", {"shellCommandPrefix": f"touch {mark}"})
    place.write("project/.pi/SYSTEM.md", "evil")
    return mark


def run_bash(place: Place, *arguments: str) -> Any:
    model = place.script({"calls": [{"name": "bash", "arguments": {"command": "echo hi"}}]}, "done")
    return place.run("--no-session", "--model", model, *arguments, "-p", "go")


def test_an_untrusted_project_runs_nothing_and_says_so(place: Place) -> None:
    mark = hostile(place)
    done = run_bash(place)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert not mark.exists()
    assert done.stderr.count("\n") == 1
    for text in (".pi/settings.json", ".pi/extensions", ".pi/SYSTEM.md", "--approve", "spindle trust"):
        assert text in done.stderr


def test_templates_of_the_user_are_none_of_a_project_in_the_home(place: Place) -> None:
    """`.pi/agent/prompts` may also be a folder of a project."""
    place.write("home/.pi/agent/prompts/greet.md", "Say hello.")
    home = str(place.root / "home")
    done = place.run("doctor", cwd=place.root / "home", env={"HOME": home, "SPINDLE_DIR": f"{home}/.pi/agent"})
    assert "/greet" in done.stdout and "not trusted (nothing to trust)" in done.stdout and "Warnings (0)" in done.stdout


def test_approved_for_one_run(place: Place) -> None:
    mark = hostile(place)
    assert "not trusted" not in run_bash(place, "--approve").stderr
    assert mark.exists()
    assert not (place.agent / "trust.json").exists()


def test_trust_is_remembered_and_taken_back(place: Place) -> None:
    hostile(place)
    done = place.run("trust")
    assert done.returncode == 0
    assert str(place.project) in done.stdout
    assert json.loads((place.agent / "trust.json").read_text()) == {str(place.project): True}
    assert "not trusted" not in run_bash(place).stderr
    assert "Project not trusted (--no-approve)" in run_bash(place, "--no-approve").stderr
    assert place.run("trust", "--no", str(place.project)).returncode == 0
    assert f"remembered for {place.project}" in run_bash(place).stderr


@pytest.mark.parametrize("arguments", [["nowhere"], ["a", "b"], ["--maybe"]])
def test_trust_refuses_nonsense(place: Place, arguments: list[str]) -> None:
    done = place.run("trust", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")
