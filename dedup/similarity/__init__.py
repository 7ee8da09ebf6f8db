"""The similarity filter: drops URLs whose features (`features.py`) are all known, and keeps the others in `url_db.py`."""
