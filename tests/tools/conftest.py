"""Settings of the tool tests. Most run twice: on this machine, and through a pipe to a far side."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from spindle.workspace.pipe import Pipe

from . import helpers

# Deterministic, and not judged by the clock of a busy machine.
settings.register_profile("tools", deadline=None, derandomize=True)
settings.load_profile("tools")


@pytest.fixture(scope="session")
def spool_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spool")


@pytest.fixture(autouse=True)
def own_temp_folder(spool_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with the whole output of a command do not pile up in the machine's own folder."""
    monkeypatch.setenv("TMPDIR", str(spool_folder))


_BOTH = {f"test_{name}" for name in ("read", "write", "edit", "ls", "grep", "find", "bash", "user_bash", "images")}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in _BOTH:
        only_here = metafunc.definition.get_closest_marker("only_here")
        metafunc.parametrize("place", ["here"] if only_here else ["here", "there"], indirect=True)


@pytest.fixture(scope="session")
def far_side(spool_folder: Path) -> Iterator[Pipe]:
    pipe = helpers.far_side(spool_folder)
    yield pipe
    helpers.close(pipe)


@pytest.fixture(autouse=True)
def place(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the calls of a test work here, or there."""
    if getattr(request, "param", "here") == "there":
        helpers.far = request.getfixturevalue("far_side")
    yield
    helpers.far = None
