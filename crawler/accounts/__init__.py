"""What a job has counted, across runs and crashes.

Each visit becomes a line of `crawl.log` (`crawl_log`). `totals` works out what a line adds, `accounts` collects it and keeps it
safe in a `journal` until the `database` has it. Quotas ask `accounts`, reports read the database. The job opens its accounts;
`report` shows them.
"""
