"""The shapes that all other packages use: messages and their content, events, models, limits, modes, tools.

Pure values: nothing here reads files, knows an agent, or imports another part of Spindle.
"""
