"""Queue policies compared by their active workers: `anabranch compare`, which is `anabranch lab policies`, too.

    options -> plan (which runs, in which order) -> each run: the real crawler in its own process, sampled each second
    -> series (samples, means, outliers, averages: pure) -> report (tables, panels, sentences: pure)

`options.py` checks the options and makes the crawl orders, `compare.py` starts the runs, `crawling.py` is the process of a run,
`saved.py` writes and reads results as JSON. `series.py` and `report.py` do not depend on how a run was made, so simulated runs
are shown by the same code.
"""
