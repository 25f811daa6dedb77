"""Settings of the tool tests."""

from pathlib import Path

import pytest
from hypothesis import settings

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
