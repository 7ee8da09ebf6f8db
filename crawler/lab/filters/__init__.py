"""The published experiments on the filters, one command each.

`smm.py`, `fpr.py`, `redis.py` and `balance.py` each measure one and make a report of it: tables, panels and closing sentences.
The report of the SMM experiment, which compares many methods and quotes the patent, is in `smm_report.py`;
`redis_servers.py` starts the Redis servers of `redis.py`.
"""
