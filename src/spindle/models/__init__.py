"""Which models there are, which one is meant, and the keys to use them."""
