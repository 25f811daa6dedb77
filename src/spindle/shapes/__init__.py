"""The shapes everything else speaks: content, messages, events, session entries, models.

Pure values: nothing here reads files, knows an agent, or imports another part of Spindle.
"""
