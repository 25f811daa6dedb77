"""The built-in tools and the machinery they share."""
