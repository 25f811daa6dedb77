"""Undo: checkpoints of the files, what changed since, and the way back."""
