import pytest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An agent directory of the test's own, and no key of the developer's."""
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    return tmp_path
