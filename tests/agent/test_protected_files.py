"""`acceptEdits` asks about files that make us or others run something, however they are spelled or reached."""

from pathlib import Path

import pytest

from spindle.agent.fences.rules import Policy, decide, rules_of


def behavior(cwd: Path, path: str, mode: str = "acceptEdits") -> str:
    calls = [("write", {"path": path, "content": "x"}), ("edit", {"path": path, "edits": []})]
    (found,) = {decide(Policy(str(cwd), mode), tool, arguments).behavior for tool, arguments in calls}  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    "path",
    [
        ".mcp.json",
        ".pi/settings.json",
        ".spindle/x",
        ".agents/skills/x/SKILL.md",
        "AGENTS.md",
        "sub/CLAUDE.md",
        "deep/er/AGENTS.override.md",
        ".git/config",
        ".git",
        "vendor/lib/.git/hooks/post-checkout",
        "sub/.gitattributes",
        ".gitmodules",
        "pkg/.husky/pre-commit",
        "sub/.vscode/tasks.json",
        ".envrc",
        "a/b/.envrc",
        ".github/workflows/ci.yml",
        ".claude/settings.json",
        ".cursor/rules/x.mdc",
        ".devcontainer/devcontainer.json",
        "fresh/HEAD",
        "a/.Rprofile",
        "flake.nix",
        ".woodpecker/ci.yaml",
        ".aider.conf.yml",
        ".ssh/config",
        # spellings that some file system takes for the same
        ".GIT/config",
        ".Mcp.JSON",
        "agents.MD",
        ".g\u200cit/config",
        ".huſKy/x",
        ".git./config",
        ".git::$INDEX_ALLOCATION/config",
        "x/../.git/config",
    ],
)
def test_files_that_lead_to_code(tmp_path: Path, path: str) -> None:
    assert behavior(tmp_path, path) == "ask"
    assert behavior(tmp_path, path, "dontAsk") == "deny"
    assert behavior(tmp_path, path, "bypass") == "allow"


@pytest.mark.parametrize(
    "path", ["src/main.py", "Makefile", ".gitignore", "git/config", "docs/agents.html", "mcp.json", ".env", "a:b", ".x"]
)
def test_other_files(tmp_path: Path, path: str) -> None:
    assert behavior(tmp_path, path) == "allow"


def test_links(tmp_path: Path) -> None:
    for folder in (".git/hooks", "docs", "tools/hooks", "store"):
        (tmp_path / folder).mkdir(parents=True)
    for name, target in {
        "innocent": ".git/hooks",
        "plain.txt": ".mcp.json",
        "CLAUDE.md": "docs/rules.md",
        ".husky": "tools/hooks",
        "sub.txt": "docs/free.txt",
    }.items():
        (tmp_path / name).symlink_to(target)
    for path in ("innocent/post-commit", "plain.txt", "CLAUDE.md", "docs/rules.md", "tools/hooks/pre-commit"):
        assert behavior(tmp_path, path) == "ask", path
    for path in ("docs/other.md", "sub.txt", "tools/x"):
        assert behavior(tmp_path, path) == "allow", path
    policy = Policy(str(tmp_path), "acceptEdits", rules_of("allow", ["Bash(echo *)"], "test"))
    for line, wanted in {"echo x > innocent/x": "ask", "echo x > .envrc": "ask", "echo x > docs/y": "allow"}.items():
        assert decide(policy, "bash", {"command": line}).behavior == wanted, line


def test_a_git_directory_elsewhere(tmp_path: Path) -> None:
    (tmp_path / ".bare").mkdir()
    (tmp_path / ".git").write_text("gitdir: ./.bare\n")
    assert behavior(tmp_path, ".bare/config") == "ask"
    assert behavior(tmp_path, "x.txt") == "allow"


def test_a_checkout_inside_a_protected_folder(tmp_path: Path) -> None:
    """Programs keep worktrees in folders of their own; an agent may work there, but not among its own files."""
    for folder, wanted in ((".claude/worktrees/x", "allow"), (".pi/agent", "ask"), (".git/modules/x", "ask")):
        (tmp_path / folder).mkdir(parents=True)
        assert behavior(tmp_path / folder, "a.py") == wanted
        assert behavior(tmp_path / folder, ".envrc") == "ask"


def test_a_wildcard_of_an_allow_rule_does_not_stand_for_such_files(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()

    def allowed(path: str, *rules: str) -> bool:
        policy = Policy(str(tmp_path), "default", rules_of("allow", ["Bash(echo *)", *rules], "test"))
        calls = [("write", {"path": path}), ("bash", {"command": f"echo x > {path}"})]
        (found,) = {decide(policy, tool, arguments).behavior for tool, arguments in calls}
        return found == "allow"

    for path in ("src/.git/config", "src/AGENTS.md", "src/x/HEAD", "src/.vscode/tasks.json"):
        for rule in ("Edit(src/**)", "Edit(**)", "Edit(src/)", "Edit(/)"):
            assert not allowed(path, rule), (path, rule)
        policy = Policy(str(tmp_path), "default")
        (offered,) = decide(policy, "write", {"path": path}).always
        assert offered == f"Edit(./{path})"
        assert allowed(path, offered)
        assert allowed(path, "Edit")
    assert allowed("src/x.py", "Edit(src/**)")
    assert allowed(".github/workflows/ci.yml", "Edit(.github/**)")
    assert allowed("src/deep/AGENTS.md", "Edit(AGENTS.md)")


def test_a_shell_does_not_write_through_a_link_of_a_protected_name(tmp_path: Path) -> None:
    (tmp_path / "sub" / ".vscode").mkdir(parents=True)
    (tmp_path / "sub" / ".vscode" / "tasks.json").symlink_to("../x")
    policy = Policy(str(tmp_path), "acceptEdits", rules_of("allow", ["Bash(echo *)"], "test"))
    for line in ("echo x > sub/.vscode/tasks.json", "cd sub; echo x > .vscode/tasks.json"):
        assert decide(policy, "bash", {"command": line}).behavior == "ask"
