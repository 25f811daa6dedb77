"""What surrounds a run: settings, models, credentials, skills, templates, context files, the system prompt.

`loader.load_resources` reads it all for one working directory; every other module is one kind of thing.
"""
