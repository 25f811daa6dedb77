"""Trust ends at a repository, and extensions of a trusted project are loaded only as the user agreed to them."""

import json
import os
import py_compile
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spindle.resources.trust import TrustStore, content_of
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

from .conftest import Place

MARKING = 'from pathlib import Path\ndef extension(agent):\n    Path("{}").touch()\n'


def extension(place: Place, mark: str, folder: str = "project", name: str = "x.py") -> Path:
    return place.write(f"{folder}/.pi/extensions/{name}", MARKING.format(place.root / mark))


def loaded(place: Place, mark: str) -> bool:
    found = (place.root / mark).exists()
    (place.root / mark).unlink(missing_ok=True)
    return found


def run(place: Place, *more: str, folder: str = "project") -> "subprocess.CompletedProcess[str]":
    (place.root / folder).mkdir(parents=True, exist_ok=True)
    return place.run("-p", "--model", place.script("done"), *more, "hi", cwd=place.root / folder)


def test_trust_ends_at_the_next_repository(place: Place) -> None:
    (place.project / "vendor/theirs/.git").mkdir(parents=True)
    for folder in ("project/plain", "project/vendor/theirs", "project/vendor/theirs/deep"):
        extension(place, folder.rpartition("/")[2], folder)
    assert place.run("trust").returncode == 0
    done = run(place, folder="project/vendor/theirs")
    assert not loaded(place, "theirs")
    assert f"the trust of {place.project} ends at this repository" in done.stderr
    run(place, folder="project/vendor/theirs/deep")
    assert not loaded(place, "deep")
    assert "has changed since you agreed" in run(place, folder="project/plain").stderr, "trusted, but new"
    assert place.run("trust", cwd=place.project / "vendor/theirs").returncode == 0
    run(place, folder="project/vendor/theirs")
    assert loaded(place, "theirs")


def test_a_no_reaches_below_repositories_and_an_old_file_is_read(place: Place) -> None:
    inner, outer = place.project / "a/b", place.project / "a"
    for folder in (inner, outer):
        (folder / ".git").mkdir(parents=True)
    store = TrustStore(place.agent)
    place.write("agent/trust.json", {str(place.project): True, str(outer): False})
    assert store.lookup(inner) == (False, outer)
    place.write("agent/trust.json", {str(place.project): True, str(inner): True, str(place.root): False})
    assert store.lookup(inner / "c") == (True, inner)
    assert store.lookup(outer) == (False, place.root)
    (inner / "file").write_text("")
    place.write("agent/trust.json", {str(outer): True})
    assert store.lookup(inner) == (None, outer) and store.lookup(outer / "x") == (True, outer)
    store.remember(inner, True)
    assert json.loads((place.agent / "trust.json").read_text()) == {str(outer): True, str(inner): True}, "as pi has it"


def test_an_extension_that_changed_is_not_loaded(place: Place) -> None:
    extension(place, "one")
    assert place.run("trust").returncode == 0
    assert run(place).stderr == "" and loaded(place, "one")
    extension(place, "two")
    done = run(place)
    assert done.stdout == "done\n" and done.stderr.count("has changed since you agreed") == 1
    assert not loaded(place, "one") and not loaded(place, "two")
    run(place, "--approve")
    assert loaded(place, "two"), "for one run"
    run(place)
    assert not loaded(place, "two")
    assert place.run("trust").returncode == 0
    run(place)
    assert loaded(place, "two")
    extension(place, "helper", name="_helper.py")
    run(place)
    assert not loaded(place, "two"), "a file beside it is part of it"


def test_a_package_and_a_path_of_the_settings_are_trusted_by_content(place: Place) -> None:
    place.write("project/.pi/settings.json", {"extensions": ["../tools/ext"]})
    place.write("project/tools/ext/__init__.py", "from .inner import extension\n")
    inner = place.write("project/tools/ext/inner.py", MARKING.format(place.root / "one"))
    assert place.run("trust").returncode == 0
    assert run(place).stderr == "" and loaded(place, "one")
    assert run(place).stderr == "" and loaded(place, "one"), "what Python compiled is no change"
    inner.write_text(MARKING.format(place.root / "two"))
    run(place)
    assert not loaded(place, "two")


