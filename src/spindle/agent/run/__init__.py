"""One run: its options, its limits, its result."""
