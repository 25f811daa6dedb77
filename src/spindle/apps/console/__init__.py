"""The chat on a terminal: a client of the RPC protocol like any other, of an agent in this process or on a server.

Made with prompt_toolkit and rich. Nothing else of Spindle imports this package but the command line, and
that only when a chat begins.
"""
