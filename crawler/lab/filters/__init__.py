"""The published experiments on the filters, one command each: what is measured (`smm.py`, `fpr.py`, `redis.py`, `balance.py`)
and what the tables, panels and closing words make of it (`..._report.py`).
"""
