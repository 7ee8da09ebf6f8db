"""What a crawl shows: on the terminal, in its logs, in its reports.

Runs count what they do in memory (`statistics`), and why tries failed (`troubles`, with errors.jsonl). A terminal shows it as
`progress`, and `progress_log` writes it into `progress-statistics.log` every 20 s. `summary` is printed when a run ends;
`reports` shows the whole job, from its accounts, as `table`s. `logs` configures where events go.
"""
