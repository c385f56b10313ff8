"""A package, so that one browser is shared by its tests and closed after the last of them."""
