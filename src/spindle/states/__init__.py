"""States of a folder: what was there, what differs, and the way back."""
