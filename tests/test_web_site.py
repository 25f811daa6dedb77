"""The files of the chat page as they are served: modules of a checkout, or the bundle of a release."""

import re
import shutil
from pathlib import Path

import pytest

import spindle.web
from spindle.web import site


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("chat", "shared"):
        shutil.copytree(spindle.web.ROOT / folder, tmp_path / folder)
    monkeypatch.setattr(spindle.web, "ROOT", tmp_path)
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "_site", site._Site())
    monkeypatch.setattr(site, "_LOOK_AGAIN", 0.0)
    site._packed.cache_clear()
    return tmp_path


def got(path: str) -> str:
    answer = site.chat_answer(path, {})
    assert answer is not None and answer.status == 200
    return answer.body.decode()


def version() -> str:
    return re.findall(r"page/(\w+)/early.js", got("/"))[0]


def test_an_edit_is_seen_without_a_restart(root: Path) -> None:
    before = version()
    assert "// " not in got("/page/shared/heights.js")
    with (root / "shared" / "heights.js").open("a") as file:
        file.write("export const added = 1;\n")
    after = version()
    assert after != before and "added=1" in got(f"/page/{after}/shared/heights.js")
    assert site.chat_answer(f"/page/{before}/shared/heights.js", {}) is None
    (root / "chat" / "new.js").write_text("export const fresh = 2;\n")
    assert "fresh=2" in got(f"/page/{version()}/chat/new.js")


def test_nothing_outside_is_served(root: Path) -> None:
    (root / "secret.js").write_text("secret")
    outside = ("secret.js", "../secret.js", "chat/../secret.js", "/etc/passwd", "chat/")
    for path in outside:
        assert site.chat_answer(f"/page/{path}", {}) is None, path


def test_the_bundle_of_a_release_is_served_in_place_of_the_modules(root: Path) -> None:
    (root / "dist").mkdir()
    (root / "dist" / "main.js").write_text('import{a}from"./chunk-1.js";import("./setup-2.js");\n')
    for name in ("chunk-1.js", "setup-2.js", "main.js.map"):
        (root / "dist" / name).write_text("{}")
    page = got("/")
    named = re.findall(r"page/\w+/([\w./-]+\.js)\"", page)
    assert named == ["early.js", "dist/main.js", "dist/chunk-1.js"]
    answer = site.chat_answer(f"/page/{version()}/dist/main.js.map", {})
    assert answer is not None and answer.headers["Content-Type"] == "application/json"
