"""The find tool, with fd and without: the same words."""

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from spindle.shapes.events import ToolResult
from spindle.tools import find as find_module
from spindle.tools.base import ToolSettings

from .helpers import Run, call, details_of, refusal, run, text_of
from .trees import fd, make_tree


@pytest.fixture(params=["fd", "own"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "fd":
        fd()
    else:
        monkeypatch.setattr(find_module, "find_program", lambda names, settings: None)
    return request.param


TREE = {
    "a.ts": "",
    "b.tsx": "",
    "src/a.ts": "",
    "src/deep/Test.TS": "",
    ".hidden/x.ts": "",
    "README": "",
    ".git/config": "",
}


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"pattern": "*.ts"}, [".hidden/x.ts", "a.ts", "src/a.ts", "src/deep/Test.TS"]),
        ({"pattern": "*.TS"}, ["src/deep/Test.TS"]),
        ({"pattern": "*.{ts,tsx}"}, [".hidden/x.ts", "a.ts", "b.tsx", "src/a.ts", "src/deep/Test.TS"]),
        ({"pattern": "src"}, ["src/"]),
        ({"pattern": "src/*.ts"}, ["src/a.ts"]),
        ({"pattern": "src/**/*.ts"}, ["src/a.ts", "src/deep/Test.TS"]),
        ({"pattern": "**/deep/*"}, ["src/deep/Test.TS"]),
        ({"pattern": "?.ts", "path": "src"}, ["a.ts"]),
        ({"pattern": "[ab].ts*"}, ["a.ts", "b.tsx", "src/a.ts"]),
        ({"pattern": "readme"}, ["README"]),
        ({"pattern": "*", "path": "src"}, ["a.ts", "deep/", "deep/Test.TS"]),
        ({"pattern": "*.nothing"}, ["No files found matching pattern"]),
        ({"pattern": "conf*"}, ["No files found matching pattern"]),
    ],
)
def test_names_found(args: dict[str, Any], found: list[str], backend: str, tmp_path: Path) -> None:
    make_tree(tmp_path, TREE)
    result = call("find", tmp_path, **args)
    assert text_of(result).split("\n") == found
    assert result.details is None


@pytest.mark.usefixtures("backend")
def test_an_absolute_pattern(tmp_path: Path) -> None:
    make_tree(tmp_path, TREE)
    assert text_of(call("find", tmp_path, pattern=f"{tmp_path}/src/*.ts")) == "src/a.ts"


def test_ignore_files(backend: str, tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", ".gitignore": "no*\n!not\nout/", "no": "", "not": "", "out/x": "", "sub/now": ""})
    names = text_of(call("find", tmp_path, pattern="*")).split("\n")
    assert [name for name in names if not name.startswith(".git")] == ["not", "sub/"]


def test_gitignore_counts_outside_of_repositories_too(tmp_path: Path) -> None:
    make_tree(tmp_path, {".gitignore": "no", "no": "", "yes": ""})
    # An fd too old to be told so is left aside.
    assert text_of(call("find", tmp_path, pattern="*")) == ".gitignore\nyes"


@pytest.mark.usefixtures("backend")
def test_limit(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", **{f"f{number}.x": "" for number in range(5)}})
    result = call("find", tmp_path, pattern="*.x", limit=2)
    text, _, notice = text_of(result).rpartition("\n\n")
    assert len(text.split("\n")) == 2
    assert notice == "[2 results limit reached. Use limit=4 for more, or refine pattern]"
    assert details_of(result) == {"resultLimitReached": 2}


@pytest.mark.usefixtures("backend")
def test_long_output(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", **{"x" * 200 + str(number): "" for number in range(400)}})
    result = call("find", tmp_path, pattern="x*")
    assert text_of(result).endswith("\n\n[50.0KB limit reached]")
    assert details_of(result)["truncation"]["truncatedBy"] == "bytes"


@pytest.mark.usefixtures("backend")
def test_what_cannot_be_searched(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", "file": ""})
    assert refusal("find", tmp_path, pattern="*", path="nope") == f"Path not found: {tmp_path}/nope"
    assert refusal("find", tmp_path, pattern="*", path="file") == f"Not a directory: {tmp_path}/file"
    text = refusal("find", tmp_path, pattern="[")
    assert text.endswith("error parsing glob '[': unclosed character class; missing ']'")


@pytest.mark.usefixtures("backend")
def test_links_are_listed_not_followed(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", "folder/f": ""})
    (tmp_path / "loop").symlink_to("folder")
    assert text_of(call("find", tmp_path, pattern="[fl]*")) == "folder/\nfolder/f\nloop"


def test_a_program_in_the_agents_own_folder_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "bin"
    make_tree(own, {"fd": '#!/bin/sh\necho "$@" >&2\nexit 3\n'})
    (own / "fd").chmod(stat.S_IRWXU)
    (tmp_path / ".git").mkdir()

    async def ask(pattern: str) -> str:
        settings = ToolSettings(bin_dir=str(own))
        return await Run("find", tmp_path, {"pattern": pattern, "limit": 7}, settings=settings).refusal()

    options = "--glob --color=never --hidden --exclude .git --max-results 7"
    assert run(lambda: ask("*.x")) == f"{options} -- *.x {tmp_path}"
    assert run(lambda: ask("a/*.x")) == f"{options} --full-path -- **/a/*.x {tmp_path}"
    (tmp_path / ".git").rmdir()
    (own / "fd").write_text("#!/bin/sh\nexit 3\n")
    assert run(lambda: ask("*.x")) == "fd exited with code 3"


def test_abort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_module, "find_program", lambda names, settings: None)

    async def body() -> None:
        searching = Run("find", "/", {"pattern": "no such name anywhere"}).task
        await asyncio.sleep(0.05)
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching

    run(body)


def test_names_that_are_no_text(backend: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with open(os.fsencode(tmp_path) + b"/n\xffm", "wb"):
        pass
    result: ToolResult = call("find", tmp_path, pattern="n*m")
    # fd itself does not match such names with `*`; both are fine.
    assert text_of(result) in ("n\ufffdm", "No files found matching pattern")
