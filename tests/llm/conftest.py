"""Settings of the model tests."""

from hypothesis import settings

# A busy machine is no reason to fail.
settings.register_profile("spindle", deadline=None, max_examples=100)
settings.load_profile("spindle")
