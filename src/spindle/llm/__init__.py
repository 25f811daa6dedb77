"""Model APIs, each turned into one and the same stream of events."""
