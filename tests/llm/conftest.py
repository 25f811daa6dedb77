"""Settings of the model tests."""

import pytest


@pytest.fixture(autouse=True)
def no_wishes_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PI_CACHE_RETENTION", raising=False)
