"""What a crawl tells.

Each visit becomes a line of `crawl.log` (`crawl_log`, its notes: `annotations`), a failed try one of `errors.jsonl`
(`error_log`). From what is logged the job's totals are kept, across runs and crashes: `crawl_log_parsing` reads a line,
`accounting` says what it adds, `accounts` keeps it (`account_journal`, `account_file`, `account_tables`, `account_reading`).
What the run of the moment does is counted in memory (`statistics`; why tries failed: `troubles`) and shown by `progress`, and
every 20 s by a line of `progress-statistics.log` (`progress_log`). `reports` makes tables of all that, by name. `logs` is the
only place that decides where events go and how they look.
"""
