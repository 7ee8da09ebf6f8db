"""The counts of a job, across runs and crashes: crawl_log -> totals -> accounts, by a journal -> database."""
