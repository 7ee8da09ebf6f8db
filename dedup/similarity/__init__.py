"""The similarity filter: drops URLs whose features are all known (`filter.py`), and keeps the others in `url_db.py`."""
