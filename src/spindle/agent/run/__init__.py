"""One run: what was asked for, what it uses up, what came of it."""
