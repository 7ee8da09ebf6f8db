"""The lab: the published experiments, and comparisons of one's own, each by one command.

An experiment (in `filters/`; `experiments.py` has all by name) measures and answers with a `Report` (`report.py`): tables,
panels of curves, and what they say. `urls.py` gives the URLs, `plots.py` draws the panels, `crawler/cli/lab.py` shows it all.
"""
