"""Sessions as resources over plain HTTP."""
