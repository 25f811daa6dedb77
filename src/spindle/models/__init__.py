"""The models that exist, which of them the user means, and the keys to use them."""
