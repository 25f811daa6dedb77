"""Shared by the wires on a network port: access control, connections, plain answers."""
