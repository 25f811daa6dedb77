"""The remote protocol: chat requests over a WebSocket."""
