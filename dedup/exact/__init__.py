"""The exact index: a set of fingerprints that never errs (`index.py`), as a tail with its log and sorted runs."""
