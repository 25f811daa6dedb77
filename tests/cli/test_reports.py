"""`--list-models`, `doctor`, `trust` and what an untrusted project says on stderr."""

import json
from pathlib import Path
from typing import Any

import pytest

from spindle.cli.list_models import models_table, short_count
from spindle.models.models_file import open_model

from .conftest import Place

MINE = {
    "baseUrl": "http://127.0.0.1:9/v1",
    "api": "openai-completions",
    "apiKey": "sk-secret",
    "models": [
        {"id": "big", "reasoning": True, "input": ["text", "image"], "contextWindow": 1000000, "maxTokens": 16384},
        {"id": "small", "contextWindow": 128000, "maxTokens": 500},
    ],
}


def test_list_models(place: Place) -> None:
    place.write("agent/models.json", {"providers": {"mine": MINE}})
    done = place.run("--list-models")
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["provider", "model", "context", "max-out", "thinking", "images"]
    assert ["mine", "big", "1M", "16.4K", "yes", "yes"] in rows
    assert ["mine", "small", "128K", "500", "no", "no"] in rows
    assert not any(row[0] == "anthropic" for row in rows)


@pytest.mark.parametrize(("search", "ids"), [("big", ["big"]), ("mn sml", ["small"]), ("MINE", ["big", "small"])])
def test_search(place: Place, search: str, ids: list[str]) -> None:
    place.write("agent/models.json", {"providers": {"mine": MINE}})
    done = place.run("--list-models", search)
    assert [line.split()[1] for line in done.stdout.splitlines()[1:]] == ids


def test_no_models(place: Place) -> None:
    place.write("agent/models.json", {"providers": {"mine": MINE}})
    assert place.run("--list-models", "qqqqq").stdout == 'No models matching "qqqqq"\n'


def test_keys_of_the_environment_bring_their_provider(place: Place) -> None:
    done = place.run("--list-models", "claude-opus", env={"ANTHROPIC_API_KEY": "k"})
    assert any(line.split()[:2] == ["anthropic", "claude-opus-4-8"] for line in done.stdout.splitlines())


def test_mistakes_in_models_json_are_told_beside_the_list(place: Place) -> None:
    place.write("agent/models.json", {"providers": {"mine": MINE, "bad": 5}})
    done = place.run("--list-models")
    assert "providers.bad: must be an object" in done.stderr
    assert "mine" in done.stdout


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (1000, "1K"), (16384, "16.4K"), (1000000, "1M"), (1048576, "1.0M")]
)
def test_counts(count: int, text: str) -> None:
    assert short_count(count) == text


def test_columns_line_up() -> None:
    lines = models_table([open_model("p", "m", "a", "u"), open_model("longer", "id", "a", "u")]).split("\n")
    assert {line.index("128K") for line in lines[1:]} == {lines[0].index("context")}


# -- doctor --------------------------------------------------------------------------------------


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
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: Usage: spindle doctor")


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
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")


# -- options that programs add -------------------------------------------------------------------


def test_options_of_other_clients_are_accepted(place: Place) -> None:
    done = place.run(
        *("--no-title", "--no-skills", "--no-rules", "--thinking", "low", "--append-system-prompt", "be brief"),
        *("--provider-session-id", "p1", "--theme", "x", "--no-themes", "--no-session", "--model", place.script("ok")),
        *("-p", "hi"),
    )
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert done.stderr.count("Note: ") == 2


def test_many_flaws_are_one_line_unless_asked(place: Place) -> None:
    for number in range(30):
        place.write(f"agent/skills/B{number}/SKILL.md", f"---\nname: B{number}\ndescription: d\n---\n")
    place.write("agent/settings.json", {"steeringMode": "never"})
    arguments = ("--no-session", "--model", place.script("ok"), "-p", "hi")
    lines = place.run(*arguments).stderr.splitlines()
    assert len(lines) == 2
    assert "steeringMode" in lines[0]
    assert "30 flaws" in lines[1]
    assert len(place.run("--verbose", *arguments).stderr.splitlines()) == 31


def test_broken_files_are_told_and_the_run_goes_on(place: Place) -> None:
    for name in ("settings.json", "models.json", "auth.json"):
        place.write(f"agent/{name}", "{ broken")
    done = place.run("--no-session", "--model", place.script("ok"), "-p", "hi")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert done.stderr.count("\n") == 3
    for name in ("settings.json", "models.json", "auth.json"):
        assert str(place.agent / name) in done.stderr
        assert (place.agent / name).read_text() == "{ broken"
