"""Clients over a network: a WebSocket server with the remote protocol, the RPC protocol, and a web page."""
