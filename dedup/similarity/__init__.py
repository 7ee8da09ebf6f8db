"""The similarity filter: drops URLs if all their features are known (`filter.py`), and keeps the others in `url_db.py`."""
