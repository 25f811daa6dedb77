"""Settings of the model tests."""

import pytest
from hypothesis import settings

# A busy machine is no reason to fail.
settings.register_profile("spindle", deadline=None, max_examples=100)
settings.load_profile("spindle")


@pytest.fixture(autouse=True)
def no_wishes_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PI_CACHE_RETENTION", raising=False)
