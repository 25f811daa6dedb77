"""The find tool: what it finds, what it leaves out, what it says."""

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from spindle.programs.children import remaining
from spindle.shapes.events import ToolResult
from spindle.workspace.settings import ToolSettings

from . import helpers
from .helpers import Run, call, details_of, refusal, run, text_of, until
from .trees import make_tree

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
def test_names_found(args: dict[str, Any], found: list[str], tmp_path: Path) -> None:
    make_tree(tmp_path, TREE)
    result = call("find", tmp_path, **args)
    assert text_of(result).split("\n") == found
    assert result.details is None


def test_an_absolute_pattern(tmp_path: Path) -> None:
    make_tree(tmp_path, TREE)
    assert text_of(call("find", tmp_path, pattern=f"{tmp_path}/src/*.ts")) == "src/a.ts"


def test_ignore_files(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", ".gitignore": "no*\n!not\nout/", "no": "", "not": "", "out/x": "", "sub/now": ""})
    names = text_of(call("find", tmp_path, pattern="*")).split("\n")
    assert names == [".gitignore", "not"]


def test_gitignore_counts_outside_of_repositories_too(tmp_path: Path) -> None:
    make_tree(tmp_path, {".gitignore": "no", "no": "", "yes": ""})
    assert text_of(call("find", tmp_path, pattern="*")) == ".gitignore\nyes"


def test_limit(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", **{f"f{number}.x": "" for number in range(5)}})
    result = call("find", tmp_path, pattern="*.x", limit=2)
    text, _, notice = text_of(result).rpartition("\n\n")
    assert len(text.split("\n")) == 2
    assert notice == "[2 results limit reached. Use limit=4 for more, or refine pattern]"
    assert details_of(result) == {"resultLimitReached": 2}


def test_long_output(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", **{"x" * 200 + str(number): "" for number in range(400)}})
    result = call("find", tmp_path, pattern="x*")
    assert text_of(result).endswith("\n\n[50.0KB limit reached]")
    assert details_of(result)["truncation"]["truncatedBy"] == "bytes"


def test_what_cannot_be_searched(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", "file": ""})
    assert refusal("find", tmp_path, pattern="*", path="nope") == f"Path not found: {tmp_path}/nope"
    assert refusal("find", tmp_path, pattern="*", path="file") == f"Not a directory: {tmp_path}/file"
    text = refusal("find", tmp_path, pattern="[")
    assert text.endswith("error parsing glob '[': unclosed character class; missing ']'")


def test_only_folders_with_files_are_listed_and_links_are_not_followed(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", "folder/inner/f": "", "folder/empty/": ""})
    (tmp_path / "folder/loop").symlink_to("..")
    assert text_of(call("find", tmp_path, pattern="*")) == "folder/\nfolder/inner/\nfolder/inner/f"


def test_the_limit_counts_folders_too(tmp_path: Path) -> None:
    make_tree(tmp_path, {".git/": "", "xa/xb/xc": ""})
    result = call("find", tmp_path, pattern="x*", limit=2)
    assert text_of(result).startswith("xa/xb/\nxa/xb/xc\n\n[2 results limit")


@pytest.mark.only_here
def test_ripgrep_in_the_agents_own_folder_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "bin"
    make_tree(own, {"rg": '#!/bin/sh\necho "$@" >&2\nexit 3\n'})
    (own / "rg").chmod(stat.S_IRWXU)

    async def ask() -> str:
        return await Run("find", tmp_path, {"pattern": "*"}, settings=ToolSettings(bin_dir=str(own))).refusal()

    options = "--no-config --files --hidden --color=never --glob=!.git"
    assert run(ask) == f"{options} --no-require-git"
    (tmp_path / ".git").mkdir()
    assert run(ask) == options
    (own / "rg").write_text("#!/bin/sh\nexit 3\n")
    assert run(ask) == "ripgrep exited with code 3"


@pytest.mark.only_here
def test_a_folder_that_cannot_be_read_hides_only_itself(tmp_path: Path) -> None:
    own = tmp_path / "bin"
    make_tree(own, {"rg": "#!/bin/sh\necho a/b\necho complaint >&2\nexit 2\n"})
    (own / "rg").chmod(stat.S_IRWXU)

    async def ask(pattern: str) -> str:
        settings = ToolSettings(bin_dir=str(own))
        return text_of(await Run("find", tmp_path, {"pattern": pattern}, settings=settings).task)

    assert run(lambda: ask("b")) == "a/b"
    assert run(lambda: ask("c")) == "No files found matching pattern"


def test_abort(tmp_path: Path) -> None:
    async def body() -> None:
        before = set(remaining())
        searching = Run("find", "/", {"pattern": "no such name anywhere"}).task
        await until(lambda: helpers.far is not None or set(remaining()) != before or searching.done())
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching
        await until(lambda: set(remaining()) <= before)

    run(body)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with open(os.fsencode(tmp_path) + b"/n\xffm", "wb"):
        pass
    result: ToolResult = call("find", tmp_path, pattern="n*m")
    assert text_of(result) == "n\ufffdm"
