"""Lines over the process's own stdin and stdout, for wires whose client starts us as its child."""
