"""Lines over the process's own stdin and stdout, for the wires that are started as a child."""
