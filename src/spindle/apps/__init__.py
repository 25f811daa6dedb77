"""The programs that use the agent: command line, chat, batch."""
