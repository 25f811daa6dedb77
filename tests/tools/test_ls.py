"""The ls tool: order, marks, limits."""

import os
from pathlib import Path

import pytest

from .helpers import call, details_of, refusal, text_of
from .trees import make_tree


def test_order_and_marks(tmp_path: Path) -> None:
    for name in ("b.txt", "A.txt", "_x", "Éa", "ez", "st", "ß", "a-b", "a_b", "10", "9", "Z", "#h", "~t"):
        (tmp_path / name).touch()
    make_tree(tmp_path, {".git/": "", "dir/": ""})
    (tmp_path / "to-dir").symlink_to("dir")
    (tmp_path / "dangling").symlink_to("nowhere")
    expected = "_x .git/ #h ~t 10 9 a_b a-b A.txt b.txt dir/ Éa ez ß st to-dir/ Z"
    result = call("ls", tmp_path)
    assert text_of(result).replace("\n", " ") == expected
    assert result.details is None


def test_an_empty_folder(tmp_path: Path) -> None:
    assert text_of(call("ls", tmp_path)) == "(empty directory)"


def test_limit(tmp_path: Path) -> None:
    make_tree(tmp_path, dict.fromkeys("abc", ""))
    result = call("ls", tmp_path, limit=2)
    assert text_of(result) == "a\nb\n\n[2 entries limit reached. Use limit=4 for more]"
    assert details_of(result) == {"entryLimitReached": 2}
    assert text_of(call("ls", tmp_path, limit=3)) == "a\nb\nc"


def test_long_output(tmp_path: Path) -> None:
    make_tree(tmp_path, {"x" * 200 + f"{number:03}": "" for number in range(400)})
    result = call("ls", tmp_path)
    assert text_of(result).endswith("\n\n[50.0KB limit reached]")
    assert details_of(result)["truncation"]["truncatedBy"] == "bytes"


def test_what_cannot_be_listed(tmp_path: Path) -> None:
    make_tree(tmp_path, {"file": ""})
    assert refusal("ls", tmp_path, path="nope") == f"Path not found: {tmp_path}/nope"
    assert refusal("ls", tmp_path, path="file") == f"Not a directory: {tmp_path}/file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0)
    expected = f"Cannot read directory: EACCES: permission denied, scandir '{tmp_path}/d'"
    assert refusal("ls", tmp_path, path="d") == expected
