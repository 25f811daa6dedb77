"""Skills: where they are found, which of two wins, what is wrong with them, and how they are told and expanded."""

from pathlib import Path
from typing import Any

import pytest

from spindle.resources.loader import ResourceOptions, Resources, load_resources
from spindle.resources.slash_commands import skills_section


def skill(name: str | None = None, description: str = "Does it", more: str = "", body: str = "Body.") -> str:
    front = (f"name: {name}\n" if name else "") + (f"description: {description}\n" if description else "") + more
    return f"---\n{front}---\n{body}\n"


def load(project: Path, **options: Any) -> Resources:
    return load_resources(project, ResourceOptions(**{"approve": True, **options}))


def names(resources: Resources) -> list[str]:
    return [found.name for found in resources.skills]


def test_rules_inside_a_root(agent: Path, project: Path, write: Any) -> None:
    write("agent/skills/one/SKILL.md", skill("one"))
    write("agent/skills/one/deeper/SKILL.md", skill("hidden-below-one"))
    write("agent/skills/group/two/SKILL.md", skill("two"))
    write("agent/skills/loose.md", skill("loose"))
    write("agent/skills/group/too-deep.md", skill("too-deep"))
    write("agent/skills/.secret/SKILL.md", skill("secret"))
    write("agent/skills/node_modules/dep/SKILL.md", skill("dep"))
    write("agent/skills/readme.txt", "no skill")
    write("agent/skills/notes.md", "Just notes, no front matter.")
    assert sorted(names(load(project))) == ["loose", "one", "two"]


def test_agents_directories_count_loose_files_only_below(project: Path, write: Any) -> None:
    write("home/.agents/skills/top.md", skill("top"))
    write("home/.agents/skills/sub/below.md", skill("below"))
    assert names(load(project)) == ["below"]


def test_order_of_precedence(agent: Path, project: Path, write: Any) -> None:
    places = [
        "project/.pi/listed/s/SKILL.md",
        "project/.pi/skills/s/SKILL.md",
        "project/.agents/skills/s/SKILL.md",
        "agent/listed/s/SKILL.md",
        "agent/skills/s/SKILL.md",
        "home/.agents/skills/s/SKILL.md",
        "agent/pack/skills/s/SKILL.md",
        "named/s/SKILL.md",
    ]
    write("project/.pi/settings.json", {"skills": ["listed"]})
    write("agent/settings.json", {"skills": ["listed"], "packages": ["./pack"]})
    paths = [write(place, skill("s", f"from {place}")) for place in places]
    named = str(paths[-1].parent.parent)
    for expected in range(len(paths)):
        resources = load(project, skills=[named])
        assert names(resources) == ["s"]
        assert resources.skills[0].path == paths[expected]
        clashes = [d for d in resources.diagnostics if d.type == "collision"]
        assert [d.collision.loser_path for d in clashes if d.collision] == [str(p) for p in paths[expected + 1 :]]
        assert all(d.message == 'name "s" collision' for d in clashes)
        paths[expected].unlink()


def test_agents_directories_up_to_the_repository(tmp_path: Path, project: Path, write: Any) -> None:
    (project / ".git").mkdir()
    inner = project / "a" / "b"
    inner.mkdir(parents=True)
    write("project/a/b/.agents/skills/x/SKILL.md", skill("x", "inner"))
    write("project/.agents/skills/x/SKILL.md", skill("x", "outer"))
    write("project/.agents/skills/y/SKILL.md", skill("y"))
    write(".agents/skills/z/SKILL.md", skill("z"))
    resources = load(inner)
    assert [(s.name, s.description) for s in resources.skills] == [("x", "inner"), ("y", "Does it")]


def test_no_skills_keeps_those_named(agent: Path, project: Path, write: Any) -> None:
    write("agent/skills/one/SKILL.md", skill("one"))
    named = write("elsewhere/two/SKILL.md", skill("two"))
    assert names(load(project, no_skills=True, skills=[str(named)])) == ["two"]
    missing = load(project, no_skills=True, skills=["nowhere"])
    assert [d.message for d in missing.diagnostics] == ["skill path does not exist"]


def test_settings_leave_out_and_force_in(agent: Path, project: Path, write: Any) -> None:
    for name in ("a", "b", "c", "d"):
        write(f"agent/skills/{name}/SKILL.md", skill(name))
    write("agent/settings.json", {"skills": ["!skills/[abc]", "+skills/b", "-skills/d/SKILL.md"]})
    assert names(load(project)) == ["b"]


