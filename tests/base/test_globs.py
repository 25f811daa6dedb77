"""Globs and ignore files: what they match, that git agrees, and that none takes for ever."""

import subprocess
import time
from collections.abc import Sequence
from shutil import which

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.base.globs import GlobError, IgnoreFile, PathGlob, expand_braces


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", ".py", "a.b.py"], ["a.pyc", "a/b.py", "py"]),
        ("a?c", ["abc", "a.c"], ["ac", "abbc", "a/c"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "x", "-x"]),
        ("[!a]", ["b", "-"], ["a", "ab"]),
        ("[^a]", ["b"], ["a"]),
        ("[]x]", ["]", "x"], ["y"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"\*", ["*"], ["a"]),
        (r"[\d]", ["\\", "d"], ["5"]),
        ("a*b*c", ["abc", "aXbYc", "abbcc", "a b c"], ["ab", "acb"]),
        ("**/a", ["a", "x/a", "x/y/a"], ["a/x", "ba"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "ab/c"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "b"]),
        ("**/a/**/b", ["a/b", "x/a/y/b", "a/a/b"], ["b", "a"]),
        ("**", ["a", "a/b"], []),
        ("a**b", ["ab", "axb"], ["a/b"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "a.py"]),
    ],
)
def test_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    glob = PathGlob(pattern)
    assert [path for path in yes + no if glob.match(path.split("/"))] == yes


def test_case() -> None:
    assert PathGlob("A[b]*", ignore_case=True).match(["aBc"])
    assert not PathGlob("A*").match(["abc"])


@pytest.mark.parametrize(
    ("pattern", "choices"),
    [
        ("a", ["a"]),
        ("*.{ts,tsx}", ["*.ts", "*.tsx"]),
        ("{a,b}/{c,d}", ["a/c", "a/d", "b/c", "b/d"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"]),
        (r"\{a,b\}", [r"\{a,b\}"]),
        ("[{,}]", ["[{,}]"]),
        ("a,b", ["a,b"]),
        ("{a}", ["a"]),
        ("x}", ["x}"]),
    ],
)
def test_braces(pattern: str, choices: list[str]) -> None:
    assert expand_braces(pattern) == choices


@pytest.mark.parametrize("pattern", ["[", "a[b", "[z-a]"])
def test_patterns_that_make_no_sense(pattern: str) -> None:
    with pytest.raises(GlobError, match="error parsing glob"):
        PathGlob(pattern)


@pytest.mark.parametrize("pattern", ["{a", "{a,{b}", "{a,b}" * 20])
def test_braces_that_make_no_sense(pattern: str) -> None:
    with pytest.raises(GlobError):
        expand_braces(pattern)


def test_no_pattern_takes_for_ever() -> None:
    began = time.process_time()
    assert not PathGlob("*a" * 40 + "b").match(["a" * 255])
    assert not PathGlob("**/a/" * 30 + "b").match(["a"] * 300)
    assert time.process_time() - began < 1


def naive(pattern: str, text: str) -> bool:
    """Match `*` and `?` by definition."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return naive(pattern[1:], text) or (bool(text) and naive(pattern, text[1:]))
    return bool(text) and pattern[0] in ("?", text[0]) and naive(pattern[1:], text[1:])


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_stars_against_the_definition(pattern: str, text: str) -> None:
    assert PathGlob(pattern.replace("**", "*")).match([text]) == naive(pattern, text)


def naive_path(pattern: list[str], parts: list[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(parts)
        return naive_path(pattern[1:], parts) or (bool(parts) and naive_path(pattern, parts[1:]))
    return bool(parts) and naive(pattern[0], parts[0]) and naive_path(pattern[1:], parts[1:])


@given(
    st.lists(st.sampled_from(["**", "a", "b", "*", "a*"]), min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "b", "ab"]), max_size=7),
)
def test_double_stars_against_the_definition(pattern: list[str], parts: list[str]) -> None:
    assert PathGlob("/".join(pattern)).match(parts) == naive_path(pattern, parts)


# -- ignore files --------------------------------------------------------------------------------


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


@settings(max_examples=40, derandomize=True)
@given(
    st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), min_size=1, max_size=12),
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=6),
)
def test_random_trees_as_git_sees_them(
    tmp_path_factory: pytest.TempPathFactory, paths: list[list[str]], rules: list[str]
) -> None:
    git = which("git") or pytest.skip("no git here")
    root = tmp_path_factory.mktemp("tree")
    subprocess.run([git, "init", "-q"], cwd=root, check=True)
    (root / ".git/info/exclude").unlink(missing_ok=True)
    (root / ".gitignore").write_text("\n".join(rules))
    for parts in sorted(paths, key=len, reverse=True):
        path = root.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text("")
    listing = subprocess.run(
        [git, "ls-files", "-z", "--others", "--exclude-standard"], cwd=root, capture_output=True, check=True
    )
    files = {path.relative_to(root).parts for path in root.rglob("*") if path.is_file()}
    ignores = IgnoreFile(rules)
    kept = {"/".join(parts) for parts in files if parts[0] != ".git" and not is_ignored(ignores, parts)}
    assert kept == {name.decode() for name in listing.stdout.split(b"\0") if name}


def is_ignored(ignores: IgnoreFile, parts: Sequence[str]) -> bool:
    """Return whether a file or a folder on the way to it is ignored."""
    return any(ignores.verdict(parts[:depth], depth < len(parts)) for depth in range(1, len(parts) + 1))
