"""Files as all rooms use them: the one place for durability, locks, headers and maps.

`durable.py` writes, replaces and appends; `locks.py` keeps a file or folder for one holder; `formatfile.py` says what a
folder is; `mapped.py` maps sparse files. Only `mapped.py` needs numpy.
"""
