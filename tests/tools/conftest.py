"""Settings of the tool tests."""

from hypothesis import settings

# Deterministic, and not judged by the clock of a busy machine.
settings.register_profile("tools", deadline=None, derandomize=True)
settings.load_profile("tools")
