"""The ways a client reaches an agent."""
