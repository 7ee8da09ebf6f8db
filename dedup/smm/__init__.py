"""SMM (`store.py`): the shared memory-mapped signature store, one bit per key, in mapped files."""
