"""The user's files: settings, and values that stand for secrets."""
