"""Prompt templates: discovery, arguments, placeholders; pi's own table of expansions."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.resources.loader import ResourceOptions, Resources, load_resources
from spindle.resources.slash_commands import split_arguments, substitute

GOLDEN = [
    json.loads(line) for line in (Path(__file__).parent / "golden" / "prompt-template.jsonl").read_text().splitlines()
]
G = "A=$1 B=$2 all=$@ args=$ARGUMENTS tail=${@:2} one=${@:1:1} dollar=$$ ten=$10"


def load(project: Path, **options: Any) -> Resources:
    return load_resources(project, ResourceOptions(**{"approve": True, **options}))


@pytest.mark.parametrize("row", GOLDEN, ids=[row["in"] for row in GOLDEN])
def test_golden(project: Path, write: Any, row: dict[str, str]) -> None:
    write("agent/prompts/g.md", G)
    assert load(project).expand(row["in"]) == row["out"]


@pytest.mark.parametrize(
    ("content", "words", "expected"),
    [
        ("${1:-none}", [], "none"),
        ("${1:-none}", ["x"], "x"),
        ("${2:-a b}", ["x"], "a b"),
        ("${@:-nothing}", [], "nothing"),
        ("${ARGUMENTS:-nothing}", ["x", "y"], "x y"),
        ("${1:-}", [], ""),
        ("${@:0}", ["x", "y"], "x y"),
        ("${@:2:1}", ["x", "y", "z"], "y"),
        ("${@:9}", ["x"], ""),
        ("$0 ${1}", ["x"], " ${1}"),
        ("$1$2", ["$2", "$1"], "$2$1"),
        ("$" + "9" * 5000, ["x"], ""),
    ],
)
def test_placeholders(content: str, words: list[str], expected: str) -> None:
    assert substitute(content, words) == expected


@given(st.text(), st.lists(st.text(max_size=5), max_size=4))
def test_no_template_is_a_crash(content: str, words: list[str]) -> None:
    assert isinstance(substitute(content, words), str)


@given(st.text())
def test_no_arguments_are_a_crash(text: str) -> None:
    assert all(split_arguments(text))


def test_discovery_and_precedence(agent: Path, project: Path, write: Any) -> None:
    write("project/.pi/prompts/a.md", "Project $1")
    write("agent/prompts/a.md", "User")
    write("agent/prompts/b.md", "---\ndescription: Bee\nargument-hint: <x>\n---\nB")
    write("agent/prompts/.hidden.md", "no")
    write("agent/prompts/sub/c.md", "not this deep")
    write("agent/prompts/d.txt", "no template")
    write("agent/extra/e.md", "E")
    write("agent/settings.json", {"prompts": ["extra"]})
    named = write("f.md", "F")
    resources = load(project, prompt_templates=[str(named)])
    assert [t.name for t in resources.templates] == ["a", "e", "b", "f"]
    assert resources.templates[2].description == "Bee"
    assert [d.type for d in resources.diagnostics] == ["collision"]
    assert resources.expand("/a now") == "Project now"
    assert [t.name for t in load(project, no_prompt_templates=True, prompt_templates=[str(named)]).templates] == ["f"]


def test_description_from_the_first_line(project: Path, write: Any) -> None:
    write("agent/prompts/a.md", "\n\n" + "x" * 70 + "\nmore")
    write("agent/prompts/b.md", "\nshort\n")
    descriptions = [t.description for t in load(project).templates]
    assert descriptions == ["x" * 60 + "...", "short"]


def test_old_commands_directory(project: Path, write: Any) -> None:
    write("agent/commands/old.md", "Old")
    assert [t.name for t in load(project).templates] == ["old"]
    write("agent/prompts/new.md", "New")
    assert [t.name for t in load(project).templates] == ["new"]


def test_command_list_has_old_and_new_keys(agent: Path, project: Path, write: Any) -> None:
    from spindle.shapes.codec import decode, encode

    greet = write("agent/prompts/greet.md", "---\ndescription: Greets\n---\nHello")
    own = write("project/.pi/prompts/own.md", "Own")
    sk = write(
        "agent/skills/sk/SKILL.md", "---\nname: sk\ndescription: A skill\ndisable-model-invocation: true\n---\nx"
    )
    cli = write("c.md", "C")
    items = decode(encode(load(project, prompt_templates=[str(cli)]).commands()))
    assert [(i["name"], i["source"], i["location"], i["path"]) for i in items] == [
        ("own", "prompt", "project", str(own)),
        ("greet", "prompt", "user", str(greet)),
        ("c", "prompt", "path", str(cli)),
        ("skill:sk", "skill", "user", str(sk)),
    ]
    assert items[1]["sourceInfo"] == {
        "path": str(greet),
        "source": "auto",
        "scope": "user",
        "origin": "top-level",
        "baseDir": str(agent),
    }
    assert items[2]["sourceInfo"] == {"path": str(cli), "source": "cli", "scope": "temporary", "origin": "top-level"}
    assert items[1]["description"] == "Greets"
