"""Everything around a run: skills, templates, context files, stream rules, trust, the system prompt.

`loader.load_resources` reads it all for one working directory; every other module handles one kind of resource.
"""
