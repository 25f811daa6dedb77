"""Permissions: rules, the reading of shell lines, approval."""
