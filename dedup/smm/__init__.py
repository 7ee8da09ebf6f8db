"""The shared memory-mapped signature store (SMM): one bit per key, in mapped files.

`store.py` opens it. `addresses.py` makes an address of a key and names the file and bit, `bitfiles.py` asks and sets bits
in the files of `mapping.py`. Processes that share a store agree by `sharing.py`.
"""
