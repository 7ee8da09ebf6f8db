"""The exact index: a set of fingerprints that never errs.

`index.py` is the face. New elements go to a tail in memory and its log (`taillog.py`); a full tail becomes a sorted file
(`sortedruns.py`, searched by `guessing.py`). Files are merged (`runmerge.py`), so that few remain (`runfolder.py`).
"""
