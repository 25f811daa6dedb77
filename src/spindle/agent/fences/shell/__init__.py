"""Shell commands, read as far as rules need it."""