def test_compiled_files_that_somebody_put_there_are_not_run(place: Place) -> None:
    place.write("project/.pi/extensions/p/__init__.py", "from .inner import extension\n")
    inner = place.write("project/.pi/extensions/p/inner.py", MARKING.format(place.root / "good"))
    assert place.run("trust").returncode == 0
    evil = place.write("evil.py", MARKING.format(place.root / "evil"))
    cache = inner.parent / "__pycache__"
    compiled = Path(py_compile.compile(str(inner), doraise=True) or "")
    py_compile.compile(str(evil), str(compiled), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert compiled.parent == cache
    run(place)
    assert loaded(place, "good") and not loaded(place, "evil")


@pytest.mark.parametrize("answer", [True, False, None])
def test_a_client_is_asked_about_changed_extensions(place: Place, answer: bool | None) -> None:
    extension(place, "one", folder="work")
    place.write("agent/trust.json", {str(place.root / "work"): True})
    with AgentProcess(base=place.root) as agent:
        asked = agent.wait("extension_ui_request")
        assert asked["method"] == "confirm" and "x.py" in asked["message"] and not loaded(place, "one")
        reply: dict[str, Any] = {"cancelled": True} if answer is None else {"confirmed": answer}
        agent.write(json.dumps({"type": "extension_ui_response", "id": asked["id"], **reply}).encode() + b"\n")
        if answer:
            while not (place.root / "one").exists():
                agent.data("get_state")
        else:
            while "has changed since you agreed" not in agent.wait("notice")["message"]:
                pass
    loaded(place, "one")
    run(place, folder="work")
    assert loaded(place, "one") is bool(answer)


def test_an_approved_project_cannot_change_its_extensions(place: Place) -> None:
    extension(place, "one", folder="work")
    with AgentProcess(args=["--approve"], base=place.root) as agent:
        agent.data("get_state")
        assert loaded(place, "one")
        extension(place, "two", folder="work")
        agent.call("new_session")
        agent.data("get_state")
        assert not loaded(place, "two")


def test_content_of_what_cannot_be_agreed_to(tmp_path: Path) -> None:
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop/again").symlink_to("..")
    assert content_of(tmp_path / "loop") == "" and content_of(tmp_path / "none") == ""
    (tmp_path / "x").mkdir()
    assert content_of(tmp_path / "x") == ""
    (tmp_path / "x/a").write_bytes(b"1")
    first = content_of(tmp_path / "x")
    (tmp_path / "x/a").rename(tmp_path / "x/b")
    assert first and first != content_of(tmp_path / "x")


@pytest.mark.parametrize("link", ["p/sub/__pycache__", "p/sub"])
def test_compiled_files_behind_a_link_are_not_run(place: Place, link: str) -> None:
    place.write("project/.pi/extensions/p/__init__.py", "from .sub.inner import extension\n")
    inner = place.write("project/.pi/extensions/p/sub/inner.py", MARKING.format(place.root / "good"))
    evil = place.write("evil.py", MARKING.format(place.root / "evil"))
    compiled = Path(py_compile.compile(str(inner), doraise=True) or "")
    py_compile.compile(str(evil), str(compiled), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    linked = place.project / ".pi/extensions" / link
    linked.rename(place.project / "elsewhere")
    linked.symlink_to(place.project / "elsewhere")
    assert place.run("trust").returncode == 0
    run(place)
    assert loaded(place, "good") and not loaded(place, "evil")


@pytest.mark.parametrize("target", ["/dev/zero", "pipe"])
def test_what_is_no_file_among_extensions_is_not_waited_for(place: Place, target: str) -> None:
    extension(place, "one")
    if target == "pipe":
        os.mkfifo(place.project / ".pi/extensions/pipe")
    else:
        (place.project / ".pi/extensions/more").symlink_to(target)
    assert place.run("trust").returncode == 0
    assert "Cannot use" in run(place).stderr
    assert not loaded(place, "one")


def test_a_module_that_the_settings_name_is_none_of_the_project(place: Place) -> None:
    place.write("project/.pi/settings.json", {"extensions": ["planted"]})
    assert place.run("trust").returncode == 0
    place.write("project/planted.py", MARKING.format(place.root / "one"))
    run(place)
    assert not loaded(place, "one")


def test_programs_that_settings_name_are_trusted_by_content(place: Place) -> None:
    def prefixed(text: str) -> str:
        place.write("project/.pi/settings.json", {"shellCommandPrefix": text, "theme": "x"})
        steps = [{"calls": [{"name": "bash", "arguments": {"command": "true"}}]}, "done"]
        return place.run("-p", "--model", place.script(*steps), "hi", cwd=place.project).stderr

    mark = place.root / "mark"
    place.write("agent/trust.json", {str(place.project): True})
    said = prefixed(f"touch {mark}")
    assert "Cannot use shellCommandPrefix of" in said and "has changed since you agreed" in said
    for text in (f"touch {mark}", f"touch {mark}2"):
        prefixed(text)
        assert not list(place.root.glob("mark*"))
        assert place.run("trust", cwd=place.project).returncode == 0
        assert "Cannot use" not in prefixed(text)
        (found,) = place.root.glob("mark*")
        found.unlink()


@pytest.mark.parametrize("answer", [True, False])
def test_a_client_is_asked_about_programs_of_settings(place: Place, answer: bool) -> None:
    mark = place.root / "mark"
    place.write("work/.pi/settings.json", {"shellCommandPrefix": f"touch {mark}"})
    place.write("agent/trust.json", {str(place.root / "work"): True})
    with AgentProcess([reply(call("bash", {"command": "true"})), reply("done")] * 50, base=place.root) as agent:
        asked = agent.wait("permission_request")
        assert asked["kind"] == "trust" and "touch" in asked["preview"]["text"]
        agent.data("answer_permission", question=asked["id"], behavior="allow" if answer else "deny")
        for _ in range(50 if answer else 3):  # what was agreed to is loaded soon
            agent.run("go")
            if mark.exists():
                break
    assert mark.exists() is answer
