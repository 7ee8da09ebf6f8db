"""The published experiments on the filters, one command each.

`smm.py`, `fpr.py`, `redis.py` and `balance.py` measure; what tables, panels and closing words say of it is in the `_report.py`
beside each. Two have more to them. `smm.py` times passes over its stores and tables (`smm_passes.py`), sets the methods
beside each other and says who wins (`smm_comparison.py`), and quotes the patent (`smm_published.py`). `redis.py` starts its
servers itself (`redis_servers.py`).
"""
