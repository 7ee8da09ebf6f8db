"""The web that crawlers are timed on: pages of 12 KB with 60 links, from a server in a process of its own.

`pages.py` says what is on a page, `serving.py` is a small server's program, `process.py` starts and ends it;
`nginx.py` has nginx serve the same. Both count what they were asked for (`tally.py`).
"""
