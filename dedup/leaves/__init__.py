"""Where the bits of a DSBF's leaves live: one narrow interface (`base.py`), one file per place."""
