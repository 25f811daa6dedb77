import pytest


@pytest.fixture(autouse=True)
def _own_agent_dir(tmp_path, monkeypatch):
    """Keep servers inside the test process away from the developer's files."""
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
