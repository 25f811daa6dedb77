"""The programs made of all this: command line, chat, batch."""
