"""Plugins of an agent: extensions, and MCP servers."""
