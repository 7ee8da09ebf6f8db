"""The experiments on the filters, one command each.

`smm.py`, `fpr.py`, `split.py`, `redis.py` and `balance.py` each repeat a published one and make a report of it: tables, panels
and closing sentences. The report of the SMM experiment, which compares many methods and quotes the patent, is in
`smm_report.py`; `redis_servers.py` starts the Redis servers of `redis.py`.

`compare.py` compares the filters by the links of a crawl: `contestants.py` opens them, `asking.py` asks one in a process of its
own, `compare_report.py` judges the answers and shows them.
"""
