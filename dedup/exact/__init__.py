"""The exact index: a set of fingerprints that never errs.

`index.py` opens it. New elements go to a tail in memory and its log (`tail.py`); a full tail becomes a sorted run
(`runs.py`). Runs are merged, so that few remain (`runfolder.py`).
"""
