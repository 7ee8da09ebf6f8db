"""The tests. A package of this name in an environment, as some distributions install by mistake, does not hide them."""
