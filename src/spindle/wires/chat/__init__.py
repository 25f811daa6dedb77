"""The chat protocol over a WebSocket."""
