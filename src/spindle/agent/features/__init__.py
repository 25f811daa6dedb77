"""Features made of hooks: todos, stream rules, structured results."""
