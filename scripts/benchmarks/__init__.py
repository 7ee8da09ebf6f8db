"""The benchmarks behind `scripts/bench`: the product's speed, compared with its targets.

A subject is a tuple of groups (`dedup/`, `frontier/`, `embed/`), a group measures and answers with rows (`rows.py`).
`__main__.py` runs the groups asked for, each between two runs of the calibration loop (`calibration.py`), and shows the rows
(`table.py`). `site/` is the web that crawlers are timed on.
"""
