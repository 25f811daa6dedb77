"""The version of the program, for all who tell it."""

__version__ = "0.1.0"