def test_ignore_files_are_respected(agent: Path, project: Path, write: Any) -> None:
    write("agent/skills/.gitignore", "drafts/\n*.tmp.md\n")
    write("agent/skills/drafts/d/SKILL.md", skill("draft"))
    write("agent/skills/x.tmp.md", skill("tmp"))
    write("agent/skills/kept/SKILL.md", skill("kept"))
    assert names(load(project)) == ["kept"]


def test_links_are_followed_once(agent: Path, project: Path, tmp_path: Path, write: Any) -> None:
    write("real/s/SKILL.md", skill("s"))
    (agent / "skills").mkdir()
    (agent / "skills" / "link").symlink_to(tmp_path / "real" / "s")
    (agent / "skills" / "again").symlink_to(tmp_path / "real")
    (agent / "skills" / "loop").symlink_to(agent / "skills")
    resources = load(project)
    assert names(resources) == ["s"]
    assert resources.diagnostics == []


@pytest.mark.parametrize(
    ("name", "description", "problems", "loads"),
    [
        ("good-name", "d", [], True),
        ("Bad_Name", "d", ["name contains invalid characters (must be lowercase a-z, 0-9, hyphens only)"], True),
        ("-x", "d", ["name must not start or end with a hyphen"], True),
        ("a--b", "d", ["name must not contain consecutive hyphens"], True),
        ("n" * 65, "d", ["name exceeds 64 characters (65)"], True),
        ("n", "", ["description is required"], False),
        ("n", "d" * 1025, ["description exceeds 1024 characters (1025)"], True),
    ],
)
def test_validation(project: Path, write: Any, name: str, description: str, problems: list[str], loads: bool) -> None:
    path = write("agent/skills/folder/SKILL.md", skill(name, description))
    resources = load(project)
    assert [(d.type, d.message, d.path) for d in resources.diagnostics] == [("warning", p, str(path)) for p in problems]
    assert names(resources) == ([name] if loads else [])


def test_name_defaults_to_the_folder(project: Path, write: Any) -> None:
    write("agent/skills/folder/SKILL.md", skill(None))
    assert names(load(project)) == ["folder"]


def test_bad_front_matter_is_a_warning(project: Path, write: Any) -> None:
    write("agent/skills/bad/SKILL.md", "---\ndescription: a: b\n---\nx")
    write("agent/skills/good/SKILL.md", skill("good"))
    resources = load(project)
    assert names(resources) == ["good"]
    assert "invalid front matter" in resources.diagnostics[0].message


def test_listing_for_the_model(project: Path, write: Any) -> None:
    path = write("agent/skills/pdf/SKILL.md", skill("pdf", "\"<b> & 'q'\""))
    write("agent/skills/quiet/SKILL.md", skill("quiet", more="disable-model-invocation: true\n"))
    section = skills_section(load(project).skills)
    assert section.endswith(
        "<available_skills>\n  <skill>\n    <name>pdf</name>\n"
        "    <description>&lt;b&gt; &amp; &apos;q&apos;</description>\n"
        f"    <location>{path}</location>\n  </skill>\n</available_skills>"
    )
    assert "quiet" not in section


def test_expansion(project: Path, write: Any) -> None:
    path = write("agent/skills/sk/SKILL.md", skill("sk", body="\nDo the skill.\n\n"))
    expand = load(project).expand
    block = f'<skill name="sk" location="{path}">\nReferences are relative to {path.parent}.\n\nDo the skill.\n</skill>'
    assert expand("/skill:sk do it") == f"{block}\n\ndo it"
    assert expand("/skill:sk") == block
    assert expand("/skill:sk\n two\nlines ") == f"{block}\n\ntwo\nlines"
    for unchanged in ("/skill:SK x", "/skill:other", " /skill:sk", "skill:sk"):
        assert expand(unchanged) == unchanged


def test_a_skill_that_vanished_leaves_the_text(project: Path, write: Any) -> None:
    path = write("agent/skills/sk/SKILL.md", skill("sk"))
    resources = load(project)
    path.unlink()
    errors: list[str] = []
    assert resources.expand("/skill:sk x", errors.append) == "/skill:sk x"
    assert len(errors) == 1
    assert "SKILL.md" in errors[0]


def test_two_hundred_skills(project: Path, write: Any) -> None:
    for number in range(200):
        write(f"agent/skills/group{number % 10}/s{number}/SKILL.md", skill(f"s{number}"))
    resources = load(project)
    assert len(resources.skills) == 200
    assert resources.diagnostics == []
    assert skills_section(resources.skills).count("<skill>") == 200
