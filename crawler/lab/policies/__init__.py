"""Queue policies compared by their active workers: `anabranch compare`, which is `anabranch lab policies`, too.

    options → plan (which runs, in which order) → each run: the real crawler in a process of its own, looked at each second
    → series (samples, means, outliers, averages: pure) → report (tables, panels, words: pure)

`series.py` and `report.py` know nothing of how a run came about, so a simulated one is shown by the same code.
"""
