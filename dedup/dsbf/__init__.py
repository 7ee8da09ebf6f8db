"""The dynamic splittable Bloom filter: a tree (`tree.py`) whose leaves (`dedup/leaves/`) split when they are full.

`filter.py` is the one of a folder; `splitting.py` moves the elements of full leaves, `manifest.py` keeps the tree,
`restoring.py` brings it back, `checking.py` verifies it. `sharedfilter.py` is the one that crawlers share by Redis, with the
same parts (`shared….py`). The numbers come from `bloom.py`.
"""
