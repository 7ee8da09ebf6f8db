"""The dynamic splittable Bloom filter (DSBF): a tree of Bloom filters that split when they are full.

One folder: `filter.py` opens it, `table.py` answers queries over `tree.py` and `bits.py`, `log.py` keeps the elements,
`splitting.py` splits full leaves and keeps the manifest, `restoring.py` brings a closed filter back. `formulas.py` has the
arithmetic. Shared by crawlers: `sharedfilter.py`, with its `sharedtree.py` and `sharedsplitting.py`; the leaves are on
Redis servers (`sharedleaves.py`, `redis.py`).
"""
