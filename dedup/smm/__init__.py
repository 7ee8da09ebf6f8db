"""The shared signature store: one bit per key, in mapped files.

`signature.py` makes an address of a key, `fileindex.py` says which bit of which file it is. `store.py` is the face; below it
`bitfiles.py` sets and asks bits in files that are mapped at once (`wholefiles.py`) or on demand (`lazyfiles.py`), in pages
that have blocks (`pagetable.py`, `sparse.py`). Processes take turns (`sharing.py`) and keep one account (`ledger.py`).
"""
