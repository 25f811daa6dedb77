"""Ignore files and the walk that obeys them: by cases, and against git, rg and fd themselves."""

import os
import subprocess
from pathlib import Path
from shutil import which

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spindle.tools.gitignore import IgnoreFile
from spindle.tools.walk import in_git_repository, walk

from .trees import fd, listed_by, make_tree, rg


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")


@pytest.mark.parametrize(
    ("rules", "ignored", "kept"),
    [
        ("*.log", ["a.log", "x/a.log"], ["a.log.txt"]),
        ("*.log\n!keep.log", ["a.log"], ["keep.log", "x/keep.log"]),
        ("!keep.log\n*.log", ["keep.log"], []),
        ("build/", ["build/", "x/build/"], ["build", "x/build"]),
        ("/build", ["build", "build/"], ["x/build"]),
        ("a/b", ["a/b"], ["x/a/b"]),
        ("**/a/b", ["a/b", "x/a/b"], ["a"]),
        ("a/**", ["a/b", "a/b/c"], ["a/"]),
        ("a/**/b", ["a/b", "a/x/y/b"], ["b"]),
        ("# comment\n\n   \nx", ["x"], ["# comment", "comment"]),
        (r"\#x" + "\n" + r"\!y", ["#x", "!y"], ["x", "y"]),
        ("trail   ", ["trail"], ["trail   "]),
        ("trail\\ ", ["trail "], ["trail"]),
        ("x\r\ny", ["x", "y"], []),
        ("[ab]", ["a", "b"], ["c"]),
        ("[broken\nfine", ["fine"], ["[broken"]),
        ("*\n!*/\n!*.py", ["a.txt"], ["a/", "x.py"]),
        ("/", [], ["a"]),
        ("{a,b}", ["{a,b}"], ["a", "b"]),
    ],
)
def test_what_lines_mean(rules: str, ignored: list[str], kept: list[str]) -> None:
    file = IgnoreFile(rules.split("\n"))
    decided = [path for path in ignored + kept if file.verdict(path.rstrip("/").split("/"), path.endswith("/"))]
    assert decided == ignored


def names(root: Path, *, require_git: bool = True, own: str = ".rgignore") -> list[str]:
    found = walk(str(root), own, require_git=require_git)
    return [os.path.relpath(entry.path, root) + "/" * entry.is_folder for entry in found]


def test_order_is_by_name_and_depth_first(tmp_path: Path) -> None:
    make_tree(tmp_path, {"b": "", "a/z": "", "a/b/c": "", "a.txt": "", ".hidden": ""})
    assert names(tmp_path) == [".hidden", "a/", "a/b/", "a/b/c", "a/z", "a.txt", "b"]


def test_gitignore_counts_only_in_repositories_unless_told_otherwise(tmp_path: Path) -> None:
    make_tree(tmp_path, {".gitignore": "x", "x": "", "y": ""})
    assert names(tmp_path) == [".gitignore", "x", "y"]
    assert names(tmp_path, require_git=False) == [".gitignore", "y"]
    (tmp_path / ".git").mkdir()
    assert names(tmp_path) == [".git/", ".gitignore", "y"]


def test_deeper_files_win_and_ignored_folders_stay_closed(tmp_path: Path) -> None:
    tree = {".git/": "", ".gitignore": "*.log\nclosed/", "sub/.gitignore": "!a.log", "sub/a.log": "", "b.log": ""}
    make_tree(tmp_path, {**tree, "closed/.gitignore": "!a.log", "closed/a.log": ""})
    assert names(tmp_path) == [".git/", ".gitignore", "sub/", "sub/.gitignore", "sub/a.log"]


