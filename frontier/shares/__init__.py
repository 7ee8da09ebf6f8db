"""A Frontier that is one of many workers on a job: it holds some shares of the job's hosts.

`hosting` is the core's side: what belongs to others, what comes from them, shares that come and go. The store's side, with the
leases, is `stores.sql.worker`; which host is in which share is `policies.shares`.
"""
