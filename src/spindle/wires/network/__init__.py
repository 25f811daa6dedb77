"""What the wires on a network port share: who gets in, connections, plain answers."""
