"""What the agent may do: rules, the reading of shell lines, approval."""
