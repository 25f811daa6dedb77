"""What hooks into an agent from above: extensions, and MCP servers."""