def test_strength_of_the_kinds(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/info/exclude": "e\n!g", ".gitignore": "g\ni", ".ignore": "!i\nr", ".rgignore": "!r"})
    make_tree(tmp_path, dict.fromkeys("egir", ""))
    assert [name for name in names(tmp_path) if len(name) == 1] == ["i", "r"]


def test_files_above_the_root_count_up_to_the_repository(tmp_path: Path) -> None:
    tree = {".gitignore": "outer", ".ignore": "everywhere", "repo/.git/": "", "repo/.gitignore": "x\n/sub/y"}
    make_tree(tmp_path, tree | {f"repo/sub/{name}": "" for name in ("x", "y", "outer", "everywhere")})
    assert names(tmp_path / "repo/sub") == ["outer"]


def test_a_repository_within_a_repository_has_its_own_rules(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", ".gitignore": "x", "inner/.git": "gitdir: elsewhere", "inner/x": ""})
    assert "inner/x" in names(tmp_path)


def test_the_users_global_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    make_tree(home, {".gitconfig": "[core]\n\texcludesFile = ~/mine\n", "mine": "*.swp\n"})
    make_tree(tmp_path / "repo", {".git/": "", "a.swp": "", "a": ""})
    monkeypatch.setenv("HOME", str(home))
    assert names(tmp_path / "repo") == [".git/", "a"]


def test_links_are_listed_not_followed(tmp_path: Path) -> None:
    make_tree(tmp_path, {"folder/f": ""})
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert names(tmp_path) == ["dangling", "folder/", "folder/f", "loop"]


def test_a_pipe_named_gitignore_is_no_trap(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", "a": ""})
    os.mkfifo(tmp_path / ".gitignore")
    assert names(tmp_path) == [".git/", ".gitignore", "a"]


def test_very_deep_folders(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(400):
        deep = deep / "d"
        deep.mkdir()
    assert len(names(tmp_path)) == 400


def test_in_git_repository(tmp_path: Path) -> None:
    make_tree(tmp_path, {"repo/.git": "gitdir: x", "repo/a/b/": "", "other/": ""})
    assert in_git_repository(str(tmp_path / "repo/a/b"))
    assert not in_git_repository(str(tmp_path / "other"))


# -- against the real programs -------------------------------------------------------------------

PATTERNS = [
    *("*.log", "/build", "build/", "src/*", "!src/foo", "foo", "**/a", "a/**", "src/**/b", "/src/a", "*.py", "!bar.py"),
    *(
        "[ab]",
        "[!a]",
        "?",
        "b/",
        "!b/",
        "*",
        "!*/",
        "/*",
        "!/src",
        "x.*",
        "a/b",
        "**",
        "**/foo/**",
        r"\[z\]",
        "f*o",
        "*o*",
    ),
    *("src/**", "/**/b", "a**b", "[]a]", "[^b]", "[a-", r"\#h", r"\!n", "#c"),
]
NAMES = ["a", "b", "foo", "bar.py", "x.log", "build", "src", ".hid", "Foo", "#h", "!n", "[z]"]
TREES = st.fixed_dictionaries(
    {
        "files": st.lists(
            st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join), min_size=1, max_size=12, unique=True
        ),
        "rules": st.dictionaries(
            st.tuples(
                st.sampled_from(["", "a/", "src/", "src/foo/", "b/a/"]), st.sampled_from([".gitignore", ".ignore"])
            ),
            st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4),
            min_size=1,
            max_size=4,
        ),
    }
)


def plant(root: Path, tree: dict[str, object]) -> None:
    (root / ".git").mkdir(parents=True)
    for name in sorted(tree["files"], key=len, reverse=True):  # type: ignore[call-overload]
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("needle\n")
        except OSError:
            continue  # A folder of this name is there already.
    for (folder, name), lines in tree["rules"].items():  # type: ignore[attr-defined]
        if (root / folder).is_dir():
            (root / folder / name).write_text("\n".join(lines) + "\n")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_random_trees_as_ripgrep_and_fd_see_them(
    tree: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ripgrep, fd_find = rg(), fd()
    root = tmp_path_factory.mktemp("tree")
    plant(root, tree)
    ours = list(walk(str(root), ".rgignore", require_git=True))
    files = sorted(os.path.relpath(entry.path, root) for entry in ours if not entry.is_folder)
    assert files == listed_by(ripgrep, "--files", "--hidden", cwd=root)
    # Newer versions of fd leave out .git by themselves.
    everything = [os.path.relpath(entry.path, root) for entry in walk(str(root), ".fdignore", require_git=True)]
    by_fd = listed_by(fd_find, "--glob", "--hidden", "*", cwd=root)
    assert sorted(name for name in everything if name != ".git") == [name for name in by_fd if name != ".git"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_random_trees_as_git_sees_them(tree: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> None:
    git = which("git") or pytest.skip("no git here")
    root = tmp_path_factory.mktemp("tree")
    rules = {place: lines for place, lines in tree["rules"].items() if place[1] == ".gitignore"}  # type: ignore[attr-defined]
    plant(root, tree | {"rules": rules})
    (root / ".git").rmdir()
    subprocess.run([git, "init", "-q"], cwd=root, check=True)
    (root / ".git/info/exclude").unlink(missing_ok=True)
    listing = subprocess.run(
        [git, "ls-files", "-z", "--others", "--exclude-standard"], cwd=root, capture_output=True, check=True
    )
    by_git = sorted(name.decode() for name in listing.stdout.split(b"\0") if name)
    ours = walk(str(root), ".rgignore", require_git=True, skip_git=True)
    assert sorted(os.path.relpath(entry.path, root) for entry in ours if not entry.is_folder) == by_git
